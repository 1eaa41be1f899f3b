package policy

import (
	"slices"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// holding is what is known of the data of one voter.
type holding uint8

const (
	holdsUnknown holding = iota // away: it holds what it held, as far as is known
	holdsHere                   // its etcd runs without a leader, or its disk report says intact and does not acknowledge the order
	holdsFenced                 // its disk report says intact, and acknowledges an order
	holdsNothing                // lost: positive evidence says that its data is gone or unusable
)

// oldVoter is one voter of the old raft group.
type oldVoter struct {
	// id is the raft ID, or the name of the member that formed the raft group if nothing else names a voter (soleVoter).
	id string
	// member is empty for a voter that no member of the cluster is.
	member Member
	known  bool
	holds  holding
	// acknowledged says that its disk report acknowledges the order in effect. closed says that it can never serve with the old
	// data without another approval: it acknowledged, or its volume is gone.
	acknowledged, closed bool
	gaveUp               bool
	// runsAnother says that the etcd of the member runs with another raft ID in the same raft group: it joined again, and the published
	// list is older than that.
	runsAnother bool
	// learner says that the member has no vote, and that its etcd can run with the data of the record's raft group.
	learner bool
	report  *leases.DiskReport
}

// name is that of the member, or the ID of a voter that no member is.
func (p oldVoter) name() string {
	if p.known {
		return p.member.Name
	}
	return p.id
}

// isCalled says whether a plan means the voter by this name.
func (p oldVoter) isCalled(name string) bool { return name == p.id || name == p.name() }

// groupQuorum says whether the old raft group serves: an agent renews its Lease only while its etcd is healthy in the
// cluster, and a kubelet calls etcd ready only if it answers a read of a quorum.
func groupQuorum(o Observed, listed []Member) rules.Answer {
	answer, ready := rules.Answer(rules.No), 0
	for _, m := range listed {
		switch {
		case m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Reports.ID != 0 && m.Reports.Role != leases.RoleLearner && m.ofGroup(o):
			return rules.Yes
		case m.Liveness == leases.Unknown && m.Lease == LeaseOurs:
			answer = rules.Unknown
		}
		if m.up() {
			ready++
		}
	}
	switch {
	case len(listed) > 0 && ready >= quorum(len(listed)):
		return rules.Yes
	case len(listed) == 0:
		return rules.Unknown
	}
	return answer
}

// ofGroup says whether the Lease reports a member of the record's raft group, or of a later one. A member of an earlier group
// can still serve: it was away when the cluster was formed again.
func (m Member) ofGroup(o Observed) bool {
	return m.Reports.ClusterID == 0 || o.Record.ClusterID == 0 || m.Reports.ClusterID == o.Record.ClusterID || m.Reports.Epoch > o.Record.FormedEpoch
}

// nextEpoch is higher than every epoch that druid knows of: also than those that agents wrote to their volumes. It is 0 if there is none.
func nextEpoch(o Observed) uint32 {
	highest := max(o.Record.Epoch, o.Record.FormedEpoch, o.Record.Released)
	for _, m := range o.Members {
		highest = max(highest, m.Reports.Epoch)
		if c := m.Reports.Disk; c != nil {
			highest = max(highest, c.Epoch, c.Prepared)
		}
	}
	return highest + 1
}

// reportApplies says whether the disk report of a member is about its present Pod and volume and about the record's raft group, or an
// empty volume.
func reportApplies(m Member, o Observed) bool {
	return reportIsCurrent(m) && (m.Reports.Disk.Cluster == "" || uniqueReport(m, o))
}

// reportIsCurrent says whether the disk report of a member is about its present Pod and volume, and the volume belongs to it.
func reportIsCurrent(m Member) bool {
	c := m.Reports.Disk
	return m.Lease == LeaseOurs && m.Readable && c != nil && c.Pod == m.Reports.PodUID && c.Volume == m.Reports.VolumeUID &&
		c.State != leases.DiskForeign && c.State != leases.DiskNewer
}

// diskGroup is the raft group of the data that is in place on the disk of the member, while its etcd does not run. An agent puts the data of a
// recovery in place only after the raft group was formed. Data of the first bootstrap can be that of a lost attempt, so it says nothing alone.
// If an order of that epoch was released later, the raft group before continues, and this one never ran.
func (m Member) diskGroup(o Observed) leases.Member {
	if !reportIsCurrent(m) || m.Reports.Disk.State != leases.DiskIntact || m.Reports.Disk.Epoch <= o.Record.Released {
		return leases.Member{}
	}
	id, err := leases.ParseID(m.Reports.Disk.Cluster)
	if err != nil {
		return leases.Member{}
	}
	return leases.Member{ClusterID: id, Epoch: m.Reports.Disk.Epoch, Lineage: m.Reports.Disk.Lineage}
}

// laterOnDisk is a later raft group than the one with this ID and epoch, if the data of one is in place on a disk. If neither is known, a disk
// says nothing.
func laterOnDisk(id uint64, epoch uint32, o Observed) (uint64, uint32) {
	for _, m := range o.Members {
		if disk := m.diskGroup(o); id != 0 && epoch > 0 && disk.Epoch > epoch {
			id, epoch = disk.ClusterID, disk.Epoch
		}
	}
	return id, epoch
}

// uniqueReport says whether the disk report of a member is about the record's raft group, or a later one, and no other disk report names
// the same raft ID.
func uniqueReport(m Member, o Observed) bool {
	c := m.Reports.Disk
	return (c.Cluster == leases.FormatID(o.Record.ClusterID) || c.Epoch > o.Record.FormedEpoch) && onlyReport(m, o)
}

// onlyReport says whether no other disk report names the same raft ID.
func onlyReport(m Member, o Observed) bool {
	c := m.Reports.Disk
	for _, other := range o.Members {
		if d := other.Reports.Disk; other.Name != m.Name && d != nil && d.Cluster == c.Cluster && d.Member == c.Member {
			return false
		}
	}
	return true
}

// volumeGone is evidence that the data of a member does not exist any more.
func volumeGone(m Member) bool {
	if m.Claim == ClaimAbsent && m.Pod == PodAbsent {
		return true
	}
	return m.Node == NodeOutOfService && m.Volume == VolumeLocal && m.Claim&(ClaimPresent|ClaimUnwanted) != 0
}

// observeVoterLists finds the voters of the published list, of the Leases and of the disk reports, and returns these lists of IDs. The
// published list and a lagging disk can be older than the last change of the members, and then the Leases have more.
func (r *recovery) observeVoterLists(o Observed, listed []Member) (lists [][]string) {
	var published []string
	if o.Record.MemberList != nil {
		for _, e := range o.Record.MemberList.Members {
			if !e.Learner {
				published = append(published, e.ID)
			}
		}
		lists = append(lists, published)
	}
	if reported := reportedVoters(o, listed); len(reported) > 0 {
		lists = append(lists, reported)
	}
	for _, m := range listed {
		if reportApplies(m, o) && (r.order == nil || m.Reports.Disk.Order == r.order.Name()) {
			lists = append(lists, m.Reports.Disk.VoterLists()...)
		}
	}
	ids := slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...))))
	for _, id := range ids {
		r.voters = append(r.voters, r.oldVoterOf(id, o, listed))
	}
	return lists
}

