package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// aPlan leads to revision 48000 of the first lineage.
func aPlan() catalog.Plan {
	at := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	return catalog.Plan{
		Full:     catalog.Full{Lineage: firstLineage, Key: catalog.FullKey("default/demo", firstLineage, 47900, at), Revision: 47900, At: at, Size: 198 << 20},
		Deltas:   []catalog.Delta{{Lineage: firstLineage, From: 47901, To: 48102, Size: 16 << 20}},
		Revision: 48000, Reach: 48000,
	}
}

func TestThePlanOfARestoreInEachSituation(t *testing.T) {
	for _, s := range situations.All() {
		var out strings.Builder
		c := view.Of(s.Objects, situations.Now)
		if err := selection("").restorable(s.Objects.Cluster, c); err != nil {
			out.WriteString(err.Error() + "\n")
		} else {
			newPage(&out, situations.Now).restoring(selection("").restoringOf(s.Objects, c, leases.RestoreTarget{Revision: 48000}, "demo-bqdq7", aPlan()),
				s.Objects.Cluster)
		}
		golden.File(t, "testdata/restore/"+s.Name+".txt", out.String())
	}
}

func TestTheLossOfARestoreIsNotGuessed(t *testing.T) {
	o := situation(t, "serving")
	for want, step := range map[string]struct {
		change func(*view.Objects, *catalog.Plan)
		target leases.RestoreTarget
	}{
		"nothing that is known": {func(_ *view.Objects, p *catalog.Plan) { p.Revision, p.Reach = 0, 48300 }, leases.RestoreTarget{}},
		"all that the cluster has now and lineage 00000002-51aa07be does not": {func(_ *view.Objects, p *catalog.Plan) { p.Full.Lineage = secondLineage },
			leases.RestoreTarget{Revision: 48000}},
		"unknown: the present lineage": {func(o *view.Objects, _ *catalog.Plan) { o.Leases = nil },
			leases.RestoreTarget{Revision: 48000}},
		"restore demo --time 2026-11-24T02:50:00Z --lineage 00000001-9f31c2d4 --apply": {func(_ *view.Objects, p *catalog.Plan) {
			p.Notes = []string{"the backups end with revision 7"}
		}, leases.RestoreTarget{Time: situations.Now.Add(-10 * time.Minute), Lineage: string(firstLineage)}},
	} {
		one, plan := *o.Cluster.DeepCopy(), aPlan()
		objects := view.Objects{Cluster: one, Leases: slices.Clone(o.Leases)}
		step.change(&objects, &plan)
		var out strings.Builder
		newPage(&out, situations.Now).restoring(selection("").restoringOf(objects, view.Of(objects, situations.Now), step.target, "demo-bqdq7", plan), one)
		contains(t, out.String(), want)
		if n := len(plan.Notes); n > 0 {
			contains(t, out.String(), "Note         The backups end with revision 7.")
		}
	}
}

