package druid

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

const (
	// recoveryDelay is how long the quorum is lost before a recovery is planned, if spec.recovery does not set it.
	recoveryDelay = 5 * time.Minute
	// recoveryPause is the time after a recovery in which the next one needs an approval: what broke the first one may not be
	// over.
	recoveryPause = 10 * time.Minute
	// recoveryInterval between two looks at a lost quorum. Claims and the end of the delay cause events; nodes do not.
	recoveryInterval = 10 * time.Second
)

// recoveryWishOf reads spec.recovery and the annotation that approves a plan.
func recoveryWishOf(cluster *v1alpha1.EtcdCluster) policy.RecoveryWish {
	w := policy.RecoveryWish{Approved: cluster.Annotations[v1alpha1.RecoverAnnotation], Cluster: string(cluster.UID), Namespace: cluster.Namespace,
		Name: cluster.Name}
	spec := ptr.Deref(cluster.Spec.Recovery, v1alpha1.RecoverySpec{})
	w.Automatic = spec.Policy == v1alpha1.RecoveryAutomatic
	w.After = recoveryDelay
	if spec.AfterSeconds > 0 {
		w.After = time.Duration(spec.AfterSeconds) * time.Second
	}
	w.MaxRevisions, w.MaxSeconds = policy.BoundsOf(spec.MaxDataLoss)
	if s := cluster.Status.Recovery; s != nil && s.Last != nil {
		w.LastEpoch, w.LastRequest = uint32(s.Last.Epoch), s.Last.Request
	}
	return w
}

// restoreTargetOf reads spec.recovery.restore, nil for none, and the store from which it is restored.
func restoreTargetOf(cluster *v1alpha1.EtcdCluster) (*leases.RestoreTarget, string) {
	if cluster.Spec.Recovery == nil || cluster.Spec.Recovery.Restore == nil || cluster.Spec.Backup == nil {
		return nil, ""
	}
	store, err := json.Marshal(cluster.Spec.Backup.Store)
	if err != nil {
		return nil, "" // it was read from JSON
	}
	spec := cluster.Spec.Recovery.Restore
	target := &leases.RestoreTarget{Lineage: spec.Lineage, Revision: spec.Revision}
	if spec.Time != nil {
		target.Time = spec.Time.UTC()
	}
	return target, string(store)
}

// observeRestore finds how long an order to restore in place stands, and reads the final backup if its restore is approved.
func (r *Reconciler) observeRestore(ctx context.Context, from source, o *observation) error {
	if order := o.observed.Record.Order(); order.Restores() {
		left := policy.RestoreLimit - r.now().Sub(order.Since)
		o.observed.RestoreOverdue = left <= 0
		o.lookAgain(left)
	}
	if policy.RestoreApproved(o.desired, o.observed) {
		save, err := r.observeFinal(ctx, from, o)
		if err != nil {
			return err
		}
		o.observed.RestoreSave = save
	}
	cuts := policy.RestoreCutsOff(o.desired, o.observed)
	overdue, left := r.memory.lasts(fact{o.cluster.UID, "clients cut off for a restore"}, cuts, policy.RestoreLimit, r.now())
	o.observed.RestoreOverdue = o.observed.RestoreOverdue || overdue
	o.lookAgain(left)
	return nil
}

// observeFinal reads the final backup before a restore. One that was requested longer than the limit ago has failed, also if it
// succeeds: clients with open connections wrote after it, and an undo would not bring that back.
func (r *Reconciler) observeFinal(ctx context.Context, from source, o *observation) (policy.Save, error) {
	save, snapshot, err := saveOf(ctx, from, o, fmt.Sprintf("%s-before-restore-%s", o.cluster.Name, o.observed.Record.Restore.Request.Nonce))
	if err != nil || save.State&(policy.SaveComing|policy.SaveDone) == 0 {
		return save, err
	}
	left := policy.RestoreLimit - r.now().Sub(snapshot.CreationTimestamp.Time)
	if left <= 0 {
		save.Message = fmt.Sprintf("it did not complete within %s", policy.RestoreLimit)
		if save.State == policy.SaveDone {
			save.Message = fmt.Sprintf("its data is too old, because etcd was not stopped within %s of its request", policy.RestoreLimit)
		}
		save.State = policy.SaveFailed
	}
	o.lookAgain(left)
	return save, nil
}

// observeRecovery measures by druid's own clock how long the quorum has been lost, and observes a restore in place.
func (r *Reconciler) observeRecovery(ctx context.Context, from source, o *observation) error {
	lost := policy.QuorumLost(o.desired, o.observed)
	group := fact{o.cluster.UID, "quorum lost of " + leases.FormatID(o.observed.Record.ClusterID)}
	lasts, left := r.memory.lasts(group, lost, o.desired.Recovery.After, r.now())
	o.observed.QuorumOverdue, o.observed.LostSince = lasts, lostSince(o.cluster.Status, r.memory.began(group))
	o.lookAgain(left)
	if lasts {
		o.lookAgain(recoveryInterval)
	}
	missed, left := r.memory.lasts(fact{o.cluster.UID, "quorum missing of " + leases.FormatID(o.observed.Record.ClusterID)},
		policy.QuorumMissing(o.desired, o.observed), startMaxWait, r.now())
	o.observed.QuorumMissed = missed
	o.lookAgain(left)
	if s := o.cluster.Status.Recovery; s != nil && s.Last != nil {
		since := r.now().Sub(s.Last.At.Time)
		if o.observed.RecoveredRecently = since < recoveryPause; o.observed.RecoveredRecently && lost {
			o.lookAgain(recoveryPause - since)
		}
	}
	o.observed.SavedUntil = savedUntil(o)
	return r.observeRestore(ctx, from, o)
}

// lostSince is when druid first saw that the quorum is lost: what the status says, or else since when this process sees it. It is zero if that
// is not known: a status of an earlier version does not say it. It is zero too if etcd was stopped on purpose before, for a pause or a restore.
func lostSince(status v1alpha1.EtcdClusterStatus, seen time.Time) time.Time {
	shown, ready := status.Recovery, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	switch {
	case shown != nil && shown.LostSince != nil:
		return shown.LostSince.Time
	case shown != nil && shown.Phase != v1alpha1.RecoveryRecovered:
		return time.Time{}
	case ready != nil && (ready.Reason == v1alpha1.ReasonPaused || ready.Reason == v1alpha1.ReasonResuming):
		return time.Time{}
	default:
		return seen.Truncate(time.Second) // as the status has it
	}
}

// savedUntil is the time up to which all changes are in the backup store, by the clock of the agent that saved them.
func savedUntil(o *observation) time.Time {
	full, delta := o.observed.Full.Reports, o.observed.Delta.Reports
	if lease := o.leases[leases.DeltaSnapshotName(o.cluster.Name)]; lease != nil && lease.Spec.RenewTime != nil && delta.EverSaved() &&
		delta.Revision >= full.Revision {
		return lease.Spec.RenewTime.Time.Add(-delta.Lag)
	}
	return full.Taken
}
