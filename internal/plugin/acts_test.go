package plugin

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

func TestWhyAndRecoverOfEachSituation(t *testing.T) {
	for _, s := range situations.All() {
		var out bytes.Buffer
		p := newPage(&out, situations.Now)
		p.why(view.Of(s.Objects, situations.Now))
		golden.File(t, "testdata/why/"+s.Name+".txt", out.String())
		if s.Objects.Cluster.Status.Recovery == nil && s.Name != "serving" {
			continue
		}
		out.Reset()
		p.recovery(s.Objects.Cluster)
		golden.File(t, "testdata/recover/"+s.Name+".txt", out.String())
	}
}

func TestThePageOfARestoreWithoutAPlan(t *testing.T) {
	for name, test := range map[string]struct {
		requested bool
		phase     v1alpha1.RecoveryPhase
		reason    string
		page      string
	}{
		"planning":                  {true, v1alpha1.RecoveryPlanning, "", inPlacePage},
		"refused":                   {true, v1alpha1.RecoveryRefused, "", inPlacePage},
		"a lost quorum after it":    {true, v1alpha1.RecoveryRefused, v1alpha1.ReasonRecoveryRefused, recoveryPage},
		"waiting for the quorum":    {true, v1alpha1.RecoveryWaiting, "", recoveryPage},
		"refused without a request": {false, v1alpha1.RecoveryRefused, "", recoveryPage},
	} {
		c := situation(t, "serving").Cluster
		c.Status.Recovery = &v1alpha1.RecoveryStatus{Phase: test.phase}
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Reason: test.reason})
		if test.requested {
			c.Spec.Recovery = &v1alpha1.RecoverySpec{Restore: &v1alpha1.RestoreInPlace{}}
		}
		var out bytes.Buffer
		newPage(&out, situations.Now).recovery(c)
		if !strings.HasSuffix(out.String(), test.page+"\n") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

func TestARestoreThatUndoesNothingIsNotBad(t *testing.T) {
	var out bytes.Buffer
	p := &page{w: &out, now: situations.Now, color: true}
	p.plan(v1alpha1.RecoveryPlan{Source: v1alpha1.RecoveryFromRestore})
	contains(t, out.String(), "nothing, or not comparable\n")
	out.Reset()
	p.plan(v1alpha1.RecoveryPlan{Source: v1alpha1.RecoveryFromRestore, LostRevisions: new(int64(3))})
	if strings.Contains(out.String(), "at least 3 revisions\n") {
		t.Errorf("a loss is not marked: %q", out.String())
	}
}

// read returns the EtcdCluster demo.
func (s *stage) read() *unstructured.Unstructured {
	s.Helper()
	object, err := s.dynamic.Resource(clusterResource).Namespace(s.namespace).Get(s.Context(), "demo", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return object
}

func TestOnlyThePlanThatWasReadIsApproved(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "quorum-lost-with-a-plan"))
	before := s.read()
	out, _, code := s.run("recover", "demo")
	if contains(t, out, "Recovery: Proposed", "Gives up", "at most 3 revisions and 15 seconds", "--approve "+situations.Hash); code != 0 {
		t.Errorf("exit code %d", code)
	}
	_, errs, code := s.run("recover", "demo", "--approve", "of another plan")
	if contains(t, errs, situations.Hash+" now", "Nothing was changed"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, errs, code := s.run("recover", "demo", "--approve", ""); code != 1 || !strings.Contains(errs, "Nothing was changed") {
		t.Errorf("an empty hash: %d, %s", code, errs)
	}
	if after := s.read(); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the EtcdCluster was written: %v", after)
	}
	if out, errs, code = s.run("recover", "demo", "--approve", situations.Hash); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	contains(t, out, "You approved plan "+situations.Hash)
	after := s.read()
	if got := after.GetAnnotations()[v1alpha1.RecoverAnnotation]; got != situations.Hash || after.GetGeneration() != before.GetGeneration() {
		t.Errorf("the annotation is %q, generation %d", got, after.GetGeneration())
	}
}

// TestApproveRefusesUnneededApproval: a plan that needs no approval is not approved.
func TestApproveRefusesUnneededApproval(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.EtcdCluster){
		"druid has no plan":           func(c *v1alpha1.EtcdCluster) { c.Status.Recovery.Plan = nil },
		"druid has no plan. Nothing":  func(c *v1alpha1.EtcdCluster) { c.Status.Recovery = nil },
		"the plan needs no approval":  func(c *v1alpha1.EtcdCluster) { c.Status.Recovery.Approve = "" },
		"another version of druid wa": func(c *v1alpha1.EtcdCluster) { c.Status.Recovery.Approve = "kubectl approve demo" },
	} {
		o := situation(t, "quorum-lost-with-a-plan")
		if err := selection("").approvable(o.Cluster, situations.Hash); err != nil {
			t.Fatal(err)
		}
		change(&o.Cluster)
		if err := selection("").approvable(o.Cluster, situations.Hash); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	replicas := func() int64 {
		n, _, err := unstructured.NestedInt64(s.read().Object, "spec", "replicas")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		args []string
		code int
		says string
		left int64
	}{
		{[]string{"resume", "demo", "--replicas", "3"}, 1, "so it is not paused", 3},
		{[]string{"pause", "demo"}, 0, "was 3 and is 0", 0},
		{[]string{"pause", "demo"}, 1, "is 0 already", 0},
		{[]string{"resume", "demo"}, 1, "required flag(s) \"replicas\" not set", 0},
		{[]string{"resume", "demo", "--replicas", "0"}, 1, "want an odd number", 0},
		{[]string{"resume", "demo", "--replicas", "4"}, 1, "odd", 0},
		{[]string{"resume", "demo", "--replicas", "5"}, 0, "was 0 and is 5", 5},
	} {
		out, errs, code := s.run(step.args...)
		if contains(t, out+errs, step.says); code != step.code || replicas() != step.left {
			t.Errorf("%v: exit code %d, replicas %d", step.args, code, replicas())
		}
	}
}

