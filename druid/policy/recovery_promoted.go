package policy

import (
	"slices"

	"github.com/etcd-druid/druid/leases"
)

// A learner is promoted without druid. If the members that committed this are out of reach, each list of voters that druid sees is older. So
// each learner that can still serve counts as one more voter of each list. That is the worst case: with each vote that is added, the voters
// that can serve grow by one, and a quorum grows by one at most.
//
// A learner of which druid does not know cannot have a vote. It is promoted only after its Lease shows the raft ID under which it runs
// (PromotionFacts.Reported in membership), and a Lease does not lose that. If the Lease was deleted, the published list can have the learner.

// canServe says whether voters of a list that can serve are a quorum, together with learners that can have got a vote since.
func canServe(open, voters, learners int) bool { return open+learners >= quorum(voters+learners) }

// observeLearners finds the members without a vote as far as is known, here or away.
func (r *recovery) observeLearners(o Observed, listed []Member) {
	for _, m := range listed {
		if id := learnerID(m, o); id != "" {
			p := oldVoter{id: id, member: m, known: true}
			r.observeVoter(&p, o)
			r.learners = append(r.learners, p)
		}
	}
}

// learnerID is the ID of a learner of the record's raft group by its Lease, its disk report or the published list. It is empty for a member
// that is none, or whose Lease reports a vote.
func learnerID(m Member, o Observed) string {
	switch {
	case m.Lease == LeaseOurs && m.Readable && m.Reports.ID != 0 && m.Reports.ClusterID == o.Record.ClusterID:
		if m.Reports.Role == leases.RoleLearner {
			return leases.FormatID(m.Reports.ID)
		}
		return ""
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

// ackedBy says whether the voters that could still serve are fewer than a quorum of each list.
func (r *recovery) ackedBy(lists [][]string) acks {
	if len(lists) == 0 {
		return acksFew
	}
	for _, list := range lists {
		open, learners := 0, 0
		for _, id := range list {
			if i := slices.IndexFunc(r.voters, func(p oldVoter) bool { return p.id == id }); i < 0 || !r.voters[i].closed {
				open++
			}
		}
		for _, p := range r.learners {
			if !p.closed && !r.votesIn(list, p.member.Name) {
				learners++
			}
		}
		if canServe(open, len(list), learners) {
			return acksFew
		}
	}
	return acksEnough
}

// votesIn says whether the member called name has a vote in a list, also under an earlier ID: a member has one vote at most.
func (r *recovery) votesIn(list []string, name string) bool {
	return slices.ContainsFunc(r.voters, func(p oldVoter) bool { return p.known && p.member.Name == name && slices.Contains(list, p.id) })
}

// awayLearners are the learners that are away and are none of these voters. One that is here did not see its vote: its etcd finds no leader,
// or its disk report says what it holds.
func (r *recovery) awayLearners(voters []oldVoter) []oldVoter {
	return slices.DeleteFunc(slices.Clone(r.learners), func(p oldVoter) bool {
		return p.holds != holdsUnknown || slices.ContainsFunc(voters, func(v oldVoter) bool { return v.known && v.member.Name == p.member.Name })
	})
}

// membersToGiveUp returns the fewest members that are away without which the others cannot be a quorum: voters first, because a quorum without
// a learner can be smaller.
func (r *recovery) membersToGiveUp(o Observed) (names []string, enough bool) {
	voters := r.electorate(o)
	learners := r.awayLearners(voters)
	left, votes := len(voters), len(learners)
	for _, p := range voters {
		if p.holds == holdsNothing {
			left--
		}
	}
	for i, p := range slices.Concat(voters, learners) {
		if !canServe(left, len(voters), votes) {
			break
		}
		switch {
		case !p.known || p.holds != holdsUnknown:
			continue
		case i < len(voters):
			left--
		default:
			votes--
		}
		names = append(names, p.member.Name)
	}
	slices.Sort(names)
	return names, len(names) > 0 && !canServe(left, len(voters), votes)
}
