package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

const (
	// clusterGrace is how long an EtcdSnapshot waits for its EtcdCluster, so that a user can apply both at once in any order.
	clusterGrace = time.Minute
	// deletionTimeout is how long an EtcdSnapshot waits for the deletion of its backup: twice as long as an agent tries.
	deletionTimeout = 10 * time.Minute
)

// observation is what one pass knows.
type observation struct {
	name types.NamespacedName
	// cluster is nil if there is none, or if it is being deleted.
	cluster *v1alpha1.EtcdCluster
	// all EtcdSnapshots of the cluster, oldest first, except those that are being deleted without the finalizer.
	all []*v1alpha1.EtcdSnapshot
	// pods of EtcdSnapshots, by the UID of the EtcdSnapshot. They are set only if an EtcdSnapshot has a store of its own.
	// record is nil while the cluster has not formed.
	pods   map[types.UID]*corev1.Pod
	record *leases.Record
	now    time.Time
	// again is the time until the next pass, 0 for no pass without a change.
	again time.Duration
}

func (o *observation) lookAgain(after time.Duration) {
	if o.again == 0 || after < o.again {
		o.again = after
	}
}

func (r *Reconciler) observe(ctx context.Context, name types.NamespacedName) (*observation, error) {
	o := &observation{name: name, now: r.Now()}
	var list v1alpha1.EtcdSnapshotList
	if err := r.Client.List(ctx, &list, client.InNamespace(name.Namespace), client.MatchingFields{clusterIndex: name.Name}); err != nil {
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
	if o.cluster, err = ClusterOf(ctx, r.Client, name); err != nil {
		return nil, err
	}
	if len(o.all) > 0 && (o.cluster == nil || !asksForBackups(o.cluster)) {
		// They fail permanently because of this, so it must not come from a cache that is behind.
		o.cluster, err = ClusterOf(ctx, r.Live, name)
	}
	return o, err
}

// ClusterOf reads the EtcdCluster that an EtcdSnapshot names. It is nil if there is none, or if it is being deleted.
func ClusterOf(ctx context.Context, from client.Reader, name types.NamespacedName) (*v1alpha1.EtcdCluster, error) {
	var cluster v1alpha1.EtcdCluster
	err := from.Get(ctx, name, &cluster)
	if err != nil || cluster.DeletionTimestamp != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &cluster, nil
}

// asksForBackups says whether the cluster is backed up, or will be after an edit that waits. If this cannot be read, the
// requested backup is not given up.
func asksForBackups(cluster *v1alpha1.EtcdCluster) bool {
	adopted, err := cluster.Status.Adopted()
	return cluster.Spec.Backup != nil || err != nil || adopted != nil && adopted.Backup != nil
}

// observeRecord reads the cluster record.
func (r *Reconciler) observeRecord(ctx context.Context, o *observation) error {
	if o.cluster == nil || len(o.all) == 0 {
		return nil
	}
	var lease coordinationv1.Lease
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: o.name.Namespace, Name: leases.RecordName(o.name.Name)}, &lease)
	if err != nil || !metav1.IsControlledBy(&lease, o.cluster) {
		return client.IgnoreNotFound(err)
	}
	// A record that cannot be read is unknown. The condition of the EtcdCluster says so.
	if record, err := leases.DecodeRecord(&lease); err == nil && record.Phase == leases.PhaseFormed && record.Lineage != "" {
		o.record = &record
	}
	return nil
}

// waitsForCluster says what the cluster lacks before a backup of it can be saved, or returns an empty string. No watch of
// this controller reports a change of it.
func waitsForCluster(o *observation) (reason string) {
	switch {
	case policy.PauseReportedBy(o.cluster.Status.Conditions):
		reason = fmt.Sprintf("the EtcdSnapshot waits until EtcdCluster %s is resumed. The cluster is paused, and no member runs", o.name.Name)
	case o.record == nil:
		reason = fmt.Sprintf("the EtcdSnapshot waits until EtcdCluster %s has formed", o.name.Name)
	default:
		return ""
	}
	o.lookAgain(waitingInterval)
	return reason
}

// waitsForAgent says what an EtcdSnapshot waits for whose request is on a Lease.
func waitsForAgent(o *observation, snapshot *v1alpha1.EtcdSnapshot) string {
	if o.cluster == nil || snapshotPhases[snapshot.Status.Phase] == phaseFinal || snapshot.DeletionTimestamp != nil {
		return ""
	}
	return cmp.Or(waitsForCluster(o), "the EtcdSnapshot waits for the leader's agent. Condition BackupReady of the EtcdCluster shows what blocks it")
}

// leaseOrder is the request on the snapshot Lease of component, or the request for which a Pod stands, empty for none.
type leaseOrder struct {
	leases.SnapshotOrder
	component leases.Component
	answer    orderAnswer
	pod       *corev1.Pod
	// reason is what the request waits for.
	reason string
}

// readOrder reads the request from the caches, and says whether the cluster has such a Lease of its own.
func (r *Reconciler) readOrder(ctx context.Context, o *observation, component leases.Component) (order leaseOrder, exists bool, err error) {
	order.component = component
	if o.cluster == nil {
		return order, false, nil
	}
	var lease coordinationv1.Lease
	name := types.NamespacedName{Namespace: o.name.Namespace, Name: leases.SnapshotName(o.name.Name, component)}
	if err := r.Client.Get(ctx, name, &lease); err != nil || !metav1.IsControlledBy(&lease, o.cluster) {
		return order, false, client.IgnoreNotFound(err)
	}
	order.SnapshotOrder = leases.DecodeSnapshotOrder(&lease)
	return order, true, nil
}

