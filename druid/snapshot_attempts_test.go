package druid

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/snapshot"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// unindexed lists the EtcdSnapshots of the only cluster, as the caches do by their index.
type unindexed struct{ client.Client }

func (u unindexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.EtcdSnapshotList); ok {
		opts = opts[:1] // the namespace
	}
	return u.Client.List(ctx, list, opts...)
}

// saver is the controller of EtcdSnapshots, whose passes and whose clock the test drives.
type saver struct {
	*stage
	snapshot.Reconciler
	at time.Time
}

// saver returns the controller for a cluster that has formed, without any other druid.
func (s *stage) saver() *saver {
	s.Helper()
	stop := s.startDruid()
	s.whole(1)
	stop()
	c := s.clockedQuiet()
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		s.Fatal(err)
	}
	sv := &saver{stage: s, at: time.Now()}
	sv.Reconciler = snapshot.Reconciler{
		Client: unindexed{c.client}, Live: c.live, Leases: c.leases, Recorder: events.NewFakeRecorder(100), Manifests: c.manifests,
		Steps: metrics.steps, Events: metrics.events, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return sv.at },
	}
	return sv
}

// pass makes some passes, more than a change needs.
func (s *saver) pass() (again time.Duration) {
	s.Helper()
	for range 6 {
		result, err := s.Reconcile(s.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.namespace, Name: "demo"}})
		if err != nil {
			s.Fatal(err)
		}
		again = result.RequeueAfter
	}
	return again
}

// rejected reports what a kubelet reports that does not start a Pod.
func (s *saver) rejected(pod *corev1.Pod) {
	s.Helper()
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "OutOfmemory"
	pod.Status.Message = "Node didn't have enough resource: memory, requested: 64"
	if err := s.stage.Client.Status().Update(s.Context(), pod); err != nil {
		s.Fatal(err)
	}
}

func (s *saver) podOf(uid string) *corev1.Pod {
	s.Helper()
	var pod corev1.Pod
	if err := s.fetch("snapshot-"+uid, &pod); client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	} else if err != nil {
		return nil
	}
	return &pod
}

// endsOverdue lets time pass until the EtcdSnapshot fails, and fails unless that is an hour and some minutes after began.
func (s *saver) endsOverdue(name string, began time.Time, each func(), words ...string) {
	s.Helper()
	for s.at.Sub(began) < 2*time.Hour {
		s.pass()
		each()
		again := s.pass()
		status, err := s.stable(name, v1alpha1.SnapshotFailed)
		if err == nil {
			if took := s.at.Sub(began); took < manifests.SnapshotTimeout || took > manifests.SnapshotTimeout+10*time.Minute {
				s.Errorf("it failed after %s", took)
			}
			for _, word := range words {
				if !strings.Contains(status.Message, word) {
					s.Errorf("the message lacks %q: %s", word, status.Message)
				}
			}
			s.concludedAs(status)
			return
		}
		if again <= 0 {
			s.Fatalf("druid does not look again at %+v", status)
		}
		s.at = s.at.Add(again)
	}
	s.Fatal("it does not end")
}

// A kubelet without memory rejects each Pod at once. druid creates it again after a growing pause, and gives up.
func TestRejectedSnapshotPodRetriesBounded(t *testing.T) {
	s := newStage(t).saver()
	began := s.at
	uid := s.asks(inOwnStore(s.namespace, "a"))
	seen := map[types.UID]time.Time{}
	var order []time.Time
	look := func() {
		if pod := s.podOf(uid); pod != nil && seen[pod.UID].IsZero() {
			seen[pod.UID], order = s.at, append(order, s.at)
			s.rejected(pod)
		}
	}
	s.pass()
	look()
	s.pass()
	status, err := s.stable("a", v1alpha1.SnapshotPending)
	if err != nil || !strings.Contains(status.Message, "OutOfmemory: Node didn't have enough resource") {
		t.Errorf("after the first Pod: %+v, %v", status, err)
	}
	s.endsOverdue("a", began, look, "Not saved within 1h5m0s", "create another EtcdSnapshot", "OutOfmemory")
	if len(order) < 10 || len(order) > 25 {
		t.Fatalf("%d Pods were created in an hour", len(order))
	}
	for i := 2; i < len(order); i++ {
		if gap, before := order[i].Sub(order[i-1]), order[i-1].Sub(order[i-2]); gap < before {
			t.Errorf("the pause before Pod %d is %s, and the one before it %s", i+1, gap, before)
		}
	}
	if s.podOf(uid) != nil {
		t.Error("the last Pod is not deleted")
	}
}

