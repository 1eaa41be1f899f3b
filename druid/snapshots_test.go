package druid

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/snapshot"
	"github.com/etcd-druid/druid/leases"
)

// backedUp is a cluster whose snapshot Leases are there.
func backedUp(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.startDruid()
	s.whole(1)
	s.patchCluster(backupsOn)
	s.eventually("prepare for backups", func() error { return s.snapshotLeases(true) })
	return s
}

// TestSnapshotsOrderedOneByOne: EtcdSnapshots are ordered one by one and reported.
func TestSnapshotsOrderedOneByOne(t *testing.T) {
	s := backedUp(t)
	first := s.snapshot("a", v1alpha1.SnapshotFull, nil)
	s.orders(full, first)
	second, other := s.snapshot("b", v1alpha1.SnapshotFull, nil), s.snapshot("c", v1alpha1.SnapshotDelta, nil)
	s.orders(delta, other)
	s.becomes("b", v1alpha1.SnapshotPending)
	s.replies(full, leases.SnapshotAnswer{UID: first, Phase: leases.SnapshotRunning})
	running := s.becomes("a", v1alpha1.SnapshotRunning)
	if running.StartedAt == nil || running.FinishedAt != nil {
		t.Errorf("running: %+v", running)
	}
	s.concludedAs(running)
	if err := s.ordered(full, first); err != nil {
		t.Error(err)
	}
	s.replies(full, done7(first))
	got := s.becomes("a", v1alpha1.SnapshotSucceeded)
	want := v1alpha1.EtcdSnapshotStatus{
		Phase: v1alpha1.SnapshotSucceeded, Message: "The backup is saved.", StartedAt: got.StartedAt, FinishedAt: got.FinishedAt,
		Artifact: &v1alpha1.SnapshotArtifact{Key: "demo/full", URI: "s3://b/demo/full", Revision: 7, Size: 9, SHA256: "ab", StorageVersion: "3.6"},
	}
	s.concludedAs(got)
	got.Conditions = nil
	if diff := cmp.Diff(want, got); diff != "" || got.FinishedAt.Sub(got.StartedAt.Time) != time.Minute {
		t.Errorf("(-want +got)\n%s", diff)
	}
	s.orders(full, second)
	s.replies(full, leases.SnapshotAnswer{UID: first, Phase: leases.SnapshotFailed, Error: "of another order"})
	s.replies(full, leases.SnapshotAnswer{UID: second, Phase: leases.SnapshotFailed, Error: "access denied"})
	status := s.becomes("b", v1alpha1.SnapshotFailed)
	if status.Message != "Access denied. Resolve this, and create another EtcdSnapshot." || status.Artifact != nil {
		t.Errorf("failed: %+v", status)
	}
	s.concludedAs(status)
	s.orders(full, "")
	s.replies(delta, leases.SnapshotAnswer{UID: other, Phase: leases.SnapshotSucceeded, Revision: 7})
	if status := s.becomes("c", v1alpha1.SnapshotSucceeded); status.Artifact.Key != "" || status.Artifact.Revision != 7 {
		t.Errorf("nothing was left to save: %+v", status)
	}
	s.orders(delta, "")
}

func TestAFinalEtcdSnapshotIsOrderedAsOne(t *testing.T) {
	s := backedUp(t)
	snapshot := etcdSnapshot(s.namespace, "last", v1alpha1.SnapshotFull)
	snapshot.Spec.Final = true
	uid := s.asks(snapshot)
	s.orders(full, uid)
	order, err := s.store("demo").SnapshotOrder(t.Context(), full)
	if err != nil || order.Kind != leases.SnapshotFinal {
		t.Fatalf("ordered %+v, %v", order, err)
	}
	next := s.snapshot("next", v1alpha1.SnapshotFull, nil)
	answer := done7(uid)
	s.replies(full, answer) // as an agent does that knows of no kinds
	answer.Kind = leases.SnapshotFinal
	s.replies(full, answer)
	s.becomes("last", v1alpha1.SnapshotSucceeded)
	s.orders(full, next)
	if order, err := s.store("demo").SnapshotOrder(t.Context(), full); err != nil || order.Kind != "" {
		t.Errorf("ordered %+v, %v", order, err)
	}
}