// reportedVoters are the IDs of the members that reported a vote in the record's raft group.
func reportedVoters(o Observed, listed []Member) (ids []string) {
	for _, m := range listed {
		if m.reportsVoter() && m.Reports.ID != 0 && m.Reports.ClusterID == o.Record.ClusterID {
			ids = append(ids, leases.FormatID(m.Reports.ID))
		}
	}
	return ids
}

func (r *recovery) oldVoterOf(id string, o Observed, listed []Member) oldVoter {
	p := oldVoter{id: id}
	i := slices.IndexFunc(listed, func(m Member) bool { return hasID(m, id, o) })
	if i < 0 {
		r.observeUnknown(&p)
		return p
	}
	p.member, p.known = listed[i], true
	r.observeVoter(&p, o)
	return p
}

// gaveUp says whether the order gives the voter up, by the name of its member or by its ID.
func (r *recovery) gaveUp(p oldVoter) bool {
	return r.order != nil && slices.ContainsFunc(r.order.GiveUp, p.isCalled)
}

// observeUnknown fills in what is known of the data of a voter that no member is.
func (r *recovery) observeUnknown(p *oldVoter) {
	if p.gaveUp = r.gaveUp(*p); p.gaveUp {
		p.holds, p.closed = holdsNothing, true
	}
}

// observeVoter fills in what is known of the data of a voter whose member is known.
func (r *recovery) observeVoter(p *oldVoter, o Observed) {
	m := p.member
	p.gaveUp = r.gaveUp(*p)
	if reportApplies(m, o) {
		p.report = m.Reports.Disk
		p.acknowledged = r.order != nil && p.report.Order == r.order.Name()
	}
	p.runsAnother = p.report == nil && runsInGroup(m, o) && leases.FormatID(m.Reports.ID) != p.id
	p.holds = holdingOf(*p, o)
	p.closed = p.acknowledged || volumeGone(m) || p.gaveUp
}

