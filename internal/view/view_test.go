package view_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"slow-disk":        {State: view.StateDegraded, Health: view.NotWell},
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

// notInAnchors is what GitHub leaves out of the anchor of a heading.
var notInAnchors = regexp.MustCompile(`[^\w\- ]`)

// A page that a step names has to exist, with the heading or the anchor that the link names.
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
			heading := strings.ToLower(strings.TrimLeft(line, "# "))
			return strings.Contains(line, `<a id="`+anchor+`"></a>`) ||
				strings.HasPrefix(line, "#") && strings.ReplaceAll(notInAnchors.ReplaceAllString(heading, ""), " ", "-") == anchor
		}) {
			t.Errorf("%s: the page has neither such a heading nor such an anchor", link)
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
	if m := v.Members[0]; m.DiskWord().Text != view.Unknown || m.NodeWord().Text != view.Unknown {
		t.Errorf("of a disk and a node without a report it says %q and %q", m.DiskWord().Text, m.NodeWord().Text)
	}
	if b := v.Backup; b == nil || b.Saved != nil || b.FullAt != nil || b.FullSize != nil || b.SavedAt != nil {
		t.Errorf("of backups it says %+v", b)
	}
}

// druid writes the reason of an agent as a sentence into the status.
func TestNoteOfAMemberIsShownOnce(t *testing.T) {
	m := view.Member{Message: "Volume /var/lib/etcd: permission denied.", Waits: "volume /var/lib/etcd: permission denied"}
	if got := m.Notes(); len(got) != 1 || got[0] != m.Message {
		t.Errorf("the notes are %q, want %q", got, m.Message)
	}
	m.Waits = "no quorum responds"
	if got := m.Notes(); len(got) != 2 || got[1] != "etcd does not start: no quorum responds" {
		t.Errorf("the notes are %q, want another reason too", got)
	}
}

// A disk report is only on the Lease while etcd does not run, and then the agent measures nothing.
func TestDiskOfAMember(t *testing.T) {
	const corrupt = `{"pod":"4c1d","state":"corrupt","kind":"bad-wal-record","orders":true}`
	for name, c := range map[string]struct {
		annotations map[string]string
		want        view.Word
		p99         *float64
	}{
		"fast":             {map[string]string{"fsync": "OK p99=4ms"}, view.Word{Text: "OK (4ms)"}, new(0.004)},
		"slow":             {map[string]string{"fsync": "Slow p99=256ms"}, view.Word{Text: "Slow (256ms)", Tone: view.Middle}, new(0.256)},
		"very slow":        {map[string]string{"fsync": "VerySlow p99=1.024s"}, view.Word{Text: "VerySlow (1.024s)", Tone: view.Bad}, new(1.024)},
		"too few writes":   {map[string]string{"fsync": "Slow"}, view.Word{Text: "Slow", Tone: view.Middle}, nil},
		"no verdict":       {nil, view.Word{Text: view.Unknown}, nil},
		"etcd waits":       {map[string]string{"disk": `{"pod":"4c1d","state":"empty","orders":true}`}, view.Word{Text: "empty", Tone: view.Middle}, nil},
		"damaged":          {map[string]string{"disk": corrupt}, view.Word{Text: "corrupt", Tone: view.Bad}, nil},
		"an older verdict": {map[string]string{"disk": corrupt, "fsync": "OK p99=4ms"}, view.Word{Text: "corrupt", Tone: view.Bad}, new(0.004)},
		"an unknown state": {map[string]string{"disk": `{"pod":"4c1d","state":"fine"}`}, view.Word{Text: view.Unknown}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := situations.Serving()
			delete(o.Leases[0].Annotations, leases.Prefix+"fsync")
			for key, value := range c.annotations {
				o.Leases[0].Annotations[leases.Prefix+key] = value
			}
			m := view.Of(o, situations.Now).Members[0]
			if got := m.DiskWord(); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if (m.FsyncP99 == nil) != (c.p99 == nil) || c.p99 != nil && *m.FsyncP99 != *c.p99 {
				t.Errorf("got %v seconds, want %v", m.FsyncP99, c.p99)
			}
		})
	}
}

// The window ends where the last change was saved, or with the newest full backup if delta backups failed before it.
func TestTheRestorableWindow(t *testing.T) {
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(situations.Now.Add(-ago)) }
	ofStatus := &v1alpha1.BackupStatus{LastFullTime: new(at(3 * time.Hour)), RestorableFrom: new(at(40 * time.Hour)), RestorableTo: new(at(time.Hour))}
	for name, c := range map[string]struct {
		change func(*view.Objects)
		want   string
	}{
		"backups succeed": {func(*view.Objects) {}, "from 2026-11-22T04:00:00Z (47h ago) to 2026-11-24T02:59:54Z (6s ago)"},
		"delta backups fail": {func(o *view.Objects) { o.Leases[4].Spec.RenewTime.Time = situations.Now.Add(-time.Hour) },
			"from 2026-11-22T04:00:00Z (47h ago) to 2026-11-24T02:00:00Z (60m ago)"},
		"delta backups failed before the newest full backup": {func(o *view.Objects) { o.Leases[4].Spec.RenewTime.Time = situations.Now.Add(-5 * time.Hour) },
			"from 2026-11-22T04:00:00Z (47h ago) to 2026-11-24T00:00:00Z (3h ago)"},
		"an agent that reports no window": {func(o *view.Objects) { delete(o.Leases[3].Annotations, leases.Prefix+"restorable-since") }, "unknown"},
		"the Leases take precedence over the status": {func(o *view.Objects) { o.Cluster.Status.Backup = ofStatus },
			"from 2026-11-22T04:00:00Z (47h ago) to 2026-11-24T02:59:54Z (6s ago)"},
		"only the EtcdCluster can be read": {func(o *view.Objects) { o.Leases, o.Cluster.Status.Backup = nil, ofStatus },
			"from 2026-11-22T11:00:00Z (40h ago) to 2026-11-24T02:00:00Z (60m ago)"},
		"only the EtcdCluster can be read, and backups succeed": {func(o *view.Objects) {
			o.Leases, o.Cluster.Status.Backup = nil, &v1alpha1.BackupStatus{RestorableFrom: new(at(40 * time.Hour))}
		}, "from 2026-11-22T11:00:00Z (40h ago) to unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			o := situations.Serving()
			c.change(&o)
			lines := view.Of(o, situations.Now).Backup.Lines(situations.Now)
			if !slices.Contains(lines, view.Word{Text: "restorable: " + c.want}) {
				t.Errorf("got %+v, want %q", lines, c.want)
			}
		})
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
