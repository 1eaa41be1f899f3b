package druid

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// deletionTimeout is how long an EtcdSnapshot is held for its backup to be deleted: twice what an agent tries.
const deletionTimeout = 10 * time.Minute

// held says whether its finalizer is on it.
func held(snapshot *v1alpha1.EtcdSnapshot) bool {
	return slices.Contains(snapshot.Finalizers, v1alpha1.SnapshotFinalizer)
}

// toDelete says whether there is a backup that goes with the EtcdSnapshot, as the status reports.
func toDelete(snapshot *v1alpha1.EtcdSnapshot) bool {
	return snapshot.Spec.DeletionPolicy == v1alpha1.SnapshotDelete && snapshot.Status.Artifact != nil && snapshot.Status.Artifact.Key != ""
}

// madeToDelete says whether the answer on the Lease reports a backup that goes with the EtcdSnapshot, before the status does.
func madeToDelete(snapshot *v1alpha1.EtcdSnapshot, order leases.SnapshotOrder) bool {
	return snapshot.Spec.DeletionPolicy == v1alpha1.SnapshotDelete && snapshotPhases[snapshot.Status.Phase] != policy.SnapshotFinal &&
		order.UID == string(snapshot.UID) && order.Kind != leases.SnapshotDelete && order.Answer.Phase == leases.SnapshotSucceeded
}

func holdOf(snapshot *v1alpha1.EtcdSnapshot, order leases.SnapshotOrder) policy.SnapshotHold {
	switch wanted := toDelete(snapshot) || madeToDelete(snapshot, order); {
	case wanted && !held(snapshot):
		return policy.SnapshotHoldMissing
	case !wanted && held(snapshot):
		return policy.SnapshotHeldNeedless
	}
	return policy.SnapshotHeldRight
}

var deletionSlots = map[policy.OrderSlot]policy.DeletionSlot{
	policy.OrderSlotUnknown: policy.DeletionSlotUnknown, policy.OrderSlotFree: policy.DeletionSlotFree, policy.OrderSlotTaken: policy.DeletionSlotTaken,
}

func deletionFacts(o *ordered, snapshot *v1alpha1.EtcdSnapshot, slot policy.OrderSlot, order leases.SnapshotOrder) policy.DeletionFacts {
	f := policy.DeletionFacts{
		Backup: policy.DeletionOfNothing, Cluster: rules.YesNoOf(o.cluster != nil && o.cluster.Spec.Backup != nil),
		Slot: deletionSlots[slot], Answer: policy.OrderUnanswered,
	}
	switch {
	case toDelete(snapshot):
		f.Backup = policy.DeletionWanted
	case madeToDelete(snapshot, order):
		f.Backup = policy.DeletionNotReported
	}
	if order.UID == string(snapshot.UID) {
		f.Slot, f.Answer = policy.DeletionSlotBackup, orderAnswers[order.Answer.Phase]
		if order.Kind == leases.SnapshotDelete {
			f.Slot = policy.DeletionSlotOrdered
		}
	}
	left := deletionTimeout - o.now.Sub(snapshot.DeletionTimestamp.Time)
	if f.Late = rules.YesNoOf(left <= 0); left > 0 {
		o.lookAgain(left)
	}
	return f
}

// hold the EtcdSnapshot, so that it does not go before its backup.
func (s snapshots) hold(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	return s.finalizers(ctx, snapshot, append(slices.Clone(snapshot.Finalizers), v1alpha1.SnapshotFinalizer))
}

// letGo of the EtcdSnapshot: its backup stays, or is gone.
func (s snapshots) letGo(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	return s.finalizers(ctx, snapshot, slices.DeleteFunc(slices.Clone(snapshot.Finalizers), func(f string) bool { return f == v1alpha1.SnapshotFinalizer }))
}

// finalizers replaces the list as the caches have it: a compare-and-set, by which a policy that was edited meanwhile counts.
func (s snapshots) finalizers(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, finalizers []string) error {
	defer crash.Around("hold-snapshot")()
	return client.IgnoreNotFound(s.patchMetadata(ctx, snapshot.DeepCopy(), metadataPatch{
		UID: string(snapshot.UID), ResourceVersion: snapshot.ResourceVersion, Finalizers: &finalizers,
	}))
}

// release the EtcdSnapshot, and report before what became of its backup: afterwards no one would.
func (s snapshots) release(
	ctx context.Context, o *ordered, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder, step policy.SnapshotStep,
) error {
	uri := "its backup"
	if snapshot.Status.Artifact != nil {
		uri = snapshot.Status.Artifact.URI
	}
	kind, reason, note := corev1.EventTypeWarning, v1alpha1.EventBackupRetained, ""
	switch step {
	case policy.SnapshotReleaseDeleted:
		kind, reason = corev1.EventTypeNormal, v1alpha1.EventBackupDeleted
		note = fmt.Sprintf("%s was deleted", uri)
	case policy.SnapshotReleaseRefused:
		note = fmt.Sprintf("%s stays in the store: %s", uri, order.Answer.Error)
	case policy.SnapshotReleaseCluster:
		note = fmt.Sprintf("%s stays in the store: there is no EtcdCluster %s with spec.backup any more. Delete the object in the store if you do not need it",
			uri, o.name.Name)
	default:
		note = fmt.Sprintf("%s stays in the store: no agent confirmed its deletion within %s. Condition BackupReady of EtcdCluster %s shows what blocks the agents",
			uri, deletionTimeout, o.name.Name)
	}
	s.metrics.events.WithLabelValues(kind, reason).Inc()
	s.recorder.Eventf(snapshot, nil, kind, reason, "Snapshot"+string(step), "%s", policy.Note(note))
	return s.letGo(ctx, snapshot)
}