// TestDeletedSnapshotWithdrawn: a deleted EtcdSnapshot is withdrawn and the next ordered.
func TestDeletedSnapshotWithdrawn(t *testing.T) {
	s := backedUp(t)
	s.orders(full, s.snapshot("a", v1alpha1.SnapshotFull, nil))
	second := s.snapshot("b", v1alpha1.SnapshotFull, new(int32(0)))
	if err := s.Delete(t.Context(), &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	s.orders(full, second)
	s.replies(full, done7(second))
	s.eventually("delete what is over", func() error { return s.gone("b", &v1alpha1.EtcdSnapshot{}) })
	s.orders(full, "")
}

func TestAnEtcdSnapshotWithoutBackupsFails(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.snapshot("early", v1alpha1.SnapshotFull, nil) // its cluster comes in a moment
	s.becomes("early", v1alpha1.SnapshotPending)
	s.whole(1)
	status := s.becomes("early", v1alpha1.SnapshotFailed)
	if !strings.Contains(status.Message, "has no spec.backup") || status.FinishedAt == nil {
		t.Errorf("got %+v", status)
	}
	s.patchCluster(backupsOn)
	s.orders(full, s.snapshot("later", v1alpha1.SnapshotFull, nil))
	s.patchCluster(backupsOff)
	s.becomes("later", v1alpha1.SnapshotFailed)
	s.patchCluster(backupsOn)
	s.eventually("prepare for backups", func() error { return s.snapshotLeases(true) })
	last := s.snapshot("last", v1alpha1.SnapshotFull, nil)
	s.orders(full, last)
	for _, name := range []string{"early", "later"} {
		if _, err := s.stable(name, v1alpha1.SnapshotFailed); err != nil {
			t.Errorf("an outcome was taken back: %v", err)
		}
	}
}

// A pass that goes by an old cache must not order once more what was stable since.
func TestWhatIsCompleteIsNotOrderedAgain(t *testing.T) {
	s := backedUp(t)
	uid := s.snapshot("a", v1alpha1.SnapshotFull, nil)
	s.orders(full, uid)
	var old v1alpha1.EtcdSnapshot
	if err := s.fetch("a", &old); err != nil {
		t.Fatal(err)
	}
	s.replies(full, done7(uid))
	s.becomes("a", v1alpha1.SnapshotSucceeded)
	s.orders(full, "")
	s.looksAgain(&old)
	if err := s.ordered(full, ""); err != nil {
		t.Error(err)
	}
}

// oldSnapshots is caches that have an old EtcdSnapshot.
type oldSnapshots struct {
	client.Client
	old *v1alpha1.EtcdSnapshot
}

func (b oldSnapshots) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if l, ok := list.(*v1alpha1.EtcdSnapshotList); ok {
		l.Items = []v1alpha1.EtcdSnapshot{*b.old.DeepCopy()}
		return nil
	}
	return b.Client.List(ctx, list, opts...)
}

// looksAgain fails unless a pass by old caches does nothing but look again, and counts no step.
func (s *stage) looksAgain(old *v1alpha1.EtcdSnapshot) {
	s.Helper()
	coordination, err := coordinationclient.NewForConfig(s.config)
	if err != nil {
		s.Fatal(err)
	}
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		s.Fatal(err)
	}
	r := snapshot.Reconciler{
		Client: oldSnapshots{s.Client, old}, Live: s.Client, Leases: coordination, Steps: metrics.steps, Events: metrics.events,
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	key := types.NamespacedName{Namespace: s.namespace, Name: "demo"}
	result, err := r.Reconcile(s.Context(), reconcile.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != control.StaleCachePause {
		s.Errorf("got %+v, %v, want to look again", result, err)
	}
	if steps := testutil.CollectAndCount(metrics.steps); steps != 0 {
		s.Errorf("%d steps were taken by old caches", steps)
	}
}

// concludedAs fails unless the conditions say what the phase says, so that kubectl can wait for them.
func (s *stage) concludedAs(status v1alpha1.EtcdSnapshotStatus) {
	s.Helper()
	for kind, phase := range map[string]v1alpha1.SnapshotPhase{"Complete": v1alpha1.SnapshotSucceeded, "Failed": v1alpha1.SnapshotFailed} {
		want := metav1.ConditionFalse
		if status.Phase == phase {
			want = metav1.ConditionTrue
		}
		c := meta.FindStatusCondition(status.Conditions, kind)
		if c == nil || c.Status != want || c.Reason != string(status.Phase) || c.Message != status.Message || c.ObservedGeneration != 1 {
			s.Errorf("in phase %s, condition %s is %+v", status.Phase, kind, c)
		}
	}
	goesOn := status.Phase == v1alpha1.SnapshotPending || status.Phase == v1alpha1.SnapshotRunning
	for kind, want := range map[string]bool{v1alpha1.ConditionReconciling: goesOn, v1alpha1.ConditionStalled: status.Phase == v1alpha1.SnapshotFailed} {
		c := meta.FindStatusCondition(status.Conditions, kind)
		if (c != nil) != want || c != nil && (c.Status != metav1.ConditionTrue || c.Reason != string(status.Phase) || c.Message != status.Message ||
			c.LastTransitionTime.Year() < 2000) {
			s.Errorf("in phase %s, condition %s is %+v", status.Phase, kind, c)
		}
	}
}

// snapshot asks for a backup of cluster demo and returns the UID of the request.
func (s *stage) snapshot(name string, kind v1alpha1.SnapshotType, ttl *int32) string {
	s.Helper()
	requested := etcdSnapshot(s.namespace, name, kind)
	requested.Spec.TTLSecondsAfterFinished = ttl
	return s.asks(requested)
}

func etcdSnapshot(namespace, name string, kind v1alpha1.SnapshotType) *v1alpha1.EtcdSnapshot {
	return &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.EtcdSnapshotSpec{ClusterRef: v1alpha1.ClusterReference{Name: "demo"}, Type: kind},
	}
}