// saved puts objects with the names of backups into the store. A plan reads no more of them.
func saved(t *testing.T, objects store.Store) {
	t.Helper()
	at := situations.Now.Add(-3 * time.Hour)
	for _, f := range []catalog.Formation{
		{Lineage: firstLineage, ClusterID: "c", Created: situations.Now.Add(-48 * time.Hour)},
		{Lineage: secondLineage, Parent: firstLineage, Fork: 47950, ClusterID: "d", Created: situations.Now.Add(-time.Hour)},
	} {
		if err := catalog.WriteBootstrap(t.Context(), objects, "default/demo", f); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{
		catalog.FullKey("default/demo", firstLineage, 47900, at), catalog.DeltaKey("default/demo", firstLineage, 47901, 48102, at.Add(time.Hour)),
		catalog.FullKey("default/demo", secondLineage, 1_000_047_950, situations.Now.Add(-time.Hour)),
	} {
		if _, err := objects.Put(t.Context(), key, strings.NewReader("12345"), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// planning is a stage whose agents read a store with backups.
func planning(t *testing.T) (*stage, *node) {
	t.Helper()
	s := newStage(t, env.APIServer(t))
	n, kubelet := newNode(s)
	s.put(onNode(situation(t, "serving"), kubelet))
	b, objects := directoryBackup(t)
	saved(t, objects)
	n.program = agentOf(t, b)
	return s, n
}

// TestRestorePlanChangesNothing: a restore is planned by an agent and changes nothing.
func TestRestorePlanChangesNothing(t *testing.T) {
	s, n := planning(t)
	before := s.read().GetResourceVersion()
	out, errs, code := s.run("restore", "demo", "--revision", "48000")
	if contains(t, out, "Nothing was changed", "lineage "+string(firstLineage)+", up to revision 48,000",
		"10 B: the full backup of 2026-11-24T00:00:00Z, and 1 delta backup", "at least 211 revisions: those after 48,000",
		"      revision: 48000\n", "restore demo --revision 48000 --apply"); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	// A parent of the newest lineage is planned too, and a time in any zone.
	out, errs, code = s.run("restore", "demo", "--time", "2026-11-24T02:30:00+01:00", "-o", "json")
	var r restoring
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Plan.Full.Lineage != firstLineage ||
		r.Request.Time.UTC().Format(time.RFC3339) != "2026-11-24T01:30:00Z" || r.Bytes == 0 {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	for want, step := range map[string]struct {
		args []string
		code int
	}{
		"lineage 00000001-9f31c2d4 does not hold revision 99999; restorable: ":          {[]string{"--revision", "99999"}, 2},
		"no such backup: lineage 00000009-aaaa":                                         {[]string{"--latest", "--lineage", "00000009-aaaa"}, 2},
		"--lineage is \"newest\", want that of a backup":                                {[]string{"--latest", "--lineage", "newest"}, 1},
		"none of the others can be; [revision time] were all set":                       {[]string{"--revision", "5", "--time", "2026-11-24T02:30:00Z"}, 1},
		"--time is 2026-11-25T00:00:00Z, and the clock of this computer says 2026-11-":  {[]string{"--time", "2026-11-25T00:00:00Z"}, 1},
		"has no time zone. Write":                                                       {[]string{"--time", "2026-11-24 02:50"}, 1},
		"want a time with a time zone":                                                  {[]string{"--time", "yesterday"}, 1},
		"want whole seconds":                                                            {[]string{"--time", "2026-11-24T02:50:00.5Z"}, 1},
		"Set --revision to 1 or more":                                                   {[]string{"--revision", "0"}, 1},
		"at least one of the flags in the group [time revision latest cancel] is requi": {nil, 1},
		"if any flags in the group [apply to-new cancel]":                               {[]string{"--latest", "--apply", "--to-new", "copy"}, 1},
		"--output is \"wide\"":                                                          {[]string{"--latest", "-o", "wide"}, 1},
	} {
		if _, errs, code := s.run(append([]string{"restore", "demo"}, step.args...)...); code != step.code || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", step.args, code, errs)
		}
	}
	if after := s.read().GetResourceVersion(); after != before {
		t.Error("the EtcdCluster was written")
	}
	n.program = func(_ []string, _, stderr io.Writer) int {
		_, _ = io.WriteString(stderr, "agent backup plan: no such bucket\n")
		return 1
	}
	if _, errs, code := s.run("restore", "demo", "--latest", "--apply"); code != 1 ||
		!strings.Contains(errs, "no such bucket. Nothing was changed") || s.read().GetResourceVersion() != before {
		t.Errorf("a store that cannot be read: exit code %d: %s", code, errs)
	}
}

// plays writes what druid answers to a request for a kind of target.
func (s *stage) plays(ctx context.Context, kind string, recovery v1alpha1.RecoveryStatus) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&recovery)
	if err != nil {
		return err
	}
	clusters := s.dynamic.Resource(clusterResource).Namespace(s.namespace)
	s.eventually(func() bool {
		object, err := clusters.Get(ctx, "demo", metav1.GetOptions{})
		if err != nil {
			return false
		}
		if _, requested, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "recovery", "restore", kind); !requested {
			return false
		}
		if unstructured.SetNestedMap(object.Object, raw, "status", "recovery") != nil {
			return false
		}
		_, err = clusters.UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err == nil
	})
	return nil
}

// requested is spec.recovery.restore.
func (s *stage) requested() map[string]any {
	restore, _, _ := unstructured.NestedMap(s.read().Object, "spec", "recovery", "restore")
	return restore
}

func TestARestoreIsRequestedAndItsPlanIsShown(t *testing.T) {
	s, _ := planning(t)
	proposed := v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryProposed, Message: "The restore needs your approval.", Approve: situations.Approve,
		Plan: &v1alpha1.RecoveryPlan{
			Hash: situations.Hash, Source: v1alpha1.RecoveryFromRestore, Target: "revision 48000", Backup: "00000001-9f31c2d4@48000", Full: "f", Deltas: 1,
			LostRevisions: new(int64(211)),
		}}
	var druid errgroup.Group
	druid.Go(func() error { return s.plays(t.Context(), "revision", proposed) })
	out, errs, code := s.run("restore", "demo", "--revision", "48000", "--apply")
	if err := druid.Wait(); err != nil {
		t.Fatal(err)
	}
	if contains(t, out, "You requested to restore revision 48000 in EtcdCluster "+s.namespace+"/demo", "Recovery: Proposed",
		"at least 211 revisions", "recover demo --approve "+situations.Hash); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if got := s.requested(); len(got) != 1 || got["revision"] != int64(48000) {
		t.Errorf("it requests %v", got)
	}
	_, errs, code = s.run("restore", "demo", "--revision", "48000", "--apply")
	if contains(t, errs, "requests this already", "recover demo", "restore demo --cancel"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	// Another target replaces the one before it. The plan of that one is no answer.
	out, errs, code = s.run("restore", "demo", "--time", "2026-11-24T01:30:00Z", "--lineage", string(firstLineage), "--apply", "--timeout", "1ms")
	if contains(t, out, "It replaces the request for revision 48000.", "druid has no plan yet. See it later"); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if got := s.requested(); len(got) != 2 || got["time"] != "2026-11-24T01:30:00Z" || got["lineage"] != string(firstLineage) {
		t.Errorf("it requests %v", got)
	}
	druid.Go(func() error {
		return s.plays(t.Context(), "latest", v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryRefused,
			Message: "druid cannot restore the newest state: the store is gone."})
	})
	out, errs, code = s.run("restore", "demo", "--latest", "--apply")
	if err := druid.Wait(); err != nil {
		t.Fatal(err)
	}
	if contains(t, out+errs, "Recovery: Refused", "the store is gone", "druid refuses", "restore demo --cancel"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	out, errs, code = s.run("restore", "demo", "--cancel")
	if contains(t, out, "You withdrew the restore", "continues with its present data"); code != 0 || s.requested() != nil {
		t.Errorf("exit code %d: %s, %v", code, errs, s.requested())
	}
	if _, errs, code = s.run("restore", "demo", "--cancel"); code != 1 || !strings.Contains(errs, "requests no restore") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestARestoreUnderWayIsNotReplaced(t *testing.T) {
	c := situation(t, "serving").Cluster
	target := leases.RestoreTarget{Revision: 48000}
	if err := selection("").requestable(c, target); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []v1alpha1.RecoveryPhase{v1alpha1.RecoverySaving, v1alpha1.RecoveryPreparing, v1alpha1.RecoveryExecuting} {
		c.Status.Recovery = &v1alpha1.RecoveryStatus{Phase: phase}
		if err := selection("").requestable(c, target); err == nil || !strings.Contains(err.Error(), "under way, in the phase "+string(phase)) {
			t.Errorf("%s: %v", phase, err)
		}
		if got := selection("").blockers(c, view.Cluster{}); len(got) != 1 || !strings.Contains(got[0], string(phase)) {
			t.Errorf("%s: %v", phase, got)
		}
	}
}

// An answer to an earlier request must not be shown as that to the present one.
func TestOnlyTheAnswerToTheRequestCounts(t *testing.T) {
	target := leases.RestoreTarget{Revision: 48000}
	refused := &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryRefused, Message: "druid cannot restore revision 1: no."}
	plan := func(target string, source v1alpha1.RecoverySource) *v1alpha1.RecoveryStatus {
		return &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryProposed, Plan: &v1alpha1.RecoveryPlan{Source: source, Target: target}}
	}
	for name, test := range map[string]struct {
		before, now *v1alpha1.RecoveryStatus
		want        bool
	}{
		"no status":                 {nil, nil, false},
		"the plan":                  {nil, plan("revision 48000", v1alpha1.RecoveryFromRestore), true},
		"a plan for another target": {nil, plan("revision 1", v1alpha1.RecoveryFromRestore), false},
		"a plan of a recovery":      {nil, plan("revision 48000", v1alpha1.RecoveryFromSurvivor), false},
		"the refusal of before":     {refused, refused, false},
		"a new refusal":             {nil, refused, true},
		"the same refusal again": {&v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryRefused, Message: "druid cannot restore revision 48000: no."},
			&v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryRefused, Message: "druid cannot restore revision 48000: no."}, true},
		"planning": {nil, &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryPlanning}, false},
	} {
		if got := answersTo(test.before, test.now, target); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestRestoreRequestNeedsNoExec: a restore can be requested without a right to run commands.
// What a restore needs, and no more.
func TestRestoreRequestNeedsNoExec(t *testing.T) {
	s, _ := planning(t)
	s.grant("operator", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"get", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	var errs string
	s.eventually(func() bool {
		_, errs, _ = s.run("restore", "demo", "--latest", "--as", "operator")
		return strings.Contains(errs, "pods/exec")
	})
	contains(t, errs, "forbidden", "Nothing was changed")
	out, errs, code := s.run("restore", "demo", "--latest", "--apply", "--timeout", "1ms", "--as", "operator")
	if contains(t, out, "You requested to restore the newest state"); code != 0 || fmt.Sprint(s.requested()) != "map[latest:true]" {
		t.Errorf("exit code %d, %v: %s", code, s.requested(), errs)
	}
	s.grant("viewer", viewing...)
	s.eventually(func() bool {
		_, errs, code = s.run("restore", "demo", "--cancel", "--as", "viewer")
		return strings.Contains(errs, "cannot patch")
	})
	if s.requested() == nil {
		t.Error("a viewer withdrew the restore")
	}
}

// An agent can need minutes for its plan, and others write meanwhile.
func TestARestoreIsCheckedAgainAfterThePlan(t *testing.T) {
	s, n := planning(t)
	agent := n.program
	meanwhile := func(change func(*unstructured.Unstructured) error) {
		n.program = func(command []string, out, errs io.Writer) int {
			object := s.read()
			if err := change(object); err != nil {
				t.Error(err)
			}
			clusters := s.dynamic.Resource(clusterResource).Namespace(s.namespace)
			if _, err := clusters.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
			return agent(command, out, errs)
		}
	}
	meanwhile(func(object *unstructured.Unstructured) error {
		return unstructured.SetNestedField(object.Object, int64(48050), "spec", "recovery", "restore", "revision")
	})
	out, errs, code := s.run("restore", "demo", "--revision", "48000", "--apply", "--timeout", "1ms")
	if contains(t, out, "It replaces the request for revision 48050."); code != 0 || s.requested()["revision"] != int64(48000) {
		t.Errorf("exit code %d: %s, %v", code, errs, s.requested())
	}
	meanwhile(func(object *unstructured.Unstructured) error {
		return unstructured.SetNestedField(object.Object, int64(48050), "spec", "recovery", "restore", "revision")
	})
	_, errs, code = s.run("restore", "demo", "--revision", "48050", "--apply", "--timeout", "1ms")
	if contains(t, errs, "requests this already"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
