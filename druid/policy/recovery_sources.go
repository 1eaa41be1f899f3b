package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// dataClass orders the data of a source. The better one comes first.
type dataClass int

const (
	dataIntact    dataClass = iota
	dataStale               // older than what the member reported before
	dataDiffering           // differs from that of a majority of all voters
	dataDatabase            // the log is damaged, and is used only up to what is known to be committed
)

// source is a disk or a backup from which a raft group can be formed.
type source struct {
	mode           leases.RecoveryMode
	member         Member
	report         *leases.DiskReport // nil for a backup, and for a member whose etcd runs
	class          dataClass
	epoch          uint32
	lastTerm, last uint64
	// revision is the highest that the source can hold, and kept the highest that it holds for certain.
	revision, kept int64
	at             time.Time
	lineage        string
	// lost says what cannot be measured about the loss, empty for nothing. Such a source needs an approval.
	lost string
	// room says that the volume has room for the new raft group, as far as that is known.
	room bool
	// former says that the source is of another raft group than the record's, whose log has other terms and indexes.
	former bool
	// selected says that the order names the member. instead says that the member of the order cannot carry it out, and this one has the same
	// data.
	selected, instead bool
}

// bestSource is the best disk, or the backup of its lineage if that has more. If no voter has a disk, that of a learner certainly can have more
// than the backup: a plan from it needs an approval. A member that is away cannot form a raft group. Under an order, only acknowledged disks count.
func (r *recovery) bestSource(d Desired, o Observed) (source, bool) {
	disk, hasDisk := r.bestDisk(o, func(p oldVoter) bool { return p.holds != holdsUnknown && (r.order == nil || p.acknowledged) })
	if d.Backup {
		backup, hasBackup := r.backupSource(o)
		learner, found := r.formerDisk(o)
		if hasBackup && !hasDisk && found && !learner.former && learner.lineage == backup.lineage && learner.kept > backup.revision {
			disk, hasDisk = learner, true
		}
		if hasBackup && (!hasDisk || backup.lineage == disk.lineage && backup.revision > disk.revision) {
			return backup, true
		}
	}
	if !hasDisk {
		return r.formerSource(d, o)
	}
	return disk, hasDisk
}

// bestDisk returns the best source among the disks that may be used. All that a disk with a damaged log holds is committed. So it is better
// than the best of the others if it holds more, because that one lacks committed entries then.
func (r *recovery) bestDisk(o Observed, may func(oldVoter) bool) (best source, found bool) {
	var intact, damaged []source
	for _, p := range r.voters {
		if !p.known || !may(p) {
			continue
		}
		s, usable := diskSource(p, o)
		s.selected = r.order != nil && r.order.Chosen == s.member.Name
		switch {
		case !usable:
		case s.class == dataDatabase:
			damaged = append(damaged, s)
		default:
			intact = append(intact, s)
		}
	}
	best, found = bestOf(intact)
	if whole, usable := bestOf(damaged); usable && (!found || whole.epoch > best.epoch || whole.epoch == best.epoch && whole.last > best.last) {
		return whole, true
	}
	best = r.insteadOf(best, intact)
	best.at = best.reportedAt(intact)
	return best, found
}

// reportedAt is when a disk with the data of the source was reported last. What one of them held then, each of them holds.
func (s source) reportedAt(disks []source) time.Time {
	at := s.at
	for _, other := range disks {
		if other.holdsAs(s) && other.at.After(at) {
			at = other.at
		}
	}
	return at
}

// bestOf is the best source of a list.
func bestOf(list []source) (best source, found bool) {
	for _, s := range list {
		if !found || s.better(best) {
			best, found = s, true
		}
	}
	return best, found
}

