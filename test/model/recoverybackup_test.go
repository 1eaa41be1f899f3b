package model

import (
	"slices"
	"time"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// lostPolicy is what spec.recovery and spec.backup say.
type lostPolicy struct {
	name               string
	automatic, backup  bool
	revisions, seconds *int64
}

// lostPolicies are the policies of the walks. A loss in seconds is always that of one renewal of a Lease, because the world has no clock.
var lostPolicies = []lostPolicy{
	{name: "Manual", revisions: new(int64(0))},
	{name: "Manual with backups", backup: true, revisions: new(int64(0))},
	{name: "Automatic", automatic: true, revisions: new(int64(0)), seconds: new(int64(30))},
	{name: "Automatic with backups", automatic: true, backup: true, seconds: new(int64(30))},
}

// backUp is a step of the leader's agent: it saves what its member knows to be committed, and reports that. Without the API server, the
// report stays behind the store.
func (w *lostWorld) backUp(k int) bool {
	m := &w.members[k]
	g := &w.groups[m.group]
	up, ok := w.quorum(m.group)
	if !w.policy.backup || w.damaged || !ok || !slices.Contains(up, k) {
		return false
	}
	before := g.stored
	g.stored = max(g.stored, min(m.commit, len(g.writes)))
	report := leases.Backup{Revision: g.base + int64(g.stored), Lineage: g.lineage}
	if m.api && w.there && w.record.ClusterID == g.cluster && g.stored > 0 && report != w.reported {
		w.reported = report
		return true
	}
	return g.stored > before
}

// observeBackups completes what druid sees.
func (w *lostWorld) observeBackups(o *policy.Observed) {
	last := w.status.last()
	o.RecoveredRecently = last != nil && w.now.Sub(last.At.Time) < tenMinutes || w.mutant&mutAlwaysRecent != 0
	if w.policy.backup && w.reported.EverSaved() {
		o.Full.Reports, o.SavedUntil = w.reported, time.Unix(1, 0)
	}
}

// inStore is how many writes of a raft group the backup store has.
func (w *lostWorld) inStore(g int) int {
	if w.restoring.on {
		return len(w.groups[g].writes)
	}
	return w.groups[g].stored
}

// backupFor returns the writes that an order after a lost quorum restores, and of which raft group they are. Of the lineage of the record,
// it restores all that the store has, and of another one exactly the revision that the order names.
func (w *lostWorld) backupFor(order *leases.Recovery, current string) (writes []int, from int, ok bool) {
	from = w.lineageOf(order.Lineage)
	if from < 0 || w.damaged {
		return nil, 0, false
	}
	group, n := &w.groups[from], w.inStore(from)
	if order.Lineage != current {
		n = min(n, int(order.Revision-group.base))
	}
	if w.mutant&mutOldBackup != 0 {
		return slices.Clone(group.writes[:min(n, 1)]), from, true
	}
	if n <= 0 || group.base+int64(n) < order.Revision {
		return nil, 0, false
	}
	return slices.Clone(group.writes[:n]), from, true
}

// lineageOf is the raft group with a lineage, or negative.
func (w *lostWorld) lineageOf(lineage string) int {
	return slices.IndexFunc(w.groups, func(g lostGroup) bool { return g.lineage == lineage })
}

// repairBackups replaces damaged objects in the backup store. The agents try again.
func (w *lostWorld) repairBackups() {
	w.damaged = false
	for k := range w.members {
		w.members[k].cannotExecute = ""
	}
}

// lateLooks is how often druid may look after a disk report before an order must take it into account: another write of the record can come
// before its own.
const lateLooks = 6

// countAcks remembers whose acknowledgements an order to execute is about.
func (w *lostWorld) countAcks(kind policy.Kind, seen policy.Observed) {
	if kind != policy.ExecuteRecovery {
		return
	}
	for k := range w.members {
		report := seen.Members[k].Reports.Disk
		w.counted[k] = report != nil && report.Order == seen.Record.Order().Name()
	}
}

// counts says whether an order that is executed must take the disk of a member into account: druid knew of it, or had the time to release
// the order.
func (w *lostWorld) counts(k int) bool {
	acked := w.members[k].acked
	return w.counted[k] || w.druids[0].looks-acked[0] >= lateLooks || w.druids[1].looks-acked[1] >= lateLooks
}

// checkLoss compares a raft group that is formed after a lost quorum with the disks that acknowledged the order, with the loss that is
// permitted, and with the policy.
func (w *lostWorld) checkLoss(k int, order leases.Recovery) {
	m := &w.members[k]
	from := m.group
	if order.Mode == leases.RecoverBackup {
		from = w.groups[m.buildOf].parent
	}
	done := w.record.Recovered
	undone := from != w.newest && done != nil && done.Mode == leases.RecoverRestore // the disks hold what a restore undid
	for j := range w.members {
		o := &w.members[j]
		if _, votes := w.groups[from].voters[uint64(o.identity.MemberID)]; order.Mode == leases.RecoverBackup && !votes {
			continue // druid uses the disk of a learner only where there is no backup
		}
		if o.there && o.group == from && !undone && !w.has(m.buildOf, w.groups[from].writes[:o.index]) &&
			o.lease.Disk != nil && o.lease.Disk.Order == order.Name() && w.counts(j) {
			w.violate("%s is chosen, and the disk of %s has more", names[k], names[j])
		}
	}
	permitted, unmeasured := order.Revisions, order.Unmeasured
	loss, approved := w.losses[order.Plan]
	switch {
	case approved && loss == nil:
		unmeasured = true
	case approved:
		permitted = max(permitted, *loss)
	case !order.Approved && w.policy.automatic && w.policy.revisions != nil:
		permitted = *w.policy.revisions
	}
	known := min(order.Known, w.groups[w.newest].base+int64(len(w.groups[w.newest].writes))) // what was not committed is no loss
	if has := w.groups[m.buildOf].fork; !unmeasured && has < known-permitted {
		w.violate("%s has %d writes, and the order permits the loss of %d of %d", names[k], has, permitted, known)
	}
	switch {
	case approved:
	case !w.policy.automatic && !order.Approved:
		w.violate("the user did not approve order %s, and the policy is Manual", order.Name())
	case !order.Approved && len(order.GiveUp) > 0:
		w.violate("order %s gives up %s without an approval", order.Name(), order.GiveUp)
	}
}
