package model

import (
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// A druid computes the status from its last look, and writes it after its steps. It can end before, or lose the compare-and-set. So the status
// can be older than the record.

// lostStatus is what the status of the EtcdCluster has in this world.
type lostStatus struct {
	cluster  string
	epoch    int64
	recovery *v1alpha1.RecoveryStatus
}

// last is the last recovery, nil for none.
func (s lostStatus) last() *v1alpha1.LastRecovery {
	if s.recovery == nil {
		return nil
	}
	return s.recovery.Last
}

// statusWrite is a compare-and-set of the EtcdCluster, whose status, spec and annotation have one version.
type statusWrite struct {
	before, after lostStatus
	approved      string
	wish          *leases.RestoreTarget
}

// tenMinutes after a recovery, the next one needs no approval for that reason any more.
const tenMinutes = 10 * time.Minute

// statusOf is the write of the status that follows from what a druid saw, nil if nothing is new.
func (w *lostWorld) statusOf(seen policy.Observed) *statusWrite {
	if after := w.statusAfter(w.status, w.desired(), seen); after != w.status {
		return &statusWrite{w.status, after, w.approved, w.wish}
	}
	return nil
}

// report writes the status that a druid computed. It knows its own write before its caches have it.
func (w *lostWorld) report(di int) bool {
	d := &w.druids[di]
	due := d.due
	d.due = nil
	if due == nil || due.before != w.status || due.approved != w.approved || due.wish != w.wish {
		return false
	}
	if w.status = due.after; d.cached != nil {
		d.cached.status = due.after
	}
	return true
}