func diskSource(p oldVoter, o Observed) (source, bool) {
	m := p.member
	s := source{mode: leases.RecoverSurvivor, member: m, report: p.report, at: m.Renewed, epoch: m.Reports.Epoch, lastTerm: m.Reports.Raft.LastTerm,
		last: m.Reports.Raft.LastIndex, revision: m.Reports.Revision, kept: m.Reports.Revision, lineage: m.Reports.Lineage,
		lost: p.lostAsLearner()}
	c := p.report
	if m.holdsDifferingData(o) {
		s.class = dataDiffering
	}
	if c == nil {
		return s, (p.holds == holdsHere || p.runsAnother) && m.Readable && m.Reports.ClusterID == o.Record.ClusterID && m.Reports.Revision > 0
	}
	s.room = c.Free == 0 || c.Free >= c.Size+newLogSpace
	s.epoch, s.lastTerm, s.last, s.revision, s.kept, s.lineage = c.Epoch, c.LastTerm, c.Last, c.Revision+int64(c.Tail), c.Revision, c.Lineage
	switch {
	case c.Cluster == "" || volumeGone(m):
		return s, false
	case c.State == leases.DiskIntact:
	case c.State == leases.DiskStale:
		s.class = max(s.class, dataStale)
	case c.State == leases.DiskCorrupt && c.WholeDB:
		// The agent applies the entries of the tail, which ends at the last one that is known to be committed, or before one that is
		// missing. What can be read of the log after that says nothing about the data.
		s.class, s.revision = dataDatabase, c.Revision
		s.lastTerm, s.last = 0, c.Applied+c.Tail
	default:
		return s, false
	}
	return s, true
}

// lostAsLearner says why the loss is unknown if the disk is that of a learner. While etcd runs, the Lease has the role. Otherwise, the report has
// the voters in the data.
func (p oldVoter) lostAsLearner() string {
	learner := p.report == nil && p.member.Reports.Role == leases.RoleLearner
	if c := p.report; c != nil && c.Member != "" && c.Voters != "" {
		learner = !slices.Contains(c.VoterIDs(), c.Member)
	}
	if !learner {
		return ""
	}
	return fmt.Sprintf("member %s was a learner, whose disk can be behind those of the voters", p.member.Name)
}

// includes says whether the log of the source has everything that was committed up to an index, as a member of the same raft
// group reported it in a term. The last entry of the source has that term or a later one. So its log continues that of the
// leader of the term, or that of a leader that was elected with all committed entries.
func (s source) includes(term, index uint64) bool {
	return s.mode == leases.RecoverSurvivor && s.class == dataIntact && !s.former && index > 0 && s.lastTerm >= term && s.last >= index
}

// better orders sources: by epoch, then by the state of the data, then by the end of the log, then by the space that is free, and then by
// what the order says. So druid does not alternate between disks with the same data.
func (s source) better(other source) bool {
	return cmp.Or(cmp.Compare(s.epoch, other.epoch), cmp.Compare(other.class, s.class), cmp.Compare(s.lastTerm, other.lastTerm),
		cmp.Compare(s.last, other.last), cmp.Compare(rules.YesNoOf(s.room), rules.YesNoOf(other.room)),
		cmp.Compare(rules.YesNoOf(s.selected), rules.YesNoOf(other.selected)),
		strings.Compare(other.member.Name, s.member.Name)) > 0
}

// isOf says whether an order names the source.
func (s source) isOf(order *leases.Recovery) bool {
	if s.mode == leases.RecoverBackup {
		return order.Mode == s.mode && order.Lineage == s.lineage
	}
	return order.Mode == s.mode && order.Chosen == s.member.Name
}

// backupSource is the newest backup, and the member that would restore it.
func (r *recovery) backupSource(o Observed) (source, bool) {
	s := source{mode: leases.RecoverBackup}
	for _, report := range []leases.Backup{o.Full.Reports, o.Delta.Reports} {
		if report.EverSaved() && report.Lineage == o.Record.Lineage && report.Revision >= s.revision {
			s.revision, s.lineage = report.Revision, report.Lineage
		}
	}
	if s.revision == 0 {
		return s, false
	}
	s.kept, s.at = s.revision, o.SavedUntil
	return s, r.restoredBy(&s)
}

