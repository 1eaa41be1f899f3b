package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/leases"
)

// holdsDifferingData says whether the data on the volume of the member is known to differ from that of a majority of all voters. While etcd does not
// run, the disk report has the member ID. An alarm CORRUPT on a disk of the raft group says so too: etcd raises it before an agent can.
func (m Member) holdsDifferingData(o Observed) bool {
	return m.dataDiffers() || m.calledCorrupt(o) || m.Lease == LeaseOurs && m.Readable && m.Reports.Disk != nil && m.Reports.Disk.Member != "" &&
		m.Reports.Differs.MemberID == m.Reports.Disk.Member
}

// calledCorrupt says whether an alarm CORRUPT in the data of the raft group names the member. An alarm that was disarmed stays on a disk
// that does not have that entry of the log. So an earlier disk does not count if a later one decides over it.
func (m Member) calledCorrupt(o Observed) bool {
	if m.Lease != LeaseOurs || !m.Readable {
		return false
	}
	id := leases.FormatID(m.Reports.ID)
	if m.Reports.Disk != nil && m.Reports.Disk.Member != "" {
		id = m.Reports.Disk.Member
	}
	return slices.ContainsFunc(o.Members, func(raised Member) bool {
		return reportApplies(raised, o) && raised.Reports.Disk.CallsCorrupt(id) && !slices.ContainsFunc(o.Members, func(later Member) bool {
			return reportApplies(later, o) && later.decidesOver(*raised.Reports.Disk, id, o)
		})
	})
}

// decidesOver says whether the disk of the member, and not an earlier one, decides about an alarm for the member with the ID. Its log is
// intact, continues that of the earlier disk, and is known to be committed up to there. An agent leaves out an alarm for an ID that has no
// vote there, and an older agent reports none. The member with the ID decides too: a database has the alarms of the index that it names.
// While an order is in effect, druid updates no agent. So an agent that acknowledged the order still decides after druid was updated:
// otherwise each plan would need another approval, because of an alarm that does not stand.
func (m Member) decidesOver(earlier leases.DiskReport, id string, o Observed) bool {
	c, end, prefix := m.Reports.Disk, earlier.Last, earlier.Commit >= earlier.Last || earlier.LastTerm == m.Reports.Disk.LastTerm
	if earlier.State == leases.DiskCorrupt {
		end, prefix = earlier.Applied+earlier.Tail, true // all of this is committed, and what can be read of its log after that can be wrong
	}
	return prefix && c.State == leases.DiskIntact && c.Cluster == earlier.Cluster && c.Last > end && max(c.Commit, c.Applied) >= end &&
		(c.Member == id || slices.Contains(c.VoterIDs(), id)) && (m.Agent == AgentCurrent || m.acknowledges(o)) && !m.dataDiffers()
}

// acknowledges says whether the disk report of the member acknowledges the order in effect.
func (m Member) acknowledges(o Observed) bool {
	order := o.Record.Order()
	return order != nil && m.Reports.Disk.Order == order.Name()
}

// doubts are what is not certain about the data of the source.
func (s source) doubts(o Observed) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	switch s.class {
	case dataIntact, dataDiffering: // see below
	case dataStale:
		add("the disk of member %s is older than what the member reported before", s.member.Name)
	case dataDatabase:
		add("the log of member %s is damaged, and is used only up to the last entry that is known to be committed", s.member.Name)
	}
	switch {
	case s.mode != leases.RecoverSurvivor:
	case s.member.calledCorrupt(o):
		add("etcd raised an alarm CORRUPT for member %s: its values can be wrong", s.member.Name)
	case s.member.holdsDifferingData(o):
		add("the data of member %s differs from that of a majority of all voters: its values can be wrong", s.member.Name)
	}
	if s.mode == leases.RecoverSurvivor && o.Record.Undecided != (leases.Undecided{}) {
		add("the data of the members differs, and no majority has the same: compare their data before you approve the disk of member %s",
			s.member.Name)
	}
	switch object := s.brokenBackup(o); {
	case object != "":
		add("a verification found %s broken: the values in the backup can be wrong", object)
	case s.mode == leases.RecoverBackup && o.Full.Unreadable:
		add("whether the backups are broken is unknown: the Lease of the full backups cannot be parsed")
	}
	if s.lost != "" {
		add("%s", s.lost)
	}
	return all
}

// disputed says whether the data of the source might not be that of the cluster: a comparison found other data, and no majority
// has that of the source, or a verification found the backup broken.
func (s source) disputed(o Observed) bool {
	return s.brokenBackup(o) != "" || s.mode == leases.RecoverSurvivor && (s.member.holdsDifferingData(o) || o.Record.Undecided != (leases.Undecided{}))
}

// brokenBackup returns the object that makes the source doubtful, if it is a backup: the one that the last verification of its lineage found
// broken, or else the newest full backup if that is known to be broken. The agent leaves it out where others lead as far, but druid cannot
// see that.
func (s source) brokenBackup(o Observed) string {
	v, newest := o.Full.Verified, o.Full.Reports
	switch {
	case s.mode != leases.RecoverBackup:
		return ""
	case v.Verdict == leases.VerdictBroken && v.Lineage == s.lineage:
		return cmp.Or(v.Broken, v.Full, "the backup")
	case newest.Lineage == s.lineage && newest.Object != "" && slices.Contains(v.AllBroken(), newest.Object):
		return newest.Object
	default:
		return ""
	}
}
