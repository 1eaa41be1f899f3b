package druid

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// blind is a cache that has not reachable anything but EtcdClusters: no server can be reported to make one.
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
		draw: func() string { return "xxxxx" },
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
	// With open eyes it makes one that lets no one form a group.
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
	step := stepFor(t, o, plan.DeletePod)

	// Another member goes down, and the plan is older than that.
	s.kubelet(names[1], false)
	if err := r.deletePod(t.Context(), o, step); err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := s.fetch(names[0], &pod); err != nil || pod.DeletionTimestamp != nil {
		t.Fatalf("a Pod was deleted that the cluster cannot spare: %v %v", pod.DeletionTimestamp, err)
	}
	s.kubelet(names[1], true)
	if err := r.deletePod(t.Context(), o, step); err != nil {
		t.Fatal(err)
	}
	if err := s.fetch(names[0], &pod); err != nil || pod.DeletionTimestamp == nil {
		t.Errorf("the Pod that can be spared was not deleted: %v", err)
	}
}

func stepFor(t *testing.T, o *observation, kind plan.Kind) plan.Step {
	t.Helper()
	for _, step := range plan.Steps(o.desired, o.observed) {
		if step.Kind == kind {
			return step
		}
	}
	t.Fatalf("no step %s is planned: %+v", kind, plan.Steps(o.desired, o.observed))
	return plan.Step{}
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
	err = r.markLease(t.Context(), o, plan.Step{Member: names[0], PodUID: "older", ClaimUID: "older"})
	if !apierrors.IsConflict(err) || passing(err) != staleCachePause {
		t.Errorf("mark a Lease that changed: got %v, want a conflict", err)
	}
	err = r.labelPod(t.Context(), o, plan.Step{Member: names[0], PodUID: "older", Serving: new(false)})
	if !apierrors.IsConflict(err) {
		t.Errorf("label a Pod of another UID: got %v, want a conflict", err)
	}
	var lease coordinationv1.Lease
	if err := s.fetch(names[0], &lease); err != nil || lease.Annotations[leases.AnnotationPodUID] == "older" {
		t.Errorf("the Lease names the older Pod: %v", err)
	}
}