// restoredBy selects the member that restores the backup, and returns false if there is none: the one that the order names, or else a
// voter, or else a member without a vote. A member that reported that it cannot carry out the order is replaced by one that is better in
// what it lacks.
func (r *recovery) restoredBy(s *source) bool {
	able := slices.DeleteFunc(slices.Concat(r.voters, r.others), func(p oldVoter) bool {
		return !p.canRestore() || r.order != nil && !p.acknowledged
	})
	if len(able) == 0 {
		return false
	}
	selected := able[0]
	if i := slices.IndexFunc(able, func(p oldVoter) bool { return r.order != nil && p.member.Name == r.order.Chosen }); i >= 0 {
		selected = able[i]
		for _, p := range able {
			if selected.member.improvedBy(p.member) {
				selected = p
			}
		}
	}
	s.member, s.report = selected.member, selected.report
	return true
}

// improvedBy says whether another member has what this one lacks by its disk report: more free space, a Pod of the present spec, or data that
// can be used. Nothing else differs between members. A member of the present spec is never replaced by one with an outdated Pod, so that
// druid does not alternate between two members.
func (m Member) improvedBy(other Member) bool {
	outdated, otherOutdated := m.Make == MakeOutdated, other.Make == MakeOutdated
	switch m.Reports.Disk.Failed {
	case leases.FailedSpace:
		return other.Reports.Disk.Free >= m.Reports.Disk.Free+newLogSpace && (outdated || !otherOutdated)
	case leases.FailedQuota, leases.FailedVersion:
		return outdated && !otherOutdated
	case leases.FailedData: // of its own disk
		return true
	default:
		return false
	}
}

// canRestore says whether the voter is here with a volume on which it can restore a backup.
func (p oldVoter) canRestore() bool {
	if p.report == nil || !p.report.Orders || p.holds == holdsUnknown || p.gaveUp || volumeGone(p.member) {
		return false
	}
	return p.report.State != leases.DiskNewer && p.report.State != leases.DiskFailing
}

// betterThanOrdered says whether the plan's source is an intact disk that has more than the source of the order which an agent executes.
// The backup can have grown since, but an agent restores no less than the revision in the order.
func (r *recovery) betterThanOrdered(o Observed) bool {
	best := r.plan.source
	if r.order == nil || r.order.Stage != leases.StageExecute || best.mode != leases.RecoverSurvivor || best.class != dataIntact {
		return false
	}
	if r.order.Mode == leases.RecoverBackup {
		return best.revision >= r.order.Revision
	}
	for _, p := range r.voters {
		if p.known && p.acknowledged && p.member.Name == r.order.Chosen {
			chosen, _ := diskSource(p, o)
			if chosen.class == dataDatabase { // its entries have no term here, and all are committed
				chosen.lastTerm = best.lastTerm
			}
			return best.member.Name != r.order.Chosen &&
				cmp.Or(cmp.Compare(best.epoch, chosen.epoch), cmp.Compare(best.lastTerm, chosen.lastTerm), cmp.Compare(best.last, chosen.last)) > 0
		}
	}
	return false
}

// stillGivenUp are the members of the order that are given up, without those that are back: the disk report of their disks acknowledges it.
func (r *recovery) stillGivenUp(names []string) (left []string) {
	for _, name := range names {
		if !slices.ContainsFunc(slices.Concat(r.voters, r.unseen), func(p oldVoter) bool { return p.acknowledged && p.isCalled(name) }) {
			left = append(left, name)
		}
	}
	return left
}

// fill writes to the order from where the raft group is formed.
func (s source) fill(order *leases.Recovery) {
	order.Mode, order.Chosen, order.Lineage, order.Revision = s.mode, s.member.Name, "", 0
	if s.mode == leases.RecoverBackup {
		order.Lineage, order.Revision = s.lineage, s.revision
	}
}
