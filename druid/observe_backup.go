package druid

import (
	"context"

	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// observeBackup reads the two Leases in which the leader's agent reports what is saved, and finds the Pods whose agents could
// not reach the store.
func (r *Reconciler) observeBackup(ctx context.Context, o *observation) error {
	if o.desired.Backup {
		for _, m := range o.observed.Members {
			if m.Listed && m.Pod&(plan.PodUnscheduled|plan.PodUnstarted|plan.PodLive) != 0 && !manifests.ReachesStore(o.cluster, o.pods[m.Name]) {
				o.observed.Unattached = append(o.observed.Unattached, m.Name)
			}
		}
	}
	var err error
	if o.observed.Full, err = r.observeSnapshot(ctx, o, leases.ComponentFullSnapshot); err != nil {
		return err
	}
	o.observed.Delta, err = r.observeSnapshot(ctx, o, leases.ComponentDeltaSnapshot)
	return err
}

// toldNothing is the fact that no one renewed the Lease yet.
func reportedNothing(lease string) string { return "nothing reported by " + lease }

func (r *Reconciler) observeSnapshot(ctx context.Context, o *observation, component leases.Component) (plan.Snapshot, error) {
	lease := o.leases[leases.SnapshotName(o.cluster.Name, component)]
	s := plan.Snapshot{Lease: leaseState(o.cluster, lease), Liveness: leases.Unknown}
	if s.Lease != plan.LeaseOurs || !o.desired.Backup {
		return s, nil
	}
	paused := plan.Paused(o.desired, o.observed)
	if says, err := leases.DecodeBackup(lease); err == nil {
		s.Says = says
	}
	if component == leases.ComponentFullSnapshot {
		var unreadable error
		s.Verified, unreadable = leases.DecodeVerification(lease)
		s.Unreadable = unreadable != nil
	}
	if paused {
		return s, nil
	}
	liveness, err := r.liveness(ctx, lease, r.now())
	if err != nil {
		return s, err
	}
	s.Liveness = r.memory.remember(keyOf(lease), o.cluster.Name, liveness)
	// The agents may begin when the cluster has formed and they reach the store, and with deltas when there is a full.
	due := s.Liveness == leases.Never && o.observed.RecordState == plan.RecordFormed && len(o.observed.Unattached) == 0 &&
		(component == leases.ComponentFullSnapshot || o.observed.Full.Says.EverSaved())
	lasts, left := r.memory.lasts(fact{o.cluster.UID, reportedNothing(lease.Name)}, due, leases.DurationOf(lease), r.now())
	o.lookAgain(left)
	if lasts {
		s.Liveness = leases.Stale
	}
	return s, nil
}
