package druid

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// clusterGrace is how long an EtcdSnapshot may be there before its EtcdCluster: who applies both at once waits for neither.
const clusterGrace = time.Minute

// snapshots settles the EtcdSnapshots of one EtcdCluster at a time: it asks for them on the cluster's snapshot Leases, one of
// each type at a time, and reports what the leader's agent answered.
type snapshots struct{ *Reconciler }

// Reconcile takes the next step of each EtcdSnapshot of the EtcdCluster that is named, which may not exist.
func (s snapshots) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o, err := s.observe(ctx, request.NamespacedName)
	if err == nil {
		err = s.resolvePending(ctx, o)
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

// ordered is what one pass goes by.
type ordered struct {
	name types.NamespacedName
	// cluster is nil where there is none, or one that is being deleted.
	cluster *v1alpha1.EtcdCluster
	// all EtcdSnapshots of the cluster, oldest first, but for those that are being deleted and not held for their backup.
	all []*v1alpha1.EtcdSnapshot
	now time.Time
	// again is when to look once more, 0 for not by itself.
	again time.Duration
}

func (o *ordered) lookAgain(after time.Duration) {
	if o.again == 0 || after < o.again {
		o.again = after
	}
}

func (s snapshots) observe(ctx context.Context, name types.NamespacedName) (*ordered, error) {
	o := &ordered{name: name, now: s.now()}
	var list v1alpha1.EtcdSnapshotList
	if err := s.client.List(ctx, &list, client.InNamespace(name.Namespace), client.MatchingFields{clusterIndex: name.Name}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil || held(&list.Items[i]) {
			o.all = append(o.all, &list.Items[i])
		}
	}
	slices.SortFunc(o.all, func(a, b *v1alpha1.EtcdSnapshot) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var err error
	if o.cluster, err = clusterOrNil(ctx, s.client, name); err != nil {
		return nil, err
	}
	if len(o.all) > 0 && (o.cluster == nil || !asksForBackups(o.cluster)) {
		// They are going to fail for good by that, so a cache that is behind must not say it.
		o.cluster, err = clusterOrNil(ctx, s.live, name)
	}
	return o, err
}

func clusterOrNil(ctx context.Context, from client.Reader, name types.NamespacedName) (*v1alpha1.EtcdCluster, error) {
	var cluster v1alpha1.EtcdCluster
	err := from.Get(ctx, name, &cluster)
	if err != nil || cluster.DeletionTimestamp != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &cluster, nil
}

// asksForBackups says whether the cluster is backed up, or is about to be by an edit that waits. What cannot be read is no reason to give
// up a backup that was ordered.
func asksForBackups(cluster *v1alpha1.EtcdCluster) bool {
	adopted, err := cluster.Status.Adopted()
	return cluster.Spec.Backup != nil || err != nil || adopted != nil && adopted.Backup != nil
}

// resolvePending takes the next step of each.
func (s snapshots) resolvePending(ctx context.Context, o *ordered) error {
	for component, kind := range map[leases.Component]v1alpha1.SnapshotType{
		leases.ComponentFullSnapshot: v1alpha1.SnapshotFull, leases.ComponentDeltaSnapshot: v1alpha1.SnapshotDelta,
	} {
		order, exists, err := s.readOrder(ctx, o, component)
		if err != nil {
			return err
		}
		if err := s.withdraw(ctx, o, order); err != nil {
			return err
		}
		slot := policy.OrderSlotUnknown
		switch {
		case exists && order.UID == "":
			slot = policy.OrderSlotFree
		case exists:
			slot = policy.OrderSlotTaken
		}
		for _, snapshot := range o.all {
			if snapshot.Spec.Type != kind {
				continue
			}
			decision := s.judge(o, snapshot, slot, order.SnapshotOrder)
			if err := s.take(ctx, o, snapshot, order, decision.Verdict, decision.Rule); err != nil {
				return err
			}
			if decision.Verdict == policy.SnapshotOrder {
				slot = policy.OrderSlotTaken
			}
		}
	}
	return nil
}

// judge by the policy on an EtcdSnapshot, or by that on one which is being deleted.
func (s snapshots) judge(o *ordered, snapshot *v1alpha1.EtcdSnapshot, slot policy.OrderSlot, order leases.SnapshotOrder) rules.Decision[policy.SnapshotStep] {
	if snapshot.DeletionTimestamp != nil {
		return policy.JudgeSnapshotDeletion(deletionFacts(o, snapshot, slot, order))
	}
	return policy.JudgeSnapshot(s.facts(o, snapshot, slot, order))
}

// leaseOrder is the request on the snapshot Lease of component, empty for none.
type leaseOrder struct {
	leases.SnapshotOrder
	component leases.Component
}

// readOrder reads the request from the caches, and says whether the cluster has such a Lease of its own.
func (s snapshots) readOrder(ctx context.Context, o *ordered, component leases.Component) (order leaseOrder, exists bool, err error) {
	order.component = component
	if o.cluster == nil {
		return order, false, nil
	}
	var lease coordinationv1.Lease
	name := types.NamespacedName{Namespace: o.name.Namespace, Name: leases.SnapshotName(o.name.Name, component)}
	if err := s.client.Get(ctx, name, &lease); err != nil || !ours(o.cluster, &lease) {
		return order, false, client.IgnoreNotFound(err)
	}
	order.SnapshotOrder = leases.DecodeSnapshotOrder(&lease)
	return order, true, nil
}

func (s snapshots) facts(o *ordered, snapshot *v1alpha1.EtcdSnapshot, slot policy.OrderSlot, order leases.SnapshotOrder) policy.SnapshotFacts {
	f := policy.SnapshotFacts{
		Phase: snapshotPhases[snapshot.Status.Phase], Cluster: policy.SnapshotClusterThere, Backup: rules.No, Slot: slot,
		Answer: policy.OrderUnanswered, Expired: rules.No, Hold: holdOf(snapshot, order),
	}
	if order.UID == string(snapshot.UID) {
		f.Slot, f.Answer = policy.OrderSlotMine, orderAnswers[order.Answer.Phase]
	}
	if o.cluster != nil {
		f.Backup = rules.YesNoOf(asksForBackups(o.cluster))
	} else {
		f.Cluster = policy.SnapshotClusterGone
		if left := clusterGrace - o.now.Sub(snapshot.CreationTimestamp.Time); left > 0 && f.Phase != policy.SnapshotFinal {
			f.Cluster = policy.SnapshotClusterMissing
			o.lookAgain(left)
		}
	}
	if ttl := snapshot.Spec.TTLSecondsAfterFinished; ttl != nil && f.Phase == policy.SnapshotFinal {
		left := time.Duration(*ttl)*time.Second - o.now.Sub(finished(snapshot).Time)
		if f.Expired = rules.YesNoOf(left <= 0); left > 0 {
			o.lookAgain(left)
		}
	}
	return f
}

// finished is when the EtcdSnapshot was over; one that does not say so has been from the beginning.
func finished(snapshot *v1alpha1.EtcdSnapshot) metav1.Time {
	if snapshot.Status.FinishedAt == nil {
		return snapshot.CreationTimestamp
	}
	return *snapshot.Status.FinishedAt
}

var snapshotPhases = map[v1alpha1.SnapshotPhase]policy.SnapshotPhase{
	"": policy.SnapshotNew, v1alpha1.SnapshotPending: policy.SnapshotPending, v1alpha1.SnapshotRunning: policy.SnapshotRunning,
	v1alpha1.SnapshotSucceeded: policy.SnapshotFinal, v1alpha1.SnapshotFailed: policy.SnapshotFinal,
}

var orderAnswers = map[leases.SnapshotPhase]policy.OrderAnswer{
	"": policy.OrderUnanswered, leases.SnapshotRunning: policy.OrderRunning,
	leases.SnapshotSucceeded: policy.OrderSucceeded, leases.SnapshotFailed: policy.OrderFailed,
}

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
		Watches(&v1alpha1.EtcdCluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(control.SpecChanged)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(control.ToCluster), builder.WithPredicates(ordersChanged)).
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
	return ok && leases.ReportsBackups(lease)
}