// asks for a backup and returns the UID of the request.
func (s *stage) asks(snapshot *v1alpha1.EtcdSnapshot) string {
	s.Helper()
	if err := s.Create(s.Context(), snapshot); err != nil {
		s.Fatal(err)
	}
	return string(snapshot.UID)
}

// stable is the status of the EtcdSnapshot, with what is missing until it is in a phase.
func (s *stage) stable(name string, phase v1alpha1.SnapshotPhase) (v1alpha1.EtcdSnapshotStatus, error) {
	var snapshot v1alpha1.EtcdSnapshot
	if err := s.fetch(name, &snapshot); err != nil {
		return snapshot.Status, err
	}
	if snapshot.Status.Phase != phase {
		return snapshot.Status, fmt.Errorf("EtcdSnapshot %s is %+v, want %s", name, snapshot.Status, phase)
	}
	return snapshot.Status, nil
}

func (s *stage) becomes(name string, phase v1alpha1.SnapshotPhase) (status v1alpha1.EtcdSnapshotStatus) {
	s.Helper()
	s.eventually("become "+string(phase), func() (err error) {
		status, err = s.stable(name, phase)
		return err
	})
	return status
}

// ordered says whether the Lease bears the order, empty for none and no answer.
func (s *stage) ordered(component leases.Component, uid string) error {
	var lease coordinationv1.Lease
	if err := s.fetch(leases.SnapshotName("demo", component), &lease); err != nil {
		return err
	}
	order, answer := lease.Annotations[leases.AnnotationSnapshotOrder], lease.Annotations[leases.AnnotationSnapshotAnswer]
	if order != uid || uid == "" && answer != "" {
		return fmt.Errorf("Lease %s orders %q, answered %q, want %q", lease.Name, order, answer, uid)
	}
	return nil
}

func (s *stage) orders(component leases.Component, uid string) {
	s.Helper()
	s.eventually("order on "+string(component), func() error { return s.ordered(component, uid) })
}

// replied is when all backups of the tests began: in the past, and less than the shortest time for which an EtcdSnapshot stays.
var replied = time.Now().UTC().Add(-2 * time.Minute).Truncate(time.Second)

// replies as the leader's agent does.
func (s *stage) replies(component leases.Component, a leases.SnapshotAnswer) {
	s.Helper()
	a.Started = replied
	if a.Phase != leases.SnapshotRunning {
		a.Finished = a.Started.Add(time.Minute)
	}
	s.eventually("answer", func() error {
		order, err := s.store("demo").SnapshotOrder(s.Context(), component)
		if err != nil {
			return err
		}
		return s.store("demo").AnswerSnapshot(s.Context(), component, order.Version, a)
	})
}

// serveOrders answers what is ordered, where anything is.
func (s *stage) serveOrders() {
	s.Helper()
	for _, component := range []leases.Component{full, delta} {
		if order, err := s.store("demo").SnapshotOrder(s.Context(), component); err == nil && order.Open() {
			answer := done7(order.UID)
			answer.Kind = order.Kind
			s.replies(component, answer)
		}
	}
}

func done7(uid string) leases.SnapshotAnswer {
	return leases.SnapshotAnswer{UID: uid, Phase: leases.SnapshotSucceeded, Object: "demo/full", URI: "s3://b/demo/full", Revision: 7, Size: 9,
		SHA256: "ab", StorageVersion: "3.6"}
}
