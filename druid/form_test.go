package druid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// TestNamesRecordedBeforeUse: names are recorded before anything bears them.
func TestNamesRecordedBeforeUse(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("demo", 3)
	names := s.members("demo", 3)

	posts := s.calls.matching("POST", "/namespaces/"+s.namespace+"/")
	if len(posts) == 0 || !strings.HasSuffix(posts[0], "/leases") {
		t.Errorf("the first object created was by %v, want the record Lease", posts)
	}
	at := func(part string) int {
		return slices.IndexFunc(posts, func(call string) bool { return strings.HasSuffix(call, part) })
	}
	if claim, pod := at("/persistentvolumeclaims"), at("/pods"); claim > pod {
		t.Errorf("a Pod was created before every claim: %v", posts)
	}
	if got := len(s.calls.creations("/pods")); got != 3 {
		t.Errorf("%d Pods were created, want 3", got)
	}
	record, err := s.record("demo")
	if err != nil {
		t.Fatal(err)
	}
	want := leases.Record{Phase: leases.PhaseForming, Epoch: 1, Seed: names[0], Nonce: record.Nonce, Members: names}
	if diff := cmp.Diff(want, record); diff != "" || record.Nonce == "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForming)
}

func TestFormedClusterIsServedThenLeftAlone(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("demo", 3)
	names := s.members("demo", 3)
	s.form("demo", names)

	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonQuorate)
	s.condition("demo", v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	s.eventually("labels and budget", func() error {
		for _, name := range names {
			var pod corev1.Pod
			if err := s.fetch(name, &pod); err != nil {
				return err
			}
			if pod.Labels[manifests.LabelServing] != manifests.LabelTrue || pod.Labels[manifests.LabelVoter] != manifests.LabelTrue {
				return fmt.Errorf("Pod %s bears %v", name, pod.Labels)
			}
		}
		var budget policyv1.PodDisruptionBudget
		if err := s.fetch(manifests.DisruptionBudgetName("demo"), &budget); err != nil {
			return err
		}
		if budget.Spec.MinAvailable.IntVal != 2 {
			return fmt.Errorf("minAvailable is %s, want 2", budget.Spec.MinAvailable)
		}
		return nil
	})
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	if cluster.Status.ClusterID != leases.FormatID(clusterID) || cluster.Status.ReadyReplicas != 3 || cluster.Status.ClusterSize != 3 {
		t.Errorf("status is %+v", cluster.Status)
	}

	// A steady cluster renews its Leases, and costs druid no call at all.
	// Renewals that cost anything would do so in every round; what druid still had to do for the formation falls into one.
	s.eventually("renew at no cost", func() error {
		before := s.calls.count()
		for range 5 {
			for i, name := range names {
				s.agent("demo", name, uint64(i+1), map[bool]leases.Role{true: leases.RoleLeader, false: leases.RoleMember}[i == 0])
			}
		}
		for _, name := range names {
			s.caughtUp(name, &coordinationv1.Lease{})
		}
		if err := s.rests(); err != nil || s.calls.count() != before {
			return fmt.Errorf("renewals cost druid %d calls: %v", s.calls.count()-before, s.calls.since(before))
		}
		return nil
	})
}

func TestEventsReportTheStory(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	want := []string{v1alpha1.EventRecordCreated + " ", v1alpha1.EventClusterFormed + " "}
	for _, name := range names {
		want = append(want, v1alpha1.EventPodCreated+" "+name, v1alpha1.EventMemberReady+" "+name)
	}
	slices.Sort(want)
	s.eventually("report the story", func() error {
		var list eventsv1.EventList
		if err := s.List(t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		var got []string
		for _, e := range list.Items {
			if e.Regarding.Kind != "EtcdCluster" || e.Type != corev1.EventTypeNormal {
				continue
			}
			member := ""
			if e.Related != nil {
				member = e.Related.Name
			}
			got = append(got, e.Reason+" "+member)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("events (-want +got):\n%s", diff)
		}
		return nil
	})
}

// What an agent found out about the backups is reported as a condition and an Event, for as long as there are backups.
func TestBackupVerifiedFollowsTheLease(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.routes(s.whole(1)...)
	s.patchCluster(backupsOn)
	s.eventually("prepare for backups", func() error { return s.snapshotLeases(true) })
	is := func(status metav1.ConditionStatus, reason, words string) {
		s.Helper()
		s.condition("demo", v1alpha1.ConditionBackupVerified, status, reason)
		s.words(v1alpha1.ConditionBackupVerified, []string{words}, nil)
	}
	is(metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not verified yet")
	now := time.Now()
	inform := func(v leases.Verification) {
		s.Helper()
		v.Lineage, v.At, v.Tried = "00000001-a", now, now
		s.eventually("report a verification", func() error { return s.store("demo").ReportVerification(s.Context(), v) })
	}
	s.eventually("report a backup", func() error {
		return s.store("demo").RenewBackup(s.Context(), full, leases.BackupPatch{
			Backup: leases.Backup{Revision: 7, Lineage: "00000001-a", Object: "some", Size: 1}, RenewTime: &now, Duration: day,
		})
	})
	inform(leases.Verification{Verdict: leases.VerdictVerified, Full: "some", VerifiedFull: "some", Revision: 7})
	is(metav1.ConditionTrue, v1alpha1.ReasonVerificationSucceeded, "equal to that of etcd")
	inform(leases.Verification{Verdict: leases.VerdictBroken, Full: "some", VerifiedFull: "older", Broken: "some", Trouble: "full some is damaged"})
	is(metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed, "full some is damaged")
	s.reported(v1alpha1.ReasonVerificationFailed, "")
	s.patchCluster(backupsOff)
	s.eventually("take the condition away", func() error {
		var c v1alpha1.EtcdCluster
		err := s.fetch("demo", &c)
		if err == nil && meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionBackupVerified) != nil {
			err = errors.New("it is there")
		}
		return err
	})
}

// blind is a cache that has read only EtcdClusters. No real server can be made to produce one.
type blind struct{ client.Reader }

func (b blind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, ok := object.(*v1alpha1.EtcdCluster); ok {
		return b.Reader.Get(ctx, key, object, options...)
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (blind) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// reconciler without a manager: what it reads from caches, it reads from cached.
func (s *stage) reconciler(cached client.Reader) *Reconciler {
	s.Helper()
	coordination, err := coordinationclient.NewForConfig(s.config)
	if err != nil {
		s.Fatal(err)
	}
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		s.Fatal(err)
	}
	of := func(cluster string) client.ListOption { return client.MatchingLabels{leases.LabelCluster: cluster} }
	return &Reconciler{
		client: s.Client, cached: source{cached, of}, live: source{s.Client, of}, leases: coordination,
		manifests: manifests.Options{AgentImage: agentImage, Reloadable: config.DefaultReloadable()},
		memory:    newMemory(), recorder: events.NewFakeRecorder(100), metrics: metrics,
		log: slog.New(slog.DiscardHandler), now: time.Now, grace: DefaultOptions().NotReadyGracePeriod,
		acknowledgeTimeout: DefaultOptions().acknowledgeTimeout(), leaseTimeout: DefaultOptions().leaseTimeout(),
		renewInterval: DefaultOptions().AgentRenewInterval,
		draw:          func() string { return "xxxxx" },
	}
}

func (s *stage) reconcile(r *Reconciler) error {
	_, err := r.Reconcile(s.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: s.namespace, Name: "demo"}})
	return err
}