// holdingOf is what is known of the data of a member's voter.
func holdingOf(p oldVoter, o Observed) holding {
	switch state := diskOf(p.member, p.report); {
	case volumeGone(p.member), state == leases.DiskEmpty, state == leases.DiskCorrupt, state == leases.DiskStale:
		return holdsNothing
	case p.report != nil && state == leases.DiskIntact && p.report.Member != p.id, p.runsAnother:
		return holdsNothing // a raft ID starts once on a volume
	case p.report != nil && state == leases.DiskIntact && p.report.Prepared > o.Record.Released:
		return holdsFenced
	case state == leases.DiskIntact && p.member.Pod == PodLive && !p.member.NodeLost:
		return holdsHere
	case p.gaveUp:
		return holdsNothing
	default:
		return holdsUnknown
	}
}

// diskOf is the state of a member's disk: by its disk report, or else by what its agent reports while it waits to start etcd. An
// etcd that runs has intact data. It is empty if nothing is known.
func diskOf(m Member, report *leases.DiskReport) leases.DiskState {
	switch {
	case report != nil:
		return report.State
	case m.Lease != LeaseOurs || !m.Readable || m.Pod != PodLive || m.NodeLost || m.Reports.PodUID != m.PodUID:
		return ""
	case m.Reports.Reason == "":
		return leases.DiskIntact
	}
	state, _, _ := strings.Cut(m.Reports.Data, " ")
	switch known := leases.DiskState(state); known {
	case leases.DiskEmpty, leases.DiskCorrupt, leases.DiskStale, leases.DiskIntact:
		return known
	default:
		return ""
	}
}

// runsInGroup says whether the etcd of the member runs in the record's raft group, as its Lease reports.
func runsInGroup(m Member, o Observed) bool {
	return diskOf(m, nil) == leases.DiskIntact && m.Reports.ID != 0 && m.Reports.ClusterID == o.Record.ClusterID
}

// hasID says whether the member has the ID, by its Lease, its disk report or the published list.
func hasID(m Member, id string, o Observed) bool {
	if m.Lease == LeaseOurs && m.Readable && (m.Reports.ID != 0 && leases.FormatID(m.Reports.ID) == id || m.Reports.Disk != nil && m.Reports.Disk.Member == id) {
		return true
	}
	return o.Record.MemberList != nil && slices.ContainsFunc(o.Record.MemberList.Members, func(e leases.ListedMember) bool {
		return e.ID == id && (e.Name == m.Name || leases.MemberOfURL(e.PeerURL) == m.Name)
	})
}

// away says whether no agent of the member can acknowledge an order: its node is unreachable, or its Pod was not live for a minute.
func (m Member) away() bool { return m.NodeLost || m.Absent }

// starts says whether the agent of the member can acknowledge an order soon: its Pod was replaced, or is replaced now.
func (m Member) starts() bool {
	return !m.away() && !m.Stuck && (m.Pod != PodLive || m.Lease == LeaseOurs && m.Readable && m.Reports.PodUID != m.PodUID)
}

// pendingAcks says whether a member that can still acknowledge the order did not: the one that it chose, or one that is here
// with its data or starts. Its data can be the best.
func (r *recovery) pendingAcks() bool {
	return slices.ContainsFunc(r.others, r.awaits) || r.order != nil && slices.ContainsFunc(r.voters, func(p oldVoter) bool {
		chosen := p.known && p.member.Name == r.order.Chosen && !r.order.Restores() // any member can restore a backup
		starts := p.known && p.holds == holdsUnknown && p.member.starts()
		return !p.closed && (p.holds == holdsHere || p.runsAnother || starts || chosen && p.holds != holdsNothing)
	})
}

// awaits says whether an order waits for a member without a vote: the one that it chose, or a learner that can serve. Its log can have a vote
// for it that no list of voters has yet. A restore does not need the data of a learner, which is no quorum without a voter.
func (r *recovery) awaits(p oldVoter) bool {
	switch {
	case r.order == nil || p.closed:
		return false
	case p.member.Name == r.order.Chosen:
		return true
	case r.order.Restores():
		return p.learner && p.holds == holdsHere && slices.ContainsFunc(r.voters, func(v oldVoter) bool { return !v.closed })
	default:
		return p.learner && p.holds == holdsHere
	}
}

// chosenUsable says whether the chosen member can still carry out the order: nothing says that its disk changed.
func (r *recovery) chosenUsable(listed []Member) bool {
	if r.order.Stage != leases.StageExecute {
		return true
	}
	if slices.ContainsFunc(listed, func(m Member) bool { return m.Name == r.order.Chosen && volumeGone(m) }) {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(r.voters, r.others), func(p oldVoter) bool {
		return p.member.Name == r.order.Chosen && p.acknowledged && p.report.Digest() != r.order.Report
	})
}
