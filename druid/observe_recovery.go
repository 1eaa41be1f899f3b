package druid

import (
	"time"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

const (
	// recoveryDelay is how long the quorum is lost before druid looks for what is left of the data. An election takes seconds,
	// and a restart of a Pod most of a minute.
	recoveryDelay = time.Minute
	// recoveryInterval between two looks at a lost quorum. Leases and Pods cause events; nodes do not.
	recoveryInterval = 10 * time.Second
)

// observeRecovery measures by druid's own clock how long the quorum has been lost.
func (r *Reconciler) observeRecovery(o *observation) {
	lost := policy.QuorumLost(o.desired, o.observed)
	group := "quorum lost of " + leases.FormatID(o.observed.Record.ClusterID)
	lasts, left := r.memory.lasts(fact{o.cluster.UID, group}, lost, recoveryDelay, r.now())
	o.observed.QuorumOverdue = lasts
	o.lookAgain(left)
	if lasts {
		o.lookAgain(recoveryInterval)
	}
	o.observed.SavedUntil = savedUntil(o)
}

// savedUntil is the time up to which all changes are in the backup store, by the clock of the agent that saved them.
func savedUntil(o *observation) time.Time {
	full, delta := o.observed.Full.Reports, o.observed.Delta.Reports
	lease := o.leases[leases.DeltaSnapshotName(o.cluster.Name)]
	if lease != nil && lease.Spec.RenewTime != nil && delta.EverSaved() && delta.Revision >= full.Revision {
		return lease.Spec.RenewTime.Add(-delta.Lag)
	}
	return full.Taken
}
