package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// Reconciler works on the EtcdSnapshots of one EtcdCluster at a time. It requests one backup of each type at a time.
type Reconciler struct {
	Client   client.Client // reads from the caches
	Live     client.Reader // reads from the API server
	Leases   coordinationclient.LeasesGetter
	Recorder events.EventRecorder
	// Manifests are the settings of the Pods.
	Manifests manifests.Options
	// Steps counts by step and rule, and Events by type and reason.
	Steps, Events *prometheus.CounterVec
	Log           *slog.Logger
	Now           func() time.Time
}

// Reconcile takes the next step of each EtcdSnapshot of the EtcdCluster in the request. The EtcdCluster need not exist.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o, err := r.observe(ctx, request.NamespacedName)
	if err == nil {
		err = r.advance(ctx, o)
	}
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: o.again}, nil
	case control.Passing(err) > 0:
		return reconcile.Result{RequeueAfter: control.Passing(err)}, nil
	default:
		return reconcile.Result{}, fmt.Errorf("EtcdSnapshots of %s: %w", request.NamespacedName, err)
	}
}

// leaseOf is the component of the Lease on which a backup of a type is requested.
var leaseOf = map[v1alpha1.SnapshotType]leases.Component{
	v1alpha1.SnapshotFull: leases.ComponentFullSnapshot, v1alpha1.SnapshotDelta: leases.ComponentDeltaSnapshot,
}

// advance takes the next step of each EtcdSnapshot.
func (r *Reconciler) advance(ctx context.Context, o *observation) error {
	if err := r.observeRecord(ctx, o); err != nil {
		return err
	}
	for kind, component := range leaseOf {
		order, exists, err := r.readOrder(ctx, o, component)
		if err != nil {
			return err
		}
		if err := r.withdraw(ctx, o, order); err != nil {
			return err
		}
		slot := slotUnknown
		switch {
		case exists && order.UID == "":
			slot = slotFree
		case exists:
			slot = slotTaken
		}
		for _, snapshot := range o.all {
			if snapshot.Spec.Type != kind || onPod(snapshot) {
				continue
			}
			order.answer, order.reason = orderAnswers[order.Answer.Phase], waitsForAgent(o, snapshot)
			decision := decide(o, snapshot, slot, order)
			if err := r.take(ctx, o, snapshot, order, decision); err != nil {
				return err
			}
			if decision.Verdict == stepOrder {
				slot = slotTaken
			}
		}
	}
	return r.advanceOnPods(ctx, o)
}

// decide uses the table for an EtcdSnapshot that is being deleted, or the table for all others.
func decide(o *observation, snapshot *v1alpha1.EtcdSnapshot, slot orderSlot, order leaseOrder) rules.Decision[step] {
	if snapshot.DeletionTimestamp != nil {
		return deletionRows.Decide(deletionFactsOf(o, snapshot, slot, order))
	}
	return snapshotRows.Decide(snapshotFactsOf(o, snapshot, slot, order))
}

// clusterIndex finds the EtcdSnapshots of a cluster in the caches without reading all others.
const clusterIndex = "cluster"

// Watch starts a pass over the EtcdSnapshots of a cluster when one of them changes, when the spec of the cluster changes,
// when a request or an answer on its snapshot Leases changes, and when the Pod of an EtcdSnapshot changes.
func (r *Reconciler) Watch(ctx context.Context, mgr manager.Manager, concurrency int) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.EtcdSnapshot{}, clusterIndex, func(object client.Object) []string {
		return []string{object.(*v1alpha1.EtcdSnapshot).Spec.ClusterRef.Name}
	})
	if err != nil {
		return fmt.Errorf("index EtcdSnapshots by cluster: %w", err)
	}
	toCluster := func(_ context.Context, object client.Object) []reconcile.Request {
		name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.(*v1alpha1.EtcdSnapshot).Spec.ClusterRef.Name}
		return []reconcile.Request{{NamespacedName: name}}
	}
	err = builder.ControllerManagedBy(mgr).
		Named("etcdsnapshot").
		Watches(&v1alpha1.EtcdSnapshot{}, handler.EnqueueRequestsFromMapFunc(toCluster)).
		Watches(&v1alpha1.EtcdCluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(control.SpecChanged)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(control.ToCluster), builder.WithPredicates(ordersChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(control.ToCluster), builder.WithPredicates(savesSnapshot)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, EnableWarmup: new(true), SkipNameValidation: new(true)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("create the controller of EtcdSnapshots: %w", err)
	}
	return nil
}

// ordersChanged passes a change of a request or an answer, and a new snapshot Lease. It does not pass renewals: a thousand
// clusters renew their Leases all the time.
var ordersChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return hasOrders(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
		return hasOrders(e.ObjectNew) && (e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			before[leases.AnnotationSnapshotOrder] != after[leases.AnnotationSnapshotOrder] ||
			before[leases.AnnotationSnapshotAnswer] != after[leases.AnnotationSnapshotAnswer])
	},
	DeleteFunc:  func(e event.DeleteEvent) bool { return hasOrders(e.Object) },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// savesSnapshot passes the Pods of EtcdSnapshots, and no others.
var savesSnapshot = predicate.NewPredicateFuncs(func(object client.Object) bool {
	return object.GetLabels()[leases.LabelComponent] == string(leases.ComponentSnapshot)
})

func hasOrders(object client.Object) bool {
	lease, ok := object.(*coordinationv1.Lease)
	return ok && leases.ReportsBackups(lease)
}