func TestBlindDruidBringsNoClusterToLifeAgain(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	stop()
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status = v1alpha1.EtcdClusterStatus{}
	if err := s.Status().Update(t.Context(), &cluster); err != nil {
		t.Fatal(err)
	}
	s.deleteLease(leases.RecordName("demo"))
	for _, name := range names {
		s.deleteLease(name)
	}

	// Neither status nor Lease is left, only Pods and claims, and the caches do not know of those.
	if err := s.reconcile(s.reconciler(blind{s.Client})); err != nil {
		t.Fatal(err)
	}
	if record, err := s.record("demo"); err == nil {
		t.Fatalf("a record was made by empty caches: %+v", record)
	}
	// With a live read, it makes one that lets no member form a raft group.
	if err := s.reconcile(s.reconciler(s.Client)); err != nil {
		t.Fatal(err)
	}
	record, err := s.record("demo")
	if err != nil || record.Phase != leases.PhaseFormed || len(record.Members) != 3 || record.Nonce != "" {
		t.Errorf("record is %+v, %v; want Formed, with all three names and no nonce", record, err)
	}
}

func TestPodIsDeletedByLiveReadsAlone(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	stop()
	claim := &corev1.PersistentVolumeClaim{}
	if err := s.fetch(names[0], claim); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(s.Client)
	o, err := r.observe(t.Context(), r.cached, &cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	step := stepFor(t, o, policy.DeletePod)

	// Another member goes down, and the plan is older than that.
	s.kubelet(names[1], false)
	if err := r.take(t.Context(), o, step); err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := s.fetch(names[0], &pod); err != nil || pod.DeletionTimestamp != nil {
		t.Fatalf("a Pod was deleted that the cluster cannot spare: %v %v", pod.DeletionTimestamp, err)
	}
	s.kubelet(names[1], true)
	if err := r.take(t.Context(), o, step); err != nil {
		t.Fatal(err)
	}
	if err := s.fetch(names[0], &pod); err != nil || pod.DeletionTimestamp == nil {
		t.Errorf("the Pod that can be spared was not deleted: %v", err)
	}
}

func stepFor(t *testing.T, o *observation, kind policy.Kind) policy.Step {
	t.Helper()
	for _, step := range policy.Steps(o.evaluation) {
		if step.Kind == kind {
			return step
		}
	}
	t.Fatalf("no step %s is planned: %+v", kind, policy.Steps(o.evaluation))
	return policy.Step{}
}

func TestOldPlansLoseTheirCompareAndSet(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(1)
	stop()
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(s.Client)
	o, err := r.observe(t.Context(), r.cached, &cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.agent("demo", names[0], 1, leases.RoleLeader) // the Lease changes after the plan
	err = r.markLease(t.Context(), o, policy.Step{Member: names[0], PodUID: "older", ClaimUID: "older"})
	if !apierrors.IsConflict(err) || control.Passing(err) != control.StaleCachePause {
		t.Errorf("mark a Lease that changed: got %v, want a conflict", err)
	}
	err = r.labelPod(t.Context(), o, policy.Step{Member: names[0], PodUID: "older", Serving: new(false)})
	if !apierrors.IsConflict(err) {
		t.Errorf("label a Pod of another UID: got %v, want a conflict", err)
	}
	var lease coordinationv1.Lease
	if err := s.fetch(names[0], &lease); err != nil || lease.Annotations[leases.AnnotationPodUID] == "older" {
		t.Errorf("the Lease names the older Pod: %v", err)
	}
}
