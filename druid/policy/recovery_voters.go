package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

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

// nextEpoch is higher than every epoch that druid knows of: also than those that agents wrote to their volumes.
func nextEpoch(o Observed) uint32 {
	highest := max(o.Record.Epoch, o.Record.FormedEpoch, o.Record.Released)
	for _, m := range o.Members {
		highest = max(highest, m.Reports.Epoch)
		if c := m.Reports.Disk; c != nil {
			highest = max(highest, c.Epoch, c.Prepared, epochOf(c.SavedLineage))
		}
	}
	return highest + 1
}

// epochOf is the epoch in the name of a lineage, 0 if there is none.
func epochOf(lineage string) uint32 {
	var epoch uint32
	if _, err := fmt.Sscanf(lineage, "%08x-", &epoch); err != nil {
		return 0
	}
	return epoch
}

// counts says whether the claim of a member is about its present Pod and volume and about the record's raft group, or an
// empty volume.
func counts(m Member, o Observed) bool {
	c := m.Reports.Disk
	if m.Lease != LeaseOurs || !m.Readable || c == nil || c.Pod != m.Reports.PodUID || c.Volume != m.Reports.VolumeUID {
		return false
	}
	if c.State == leases.DiskForeign || c.State == leases.DiskNewer {
		return false
	}
	return c.Cluster == "" || onlyClaim(m, o)
}

