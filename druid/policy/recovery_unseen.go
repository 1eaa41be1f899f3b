package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// A learner is promoted without druid. A member is removed without it, after the cluster record or the Lease of that member named it. If the
// members that committed this are out of reach, each list of voters that druid sees is older. So each learner that can still serve counts as
// one more voter of each list. A member that is removed and cannot serve counts as none. That is the worst case: with each vote that is
// added, the voters that can serve grow by one, and a quorum grows by one at most. With each vote that is removed, a quorum never grows.
//
// A quorum of a list commits a promotion. If each quorum of it has a member that acknowledged with intact data, the log of that member has the
// promotion, and its disk report has the learner as a voter. The voters that are left are then fewer than a quorum also after a removal.
//
// A learner of which druid does not know cannot have a vote. It is promoted only after its Lease shows the raft ID under which it runs
// (PromotionFacts.Reported in membership), and a Lease does not lose that. If the Lease was deleted, the published list can have the learner.

// canServe says whether voters of a list that can serve are a quorum, together with learners that can have got a vote since.
func canServe(open, voters, learners int) bool { return open+learners >= quorum(voters+learners) }

// servedAfter is for how long a quorum can have served after a Lease was renewed last. If druid sees the loss in time, that is one
// renewal. Else the API server did not respond, or druid did not run, and the agents can have failed to renew their Leases meanwhile.
func (w RecoveryWish) servedAfter(renewed, lost time.Time) time.Duration {
	if late := lost.Sub(renewed) - w.Expiry; !lost.IsZero() && late > w.Expiry {
		return w.Renewal + late
	}
	return w.Renewal
}