var snapshotPhases = map[v1alpha1.SnapshotPhase]phase{
	"": phaseNew, v1alpha1.SnapshotPending: phasePending, v1alpha1.SnapshotRunning: phaseRunning,
	v1alpha1.SnapshotSucceeded: phaseFinal, v1alpha1.SnapshotFailed: phaseFinal,
}

var orderAnswers = map[leases.SnapshotPhase]orderAnswer{
	"": unanswered, leases.SnapshotRunning: answerRunning, leases.SnapshotSucceeded: answerSucceeded, leases.SnapshotFailed: answerFailed,
}

func snapshotFactsOf(o *observation, snapshot *v1alpha1.EtcdSnapshot, slot orderSlot, order leaseOrder) snapshotFacts {
	f := snapshotFacts{
		Phase: snapshotPhases[snapshot.Status.Phase], Cluster: clusterThere, Backup: rules.No, Slot: slot,
		Answer: unanswered, Expired: rules.No, Overdue: overdue(o, snapshot, order), Hold: holdOf(snapshot, order.SnapshotOrder),
		News: rules.YesNoOf(order.reason != "" && policy.AsSentences(order.reason) != snapshot.Status.Message),
	}
	if order.UID == string(snapshot.UID) {
		f.Slot, f.Answer = slotMine, order.answer
	}
	if o.cluster != nil {
		f.Backup = rules.YesNoOf(onPod(snapshot) || asksForBackups(o.cluster))
	} else {
		f.Cluster = clusterGone
		if left := clusterGrace - o.now.Sub(snapshot.CreationTimestamp.Time); left > 0 && f.Phase != phaseFinal {
			f.Cluster = clusterMissing
			o.lookAgain(left)
		}
	}
	if ttl := snapshot.Spec.TTLSecondsAfterFinished; ttl != nil && f.Phase == phaseFinal {
		left := time.Duration(*ttl)*time.Second - o.now.Sub(finished(snapshot).Time)
		if f.Expired = rules.YesNoOf(left <= 0); left > 0 {
			o.lookAgain(left)
		}
	}
	return f
}

// finished is the time at which the EtcdSnapshot ended. It is the time of its creation if the status does not have it.
func finished(snapshot *v1alpha1.EtcdSnapshot) metav1.Time {
	if snapshot.Status.FinishedAt == nil {
		return snapshot.CreationTimestamp
	}
	return *snapshot.Status.FinishedAt
}

// held says whether the EtcdSnapshot has druid's finalizer.
func held(snapshot *v1alpha1.EtcdSnapshot) bool {
	return slices.Contains(snapshot.Finalizers, v1alpha1.SnapshotFinalizer)
}

// toDelete reports whether the status has a backup that must be deleted with the EtcdSnapshot.
func toDelete(snapshot *v1alpha1.EtcdSnapshot) bool {
	return snapshot.Spec.DeletionPolicy == v1alpha1.SnapshotDelete && snapshot.Status.Artifact != nil && snapshot.Status.Artifact.Key != ""
}

// madeToDelete says whether the answer on the Lease reports such a backup, and the status does not yet.
func madeToDelete(snapshot *v1alpha1.EtcdSnapshot, order leases.SnapshotOrder) bool {
	return snapshot.Spec.DeletionPolicy == v1alpha1.SnapshotDelete && snapshotPhases[snapshot.Status.Phase] != phaseFinal &&
		order.UID == string(snapshot.UID) && order.Kind != leases.SnapshotDelete && order.Answer.Phase == leases.SnapshotSucceeded
}

func holdOf(snapshot *v1alpha1.EtcdSnapshot, order leases.SnapshotOrder) hold {
	switch wanted := toDelete(snapshot) || madeToDelete(snapshot, order); {
	case wanted && !held(snapshot):
		return holdMissing
	case !wanted && held(snapshot):
		return heldNeedless
	}
	return heldRight
}

var deletionSlots = map[orderSlot]deletionSlot{
	slotUnknown: deletionSlotUnknown, slotFree: deletionSlotFree, slotTaken: deletionSlotTaken, slotPausing: deletionSlotPausing,
}

func deletionFactsOf(o *observation, snapshot *v1alpha1.EtcdSnapshot, slot orderSlot, order leaseOrder) deletionFacts {
	f := deletionFacts{
		Backup: deletionOfNothing, Cluster: rules.YesNoOf(o.cluster != nil && (onPod(snapshot) || o.cluster.Spec.Backup != nil)),
		Slot: deletionSlots[slot], Answer: unanswered,
	}
	switch {
	case toDelete(snapshot):
		f.Backup = deletionWanted
	case madeToDelete(snapshot, order.SnapshotOrder):
		f.Backup = deletionNotReported
	}
	if order.UID == string(snapshot.UID) {
		f.Slot, f.Answer = deletionSlotBackup, order.answer
		if order.Kind == leases.SnapshotDelete {
			f.Slot = deletionSlotOrdered
		}
	}
	left := deletionTimeout - o.now.Sub(snapshot.DeletionTimestamp.Time)
	if f.Late = rules.YesNoOf(left <= 0); left > 0 {
		o.lookAgain(left)
	}
	return f
}