// TestSnapshotFailsIfPodNotAdmitted: an EtcdSnapshot whose Pod is never admitted fails.
// A quota admits no Pod. The EtcdSnapshot says so, and does not stay open.
func TestSnapshotFailsIfPodNotAdmitted(t *testing.T) {
	s := newStage(t).saver()
	none := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	if err := s.stage.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	if err := s.stage.Client.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	s.eventually("the quota applies", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "other"}}
		pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "a"}}
		if err := s.stage.Create(t.Context(), pod, client.DryRunAll); err == nil {
			return errors.New("a Pod is admitted")
		}
		return nil
	})
	began := s.at
	uid := s.asks(inOwnStore(s.namespace, "a"))
	s.pass()
	status, err := s.stable("a", v1alpha1.SnapshotPending)
	if err != nil || !strings.Contains(status.Message, "exceeded quota") {
		t.Errorf("after the first attempt: %+v, %v", status, err)
	}
	before := status.Attempts.Count
	if again := s.pass(); again <= 0 || again > 10*time.Second {
		t.Errorf("druid looks again in %s", again)
	}
	if status, err = s.stable("a", v1alpha1.SnapshotPending); err != nil || status.Attempts.Count != before {
		t.Errorf("druid tries without a pause: %+v, %v", status, err)
	}
	s.endsOverdue("a", began, func() {}, "Not saved within 1h5m0s", "exceeded quota", "create another EtcdSnapshot")
	if s.podOf(uid) != nil {
		t.Error("there is a Pod")
	}
}

// A deletion waits neither for a Pod that saves, nor for the cluster to be resumed.
func TestADeletionByAPodWaitsForNoOther(t *testing.T) {
	s := newStage(t).saver()
	s.asks(deletedWith(inOwnStore(s.namespace, "old")))
	s.pass()
	saved := s.podOfOld()
	s.reportsPod(saved, corev1.PodSucceeded, podEnded(t, 0, done7(strings.TrimPrefix(saved.Name, "snapshot-"))))
	s.pass()
	if _, err := s.stable("old", v1alpha1.SnapshotSucceeded); err != nil {
		t.Fatal(err)
	}
	busy := s.asks(inOwnStore(s.namespace, "busy"))
	s.pass()
	s.reportsPod(s.podOf(busy), corev1.PodRunning, podRuns)
	s.pass()
	// The cluster is paused.
	s.eventually("report a pause", func() error {
		var cluster v1alpha1.EtcdCluster
		if err := s.fetch("demo", &cluster); err != nil {
			return err
		}
		cluster.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPaused, LastTransitionTime: metav1.Now(),
		}}
		return s.stage.Client.Status().Update(t.Context(), &cluster)
	})
	s.deleteSnapshot("old")
	s.pass()
	pod := s.podOfOld()
	if pod == nil {
		t.Fatal("no Pod deletes the backup")
	}
	if command := strings.Join(pod.Spec.Containers[0].Command, " "); !strings.Contains(command, "backup drop") || strings.Contains(command, "--lineage") {
		t.Errorf("the command is %s", command)
	}
	if s.podOf(busy) == nil {
		t.Error("the Pod that saves was deleted")
	}
	// A Pod that deletes is replaced with a pause too, and blocks no Pod that saves.
	s.rejected(pod)
	s.pass()
	if s.podOfOld() != nil {
		t.Error("a Pod is created without a pause")
	}
	s.at = s.at.Add(11 * time.Second)
	s.pass()
	if pod = s.podOfOld(); pod == nil {
		t.Fatal("no other Pod deletes the backup")
	}
	uid := strings.TrimPrefix(pod.Name, "snapshot-")
	s.reportsPod(pod, corev1.PodSucceeded, podEnded(t, 0, leases.SnapshotAnswer{UID: uid, Phase: leases.SnapshotSucceeded}))
	s.pass()
	if err := s.gone("old", &v1alpha1.EtcdSnapshot{}); err != nil {
		t.Error(err)
	}
}

// deletedWith makes the backup go with its EtcdSnapshot.
func deletedWith(of *v1alpha1.EtcdSnapshot) *v1alpha1.EtcdSnapshot {
	of.Spec.DeletionPolicy = v1alpha1.SnapshotDelete
	return of
}

func (s *saver) podOfOld() *corev1.Pod {
	s.Helper()
	var of v1alpha1.EtcdSnapshot
	if err := s.fetch("old", &of); err != nil {
		s.Fatal(err)
	}
	return s.podOf(string(of.UID))
}
