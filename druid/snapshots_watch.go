package druid

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// watchSnapshots has the EtcdSnapshots settled, cluster by cluster, when they change, their cluster does, or what its snapshot
// Leases ask for and answer.
func watchSnapshots(ctx context.Context, mgr manager.Manager, r *Reconciler, o Options) error {
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
		Watches(&v1alpha1.EtcdCluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(specChanged)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(mapToCluster), builder.WithPredicates(ordersChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Concurrency, EnableWarmup: new(true), SkipNameValidation: new(true)}).
		Complete(snapshots{r})
	if err != nil {
		return fmt.Errorf("create the controller of EtcdSnapshots: %w", err)
	}
	return nil
}

// ordersChanged lets through what says something new of an order, and that a Lease for orders came: a thousand clusters renew
// theirs all the time.
var ordersChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return ordersOn(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
		return ordersOn(e.ObjectNew) && (e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			before[leases.AnnotationSnapshotOrder] != after[leases.AnnotationSnapshotOrder] ||
			before[leases.AnnotationSnapshotAnswer] != after[leases.AnnotationSnapshotAnswer])
	},
	DeleteFunc:  func(e event.DeleteEvent) bool { return ordersOn(e.Object) },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func ordersOn(object client.Object) bool {
	lease, ok := object.(*coordinationv1.Lease)
	return ok && reportsOfBackups(lease)
}
