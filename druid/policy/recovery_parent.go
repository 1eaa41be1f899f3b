package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-druid/druid/leases"
)

// A raft group that was formed again can be lost before another member voted and before its first full backup. Then nothing of it is left,
// but the data is where it came from: the backup of the parent lineage up to the fork, or a disk that did not join yet. What was written
// since the raft group was formed is lost, and nothing shows how much that is. So each such plan needs an approval.

// ancestry is where the raft group of the record came from.
type ancestry struct {
	fork leases.Fork
	mode leases.RecoveryMode
	// member formed the raft group.
	member string
}

// ancestryOf returns where the raft group of the record came from, by a recovery or a restore in place.
func ancestryOf(record leases.Record) (ancestry, bool) {
	done, fork := record.Recovered, record.Fork
	if done == nil || fork == nil || done.Epoch != record.FormedEpoch || fork.Parent == "" {
		return ancestry{}, false
	}
	return ancestry{fork: *fork, mode: done.Mode, member: done.Member}, true
}

// soleVoter is the list of voters of a raft group that was formed again and of which nothing else names a voter: the member that formed
// it. Later voters are in the published list or in the Leases.
func (r *recovery) soleVoter(o Observed, listed []Member) (lists [][]string) {
	from, ok := ancestryOf(o.Record)
	if !ok {
		return nil
	}
	p := oldVoter{id: from.member} // its raft ID is not known
	for _, m := range listed {
		if m.Name == from.member {
			p.member, p.known = m, true
		}
	}
	if p.known {
		r.observeVoter(&p, o)
	} else {
		r.observeUnknown(&p)
	}
	if p.report != nil && orderEpoch(*p.report) == o.Record.FormedEpoch && !volumeGone(p.member) {
		p.report, p.holds = nil, holdsUnknown // it is from before the data of the raft group was put in place
	}
	r.voters = append(r.voters, p)
	return [][]string{{p.id}}
}

// orderEpoch is the epoch of the order that a disk report acknowledges, or 0.
func orderEpoch(c leases.DiskReport) uint32 {
	epoch, _, _ := strings.Cut(c.Order, "-")
	n, err := strconv.ParseUint(epoch, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// observeOthers finds the members without a vote that are here: they can restore a backup, and hold the data of the raft group before or
// that of a learner.
func (r *recovery) observeOthers(o Observed, listed []Member) {
	for _, m := range listed {
		c := m.Reports.Disk
		if r.votes(m.Name) || m.Pod != PodLive || m.NodeLost || volumeGone(m) {
			continue
		}
		if c == nil && !runsAsLearner(m, o) || c != nil && (!reportIsCurrent(m) || c.Cluster != "" && !onlyReport(m, o)) {
			continue
		}
		p := oldVoter{member: m, known: true, report: c, holds: holdingWithoutVote(c, o), learner: c == nil || canLearn(*c, o)}
		p.acknowledged = r.order != nil && c != nil && c.Order == r.order.Name()
		p.closed = p.acknowledged
		r.others = append(r.others, p)
	}
}

// holdingWithoutVote is what is known of the data of a member that is here and has no vote: whether an order keeps its etcd from running.
func holdingWithoutVote(c *leases.DiskReport, o Observed) holding {
	if c != nil && c.Prepared > o.Record.Released {
		return holdsFenced
	}
	return holdsHere
}

// runsAsLearner says whether the etcd of the member runs as a learner of the record's raft group. Without a leader, it runs until an order
// stops it, and there is no disk report before that.
func runsAsLearner(m Member, o Observed) bool {
	return m.Reports.Role == leases.RoleLearner && runsInGroup(m, o)
}

// ofGroup are the voters and the learners of the record's raft group. A learner can have committed entries that no voter has any more.
func (r *recovery) ofGroup() []oldVoter {
	return slices.Concat(r.voters, slices.DeleteFunc(slices.Clone(r.others), func(p oldVoter) bool { return !p.learner }))
}

// canLearn says whether an etcd can run on the disk of a member without a vote, as a learner of the record's raft group.
func canLearn(c leases.DiskReport, o Observed) bool {
	return c.State == leases.DiskIntact && c.Cluster == leases.FormatID(o.Record.ClusterID)
}

// votes says whether a voter of the record's raft group is the member called name.
func (r *recovery) votes(name string) bool {
	for _, p := range r.voters {
		if p.known && p.member.Name == name {
			return true
		}
	}
	return false
}

// formerDisk is the best disk of the members without a vote: one of a learner of the record's raft group, or one of the raft group before.
// A restore in place undid what the latter holds, so it is none then.
func (r *recovery) formerDisk(o Observed) (best source, found bool) {
	from, again := ancestryOf(o.Record)
	for _, p := range r.others {
		if r.order != nil && !p.acknowledged || !p.canForm() || !p.learner && !(again && from.has(p)) {
			continue
		}
		s, usable := diskSource(p, o)
		if s.former = !p.learner; s.former {
			s.lost = from.lostSince()
		}
		if usable && (!found || s.better(best)) {
			best, found = s, true
		}
	}
	return best, found
}

// canForm says whether a member without a vote could form a raft group from its disk: its etcd runs, or its report says so.
func (p oldVoter) canForm() bool {
	return p.report == nil || p.report.State == leases.DiskIntact && p.report.Orders
}

// has says whether the disk of a member, which reports it, has the data of the raft group before. A restore in place undid what that holds.
func (f ancestry) has(p oldVoter) bool {
	return f.mode != leases.RecoverRestore && p.report.Lineage == f.fork.Parent
}

// parentBackup is the backup of the lineage from which the raft group was formed, up to the fork. The agents reported how far it reaches,
// or the raft group was formed from it.
func (r *recovery) parentBackup(o Observed) (source, bool) {
	from, ok := ancestryOf(o.Record)
	if !ok {
		return source{}, false
	}
	s := source{mode: leases.RecoverBackup, lineage: from.fork.Parent, lost: from.lostSince(), former: true}
	if from.mode != leases.RecoverSurvivor {
		s.revision = from.fork.Revision
	}
	for _, report := range []leases.Backup{o.Full.Reports, o.Delta.Reports} {
		if report.EverSaved() && report.Lineage == s.lineage {
			s.revision = max(s.revision, min(report.Revision, from.fork.Revision))
		}
	}
	if missing := from.fork.Revision - s.revision; missing > 0 {
		s.lost += fmt.Sprintf(". The backup ends %s before the fork, and these are lost too", counted(missing, "revision"))
	}
	s.kept = s.revision
	return s, s.revision > 0 && r.restoredBy(&s)
}

// formerSource is the best source outside the voters and the lineage of the record's raft group: the disk, unless the backup of its
// lineage has more.
func (r *recovery) formerSource(d Desired, o Observed) (source, bool) {
	disk, hasDisk := r.formerDisk(o)
	if !d.Backup {
		return disk, hasDisk
	}
	backup, hasBackup := r.parentBackup(o)
	if hasBackup && (!hasDisk || backup.lineage == disk.lineage && backup.revision > disk.revision) {
		return backup, true
	}
	return disk, hasDisk
}

// lostSince says what a plan loses that goes back to the raft group before.
func (f ancestry) lostSince() string {
	return fmt.Sprintf("nothing of the present raft group is left. Everything that was written since member %s formed it at %s is lost",
		cmp.Or(f.member, "unknown"), f.fork.At.UTC().Format(time.RFC3339))
}