// unheard are voters that can have served as a quorum after the last renewal of a Lease, without the API server: their agents reported nothing
// since. It is empty if they are too few.
func (r *recovery) unheard() (names []string) {
	for _, list := range r.lists {
		var silent []string
		for _, p := range r.voters {
			if slices.Contains(list, p.id) && p.silent() {
				silent = append(silent, p.name())
			}
		}
		if len(silent) >= quorum(len(list)) {
			names = append(names, silent...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// silent says whether nothing shows when the voter stopped serving: it is away, or its node is declared out of service. A member whose agent
// runs reports that it finds no quorum, and a kubelet reports that a Pod ended.
func (p oldVoter) silent() bool {
	return !p.known || p.report == nil && (p.holds == holdsUnknown || p.gaveUp || p.member.Node == NodeOutOfService)
}

// observeUnseen finds the members that can have got a vote, or lost it, since the lists of voters.
func (r *recovery) observeUnseen(o Observed, listed []Member) {
	if s := o.Record.Replacing; s != nil {
		r.removable = append(r.removable, s.MemberID)
	}
	for _, p := range r.voters {
		if r.canBeRemoved(p, o.Record) {
			r.removable = append(r.removable, p.id)
		}
	}
	for _, m := range o.Members {
		begun := m.Reports.Removal.State == leases.RemovalBegun || m.Reports.Removal.State == leases.RemovalDone
		if m.Lease == LeaseOurs && m.Readable && begun && m.Reports.Removal.ClusterID == leases.FormatID(o.Record.ClusterID) {
			r.removable = append(r.removable, m.Reports.Removal.MemberID)
		}
	}
	for _, m := range listed {
		if id := groupID(m, o); id != "" {
			p := oldVoter{id: id, member: m, known: true, learner: !m.reportsVoter()}
			r.observeVoter(&p, o)
			r.unseen = append(r.unseen, p)
		}
	}
}

// canBeRemoved says whether the voter can have been removed: it has the slot to leave, or the slots are not known. A record that druid made
// again lost them, and has no list of members. Then each member that lost its data can have removed itself. That is so only for the fences of
// an order: before it, each plan would give up more than it needs.
func (r *recovery) canBeRemoved(p oldVoter, record leases.Record) bool {
	if s := record.PendingRemoval; s != nil && p.known && p.member.Name == s.Member {
		return true
	}
	return r.order != nil && record.MemberList == nil && p.holds == holdsNothing && !p.gaveUp
}

// groupID is the ID of a member in the record's raft group by its Lease, or that of a learner by its disk report or the published list. It
// is empty for a member that has none.
func groupID(m Member, o Observed) string {
	switch {
	case m.Lease == LeaseOurs && m.Readable && m.Reports.ID != 0 && m.Reports.ClusterID == o.Record.ClusterID:
		return leases.FormatID(m.Reports.ID)
	case reportIsCurrent(m) && canLearn(*m.Reports.Disk, o) && !slices.Contains(m.Reports.Disk.VoterIDs(), m.Reports.Disk.Member):
		return m.Reports.Disk.Member
	case o.Record.MemberList == nil:
		return ""
	}
	for _, e := range o.Record.MemberList.Members {
		if e.Learner && (e.Name == m.Name || leases.MemberOfURL(e.PeerURL) == m.Name) {
			return e.ID
		}
	}
	return ""
}

// acknowledged says whether the voters that could still serve are fewer than a quorum of each list, and each member that is here with data
// acknowledged.
func (r *recovery) acknowledged() acks {
	if len(r.lists) == 0 || slices.ContainsFunc(r.lists, r.couldServe) || r.pendingAcks() {
		return acksFew
	}
	return acksEnough
}

// couldServe says whether voters of the list that are not closed could be a quorum, also after changes of the members that druid did not see.
func (r *recovery) couldServe(list []string) bool {
	open, removed, intact := 0, 0, 0
	for _, id := range list {
		i := slices.IndexFunc(r.voters, func(p oldVoter) bool { return p.id == id })
		switch {
		case i < 0 || !r.voters[i].closed:
			open++
		case slices.Contains(r.removable, id):
			removed++
		case r.voters[i].sawChanges():
			intact++
		}
	}
	if len(list)-intact < quorum(len(list)) {
		return canServe(open, len(list), 0)
	}
	promoted := 0
	for _, p := range r.unseen {
		if !p.closed && !r.votesIn(list, p.member.Name) {
			promoted++
		}
	}
	return canServe(open, len(list)-removed, promoted)
}

// sawChanges says whether the disk report of the voter has each promotion to which the voter contributed.
func (p oldVoter) sawChanges() bool {
	return p.acknowledged && p.report.State == leases.DiskIntact && p.report.Member == p.id && len(p.report.VoterIDs()) > 0
}

// votesIn says whether the member called name has a vote in a list, also under an earlier ID: a member has one vote at most.
func (r *recovery) votesIn(list []string, name string) bool {
	return slices.ContainsFunc(r.voters, func(p oldVoter) bool { return p.known && p.member.Name == name && slices.Contains(list, p.id) })
}

// unlisted are members that can have a vote and are none of these voters: learners that are away, and members whose Leases report a vote that the
// list does not have yet. A learner that is here did not see its vote: its etcd finds no leader, or its disk report says what it holds.
func (r *recovery) unlisted(voters []oldVoter) []oldVoter {
	return slices.DeleteFunc(slices.Clone(r.unseen), func(p oldVoter) bool {
		return p.holds == holdsNothing || p.learner && p.holds != holdsUnknown ||
			slices.ContainsFunc(voters, func(v oldVoter) bool { return v.known && v.member.Name == p.member.Name })
	})
}

// unknownLast are voters and learners in the order in which they are given up: voters first, because a quorum without a learner can be smaller,
// and last the voters that no member is.
func unknownLast(voters, others []oldVoter) []oldVoter {
	all := slices.Concat(voters, others)
	slices.SortStableFunc(all, func(a, b oldVoter) int { return cmp.Compare(rules.YesNoOf(b.known), rules.YesNoOf(a.known)) })
	return all
}

// mayServe says whether voters that are not lost can be a quorum, together with members that the list of voters does not have, and without members
// that are given up. A removal that druid did not see, or a vote of a member that is here, counts only while another one is away, or while the
// kubelet says that one of them serves. Else those that are here find no leader. Without the others, they find none either: if the change made
// them a quorum, they would serve.
func (r *recovery) mayServe(voters, unlisted []oldVoter, without []string) bool {
	open, away, removed, promoted, here, serves := 0, 0, 0, 0, 0, false
	for _, p := range voters {
		serves = serves || p.known && p.member.up()
		switch {
		case p.holds == holdsNothing || slices.Contains(without, p.name()):
			if slices.Contains(r.removable, p.id) {
				removed++
			}
		case p.holds == holdsUnknown:
			away++
		default:
			open++
		}
	}
	for _, p := range unlisted {
		switch {
		case slices.Contains(without, p.name()):
		case p.holds == holdsUnknown:
			promoted++
		default:
			here++
		}
	}
	if away+promoted == 0 && !serves {
		removed, here = 0, 0
	}
	return canServe(open+away, len(voters)-removed, promoted+here)
}

// furtherToGiveUp returns members that are away without which the acknowledgements of a prepared order are enough, and none that
// is not needed. It returns none while a member that is not away can still acknowledge, because its data can say more.
func (r *recovery) furtherToGiveUp() (names []string) {
	if r.order.Stage != leases.StagePrepare || r.facts.acks == acksEnough {
		return nil
	}
	if slices.ContainsFunc(r.others, r.awaits) { // they are all here
		return nil
	}
	for _, p := range unknownLast(r.voters, r.unseen) {
		switch {
		case p.closed || slices.Contains(names, p.name()):
		case p.known && !p.member.away():
			return nil
		default:
			names = append(names, p.name())
		}
	}
	if r.without(names).acknowledged() == acksFew {
		return nil
	}
	return needed(names, func(fewer []string) bool { return r.without(fewer).acknowledged() == acksEnough })
}

// needed leaves out the names without which the others are enough, the last one first.
func needed(names []string, enough func([]string) bool) []string {
	for _, name := range slices.Backward(slices.Clone(names)) {
		if fewer := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name }); enough(fewer) {
			names = fewer
		}
	}
	return names
}

// without is the recovery as if members were given up too.
func (r *recovery) without(names []string) *recovery {
	given := func(list []oldVoter) []oldVoter {
		list = slices.Clone(list)
		for i, p := range list {
			list[i].closed = p.closed || slices.Contains(names, p.name())
		}
		return list
	}
	less := *r
	less.voters, less.unseen = given(r.voters), given(r.unseen)
	return &less
}