// finish plays druid: it takes the EtcdSnapshot that appears through its phases.
func (s *stage) finish(ctx context.Context, phases ...v1alpha1.EtcdSnapshotStatus) error {
	snapshots := s.dynamic.Resource(snapshotResource).Namespace(s.namespace)
	done := func() bool {
		list, err := snapshots.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		i := slices.IndexFunc(list.Items, func(o unstructured.Unstructured) bool {
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			return phase != string(v1alpha1.SnapshotSucceeded) && phase != string(v1alpha1.SnapshotFailed)
		})
		if i < 0 {
			return false
		}
		for _, status := range phases {
			object := map[string]any{"phase": string(status.Phase), "message": status.Message}
			if a := status.Artifact; a != nil {
				object["artifact"] = map[string]any{"key": a.Key, "uri": a.URI, "revision": a.Revision, "size": a.Size}
			}
			list.Items[i].Object["status"] = object
			updated, err := snapshots.UpdateStatus(ctx, &list.Items[i], metav1.UpdateOptions{})
			if err != nil {
				return false
			}
			list.Items[i] = *updated
		}
		return true
	}
	s.eventually(done)
	return nil
}

func TestSnapshotIsRequestedAndAwaited(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	out, errs, code := s.run("snapshot", "demo", "--final", "--verify", "--type", "Full")
	if contains(t, out, "EtcdSnapshot "+s.namespace+"/demo-", "created"); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	list, err := s.dynamic.Resource(snapshotResource).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d EtcdSnapshots, %v", len(list.Items), err)
	}
	if spec := list.Items[0].Object["spec"].(map[string]any); spec["final"] != true || spec["verify"] != true || spec["type"] != "Full" ||
		spec["clusterRef"].(map[string]any)["name"] != "demo" {
		t.Errorf("it requests %v", spec)
	}
	if err := s.finish(t.Context(), v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct {
		status v1alpha1.EtcdSnapshotStatus
		code   int
		says   string
	}{
		{v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded,
			Artifact: &v1alpha1.SnapshotArtifact{Key: "k", URI: "s3://backups/k", Revision: 48211, Size: 1 << 20}}, 0, "revision 48,211, 1.0 MiB\n  s3://backups/k"},
		{v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotFailed, Message: "the store has no space left"}, 1, "failed: the store has no space left"},
	} {
		var work errgroup.Group
		work.Go(func() error { return s.finish(t.Context(), end.status) })
		out, errs, code := s.run("snapshot", "demo", "--wait")
		if err := work.Wait(); err != nil {
			t.Fatal(err)
		}
		if contains(t, out+errs, end.says); code != end.code {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
	}
	_, errs, code = s.run("snapshot", "demo", "--wait", "--timeout", "1ms")
	if contains(t, errs, "It continues without this command"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, errs, code = s.run("snapshot", "demo", "--type", "Half"); code != 1 || !strings.Contains(errs, "Full") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestSnapshotRefused: a snapshot of a cluster without backups is refused, and one that no agent can make.
func TestSnapshotRefused(t *testing.T) {
	for name, says := range map[string]string{
		"without-backup": "has no spec.backup", "paused": "is paused, so no agent can make a backup. Resume it first: kubectl druid",
	} {
		s := newStage(t, env.APIServer(t))
		s.put(situation(t, name))
		_, errs, code := s.run("snapshot", "demo")
		if contains(t, errs, says); code != 1 {
			t.Errorf("%s: exit code %d", name, code)
		}
		list, err := s.dynamic.Resource(snapshotResource).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			t.Errorf("%s: %d EtcdSnapshots, %v", name, len(list.Items), err)
		}
	}
}

// TestEtcdctlNeedsAMember: without a member that serves, etcdctl says what to do.
func TestEtcdctlNeedsAMember(t *testing.T) {
	for name, says := range map[string]string{
		"paused":                  "it is paused, so no etcd runs. Resume it first: kubectl druid -n default resume demo --replicas",
		"quorum-lost-with-a-plan": "no member is ready. See what they wait for: kubectl druid -n default status demo. Or choose one",
	} {
		o := situation(t, name)
		v := view.Of(o, situations.Now)
		for i := range v.Members {
			v.Members[i].State = string(v1alpha1.MemberNotReady)
		}
		if _, err := selection("").choose(o.Cluster, v, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", name, err, says)
		}
	}
}

func TestAViewerChangesNothing(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "quorum-lost-with-a-plan"))
	s.grant("viewer", viewing...)
	s.eventually(func() bool {
		_, errs, code := s.run("recover", "demo", "--as", "viewer")
		return code == 0 && errs == ""
	})
	before := s.read()
	for _, args := range [][]string{{"recover", "demo", "--approve", situations.Hash}, {"pause", "demo"}, {"snapshot", "demo"}} {
		_, errs, code := s.run(append(args, "--as", "viewer")...)
		if contains(t, errs, "forbidden", `User "viewer" cannot`); code != 1 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if after := s.read(); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Error("the EtcdCluster was written")
	}
	// What an approval needs, and no more.
	s.grant("approver", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"get", "patch"}})
	s.eventually(func() bool {
		_, _, code := s.run("recover", "demo", "--approve", situations.Hash, "--as", "approver")
		return code == 0
	})
}