// onlyClaim says whether the claim of a member is about the record's raft group, or a later one, and no other member claims
// the same raft ID.
func onlyClaim(m Member, o Observed) bool {
	c := m.Reports.Disk
	if c.Cluster != leases.FormatID(o.Record.ClusterID) && c.Epoch <= o.Record.FormedEpoch {
		return false
	}
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

// observeParts finds the voters of the published list, of the Leases and of the claims, and returns these lists of IDs. The
// published list and a lagging disk can be older than the last change of the members, and then the Leases have more.
func (r *recovery) observeParts(o Observed, listed []Member) (lists [][]string) {
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
		if counts(m, o) && len(m.Reports.Disk.VoterIDs()) > 0 && (r.order == nil || m.Reports.Disk.Order == r.order.Name()) {
			lists = append(lists, m.Reports.Disk.VoterIDs())
		}
	}
	ids := slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...))))
	for _, id := range ids {
		r.parts = append(r.parts, r.partOf(id, o, listed))
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

func (r *recovery) partOf(id string, o Observed, listed []Member) part {
	p := part{id: id}
	i := slices.IndexFunc(listed, func(m Member) bool { return hasID(m, id, o) })
	if i < 0 {
		return p
	}
	p.member, p.known = listed[i], true
	m := p.member
	p.gaveUp = r.order != nil && slices.Contains(r.order.GiveUp, m.Name)
	if counts(m, o) {
		p.claim = m.Reports.Disk
		p.acknowledged = r.order != nil && p.claim.Order == r.order.Name()
	}
	p.holds = holdingOf(p, o)
	p.closed = p.acknowledged || volumeGone(m) || p.gaveUp
	return p
}

// holdingOf is what is known of the data of a member's voter.
func holdingOf(p part, o Observed) holding {
	switch state := diskOf(p.member, p.claim); {
	case volumeGone(p.member), state == leases.DiskEmpty, state == leases.DiskCorrupt, state == leases.DiskStale:
		return holdsNothing
	case p.claim != nil && state == leases.DiskIntact && p.claim.Member != p.id:
		return holdsNothing // a raft ID starts once on a volume
	case p.claim != nil && state == leases.DiskIntact && p.claim.Prepared > o.Record.Released:
		return holdsFenced
	case state == leases.DiskIntact && p.member.Pod == PodLive && !p.member.NodeLost:
		return holdsHere
	case p.gaveUp:
		return holdsNothing
	default:
		return holdsUnknown
	}
}

// diskOf is the state of a member's disk: by its claim, or else by what its agent reports while it waits to start etcd. An
// etcd that runs has intact data. It is empty if nothing is known.
func diskOf(m Member, claim *leases.Claim) leases.DiskState {
	switch {
	case claim != nil:
		return claim.State
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

// hasID says whether the member has the ID, by its Lease, its claim or the published list.
func hasID(m Member, id string, o Observed) bool {
	if m.Lease == LeaseOurs && m.Readable && (m.Reports.ID != 0 && leases.FormatID(m.Reports.ID) == id || m.Reports.Disk != nil && m.Reports.Disk.Member == id) {
		return true
	}
	return o.Record.MemberList != nil && slices.ContainsFunc(o.Record.MemberList.Members, func(e leases.ListedMember) bool {
		return e.ID == id && (e.Name == m.Name || leases.MemberOfURL(e.PeerURL) == m.Name)
	})
}

// ackedBy says whether the voters that could still serve are fewer than a quorum of each list.
func ackedBy(lists [][]string, parts []part) acks {
	if len(lists) == 0 {
		return acksFew
	}
	for _, list := range lists {
		open := 0
		for _, id := range list {
			if i := slices.IndexFunc(parts, func(p part) bool { return p.id == id }); i < 0 || !parts[i].closed {
				open++
			}
		}
		if open >= quorum(len(list)) {
			return acksFew
		}
	}
	return acksEnough
}

// pendingAcks says whether a member that can still acknowledge the order did not: the one that it chose, or one that is here
// with its data. Its data can be the best.
func (r *recovery) pendingAcks() bool {
	return r.order != nil && slices.ContainsFunc(r.parts, func(p part) bool {
		chosen := p.known && p.member.Name == r.order.Chosen
		return !p.closed && (p.holds == holdsHere || chosen && p.holds != holdsNothing)
	})
}

// electorate returns the voters by which a return of the old raft group is judged: those of the best claim's list, else of
// the published one.
func (r *recovery) electorate(o Observed) []part {
	ids := map[string]bool{}
	if best, ok := r.bestDisk(o, func(part) bool { return true }); ok && best.claim != nil && len(best.claim.VoterIDs()) > 0 {
		for _, id := range best.claim.VoterIDs() {
			ids[id] = true
		}
	} else if o.Record.MemberList != nil {
		for _, e := range o.Record.MemberList.Members {
			ids[e.ID] = !e.Learner
		}
	}
	if len(ids) == 0 { // only the Leases name the voters
		return r.parts
	}
	return slices.DeleteFunc(slices.Clone(r.parts), func(p part) bool { return !ids[p.id] })
}

// returning says whether the members that hold their data are a quorum.
func (r *recovery) returning(o Observed) returns {
	voters, lost, fenced, here := r.electorate(o), 0, 0, 0
	for _, p := range voters {
		switch p.holds {
		case holdsNothing:
			lost++
		case holdsFenced:
			fenced++
		case holdsHere:
			here++
		default:
		}
	}
	switch n := len(voters); {
	case n == 0:
		return returnsMay
	case fenced >= quorum(n), r.order == nil && fenced > 0 && fenced+here >= quorum(n): // the record can have lost the order
		return returnsFenced
	case n-lost >= quorum(n):
		return returnsMay
	default:
		return returnsNot
	}
}

// chosenUsable says whether the chosen member can still carry out the order: nothing says that its disk changed.
func (r *recovery) chosenUsable() bool {
	if r.order.Stage != leases.StageExecute {
		return true
	}
	for _, p := range r.parts {
		if p.member.Name == r.order.Chosen && (volumeGone(p.member) || p.acknowledged && p.claim.Digest() != r.order.Claim) {
			return false
		}
	}
	return true
}

// bestDisk returns the best source among the disks that may be used.
func (r *recovery) bestDisk(o Observed, may func(part) bool) (best source, found bool) {
	for _, p := range r.parts {
		if !p.known || !may(p) {
			continue
		}
		s, usable := diskSource(p, o)
		if usable && (!found || s.better(best)) {
			best, found = s, true
		}
	}
	return best, found
}

func diskSource(p part, o Observed) (source, bool) {
	m := p.member
	s := source{mode: leases.RecoverSurvivor, member: m, claim: p.claim, at: m.Renewed, epoch: m.Reports.Epoch, lastTerm: m.Reports.Raft.LastTerm,
		last: m.Reports.Raft.LastIndex, revision: m.Reports.Revision, lineage: m.Reports.Lineage}
	c := p.claim
	if c == nil {
		return s, p.holds == holdsHere && m.Readable && m.Reports.ClusterID == o.Record.ClusterID && m.Reports.Revision > 0
	}
	s.epoch, s.lastTerm, s.last, s.revision, s.lineage = c.Epoch, c.LastTerm, c.Last, c.Revision+int64(c.Tail), c.Lineage
	switch {
	case c.Cluster == "" || volumeGone(m):
		return s, false
	case c.State == leases.DiskIntact:
		s.class = 0
	case c.State == leases.DiskStale:
		s.class = 1
	case c.State == leases.DiskCorrupt && c.WholeDB:
		s.class, s.revision = 2, c.Revision
	default:
		return s, false
	}
	return s, true
}

// better orders sources: by epoch, then by the state of the data, then by the end of the log.
func (s source) better(other source) bool {
	return cmp.Or(cmp.Compare(s.epoch, other.epoch), cmp.Compare(other.class, s.class), cmp.Compare(s.lastTerm, other.lastTerm),
		cmp.Compare(s.last, other.last), cmp.Compare(s.revision, other.revision), strings.Compare(other.member.Name, s.member.Name)) > 0
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
	s.at = o.SavedUntil
	for _, p := range r.parts {
		if p.claim == nil || !p.claim.Orders || volumeGone(p.member) || p.claim.State == leases.DiskNewer || p.claim.State == leases.DiskFailing {
			continue
		}
		if s.member.Name == "" && (r.order == nil || p.acknowledged) {
			s.member, s.claim = p.member, p.claim
		}
	}
	return s, s.member.Name != ""
}
