package view_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

func TestStateOfEachSituation(t *testing.T) {
	want := map[string]view.Headline{
		"serving": {State: view.StateServing, Health: view.Well}, "without-backup": {State: view.StateServing, Health: view.Well},
		"member-down": {State: view.StateMembersNotReady, Health: view.NotWell}, "quorum-lost": {State: view.StateQuorumLost, Health: view.NotWell},
		"restore-with-a-plan":     {State: view.StateServing, Health: view.Well},
		"quorum-lost-with-a-plan": {State: view.StateQuorumLost, Health: view.NotWell}, "backups-failing": {State: view.StateBackupsFailing, Health: view.NotWell},
		"backup-broken": {State: view.StateBackupsFailing, Health: view.NotWell}, "paused": {State: view.StatePaused, Health: view.Well},
		"forming": {State: view.StateForming, Health: view.NotWell}, "tls": {State: view.StateServing, Health: view.Well},
		"leaving-a-joined-cluster": {State: view.StateChanging, Health: view.Well}, "hands-off": {State: view.StateHandsOff, Health: view.NotWell},
		"own-certificates": {State: view.StateServing, Health: view.Well},
		"authority-lost":   {State: view.StateNotSecure, Health: view.NotWell}, "druid-and-agents-silent": {State: view.StateStatusOutdated, Health: view.Unclear},
		"not-accepted": {State: view.StateNotAccepted, Health: view.Unclear}, "scaling-up": {State: view.StateChanging, Health: view.Well},
		"leases-not-readable": {State: view.StateServing, Health: view.Well},
	}
	for _, s := range situations.All() {
		v := view.Of(s.Objects, situations.Now)
		if got := (view.Headline{State: v.State, Health: v.Health}); got != want[s.Name] {
			t.Errorf("%s is %v by rule %s, want %v", s.Name, got, v.Rule, want[s.Name])
		}
		for _, c := range v.Conditions {
			if c.Type == v1alpha1.ConditionStalled || c.Type == v1alpha1.ConditionReconciling {
				t.Errorf("%s lists %s, which repeats another condition", s.Name, c.Type)
			}
		}
		if s.Name == "serving" || s.Name == "quorum-lost-with-a-plan" || s.Name == "leases-not-readable" {
			raw, err := json.MarshalIndent(v, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, "testdata/"+s.Name+".json", string(raw)+"\n")
		}
	}
}

// A page that a step names has to exist, with the heading that the link names.
func TestEachPageOfAStepExists(t *testing.T) {
	links := view.Links()
	for _, s := range situations.All() {
		v := view.Of(s.Objects, situations.Now)
		for _, step := range v.Next {
			links = append(links, step.Docs)
		}
		for _, c := range v.Conditions {
			links = append(links, c.Docs)
		}
	}
	for _, link := range links {
		page, anchor, _ := strings.Cut(strings.TrimPrefix(link, "https://github.com/etcd-druid/druid/blob/main/docs/"), "#")
		if link == "" {
			continue
		}
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Errorf("%s: %v", link, err)
			continue
		}
		if anchor != "" && !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "#") && strings.ReplaceAll(strings.ToLower(strings.TrimLeft(line, "# ")), " ", "-") == anchor
		}) {
			t.Errorf("%s: the page has no such heading", link)
		}
	}
}

func TestWhatIsNotReadIsUnknown(t *testing.T) {
	o := situations.Serving()
	damaged := &o.Leases[0]
	damaged.Annotations[leases.Prefix+"raft"] = "of another version"
	o.Leases[3].Annotations[leases.Prefix+"size"], o.Leases[4].Annotations[leases.Prefix+"lag"] = "big", "long"
	delete(o.Leases[1].Annotations, leases.Prefix+"revision")
	delete(o.Leases[1].Annotations, leases.Prefix+"volume-free")
	o.Pods, o.Nodes = nil, nil
	v := view.Of(o, situations.Now)
	m := v.Members[0]
	if m.Revision != nil || m.DBSize != nil || m.RaftLag != nil || m.Node != "" || m.Zone != "" || m.Agent != "" {
		t.Errorf("of a Lease that cannot be read it says %+v", m)
	}
	if m := v.Members[1]; m.Revision != nil || m.VolumeFree != nil || m.DBSize == nil {
		t.Errorf("of a Lease without revision and free space it says %+v", m)
	}
	if m.Renewed == nil || !*m.Renewed {
		t.Error("a Lease whose content cannot be read is renewed all the same")
	}
	if b := v.Backup; b == nil || b.Saved != nil || b.FullAt != nil || b.FullSize != nil || b.SavedAt != nil {
		t.Errorf("of backups it says %+v", b)
	}
}

// TestUnknownReasonIsNotGood: reasons of another version are not taken for good.
// An older plugin reads what a newer druid writes.
func TestUnknownReasonIsNotGood(t *testing.T) {
	o := situations.Serving()
	for i := range o.Cluster.Status.Conditions {
		if c := &o.Cluster.Status.Conditions[i]; c.Type == v1alpha1.ConditionReady {
			c.Status, c.Reason = "False", "AReasonOfTheFuture"
		}
	}
	if v := view.Of(o, situations.Now); v.Health != view.Unclear {
		t.Errorf("it is %s, %s", v.State, v.Health)
	}
}

// TestLeaseRenewedWithinDuration: a Lease counts as renewed within its duration.
func TestLeaseRenewedWithinDuration(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: true, 45 * time.Second: true, 60 * time.Second: true, 61 * time.Second: false} {
		o := situations.Serving()
		for i := range 3 {
			o.Leases[i].Spec.RenewTime.Time = situations.Now.Add(-age)
		}
		if got := view.Of(o, situations.Now).State == view.StateServing; got != want {
			t.Errorf("renewed %s ago: serving is %t", age, got)
		}
	}
	o := situations.Serving()
	for i := range 3 {
		o.Leases[i].Spec = coordinationv1.LeaseSpec{HolderIdentity: o.Leases[i].Spec.HolderIdentity}
	}
	if v := view.Of(o, situations.Now); v.State != view.StateStatusOutdated {
		t.Errorf("Leases that were never renewed: %s", v.State)
	}
}

func TestSortBringsTheWorstFirst(t *testing.T) {
	var all []view.Cluster
	for i, state := range view.States {
		all = append(all, view.Cluster{Name: "b", State: state}, view.Cluster{Name: string(rune('a' + i%2)), Namespace: "a", State: state})
	}
	slices.Reverse(all)
	view.Sort(all)
	for i, c := range all {
		if c.State != view.States[i/2] || (c.Namespace == "a") != (i%2 == 1) {
			t.Errorf("%d is %s %s/%s", i, c.State, c.Namespace, c.Name)
		}
	}
}

// The quota in the view is the one that druid gives etcd.
func TestQuotaOfTheSpec(t *testing.T) {
	for size, want := range map[string]int64{"1Gi": 1 << 29, "4Gi": 2 << 30, "100Gi": 2 << 30} {
		o := situations.Serving()
		o.Cluster.Spec.Storage.Size.Set(0)
		o.Cluster.Spec.Storage.Size.Add(quantity(t, size))
		if got := view.Of(o, situations.Now).Quota; got != want {
			t.Errorf("%s: %d, want %d", size, got, want)
		}
	}
	o := situations.Serving()
	o.Cluster.Spec.Etcd.QuotaBackendBytes = new(quantity(t, "8Gi"))
	if got := view.Of(o, situations.Now).Quota; got != 8<<30 {
		t.Errorf("8Gi: %d", got)
	}
}

func quantity(t *testing.T, text string) resource.Quantity {
	t.Helper()
	q, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}
