package plan

import (
	"cmp"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// rank is how little a cluster loses by a member, the least first.
type rank uint8

const (
	rankNeverFormed rank = iota // already marked to be dropped
	rankOutside                 // it never was in the cluster
	rankIdle                    // a learner whose etcd does not serve
	rankDown                    // a voter that does not serve
	rankDoomed                  // one that serves from a volume that goes with its Pod
	rankLearner                 // a learner that does
	rankFollower                // a voter that does
	rankLeader                  // or one that may be it
)

func rankOf(m Member, o Observed) rank {
	learner := m.learns() && !m.publishedVoter(o)
	switch {
	case m.Readable && m.Says.Retire.Mark == NotFormed:
		return rankNeverFormed
	case m.outside() && !m.publishedVoter(o):
		return rankOutside
	case learner && !m.up():
		return rankIdle
	case !m.up():
		return rankDown
	case m.lostVolume():
		return rankDoomed
	case learner:
		return rankLearner
	case m.mayLead():
		return rankLeader
	default:
		return rankFollower
	}
}

// outside says whether the member never was in the cluster, as far as its Lease and its Pod report.
func (m Member) outside() bool {
	return m.Lease == LeaseOurs && m.Readable && !m.Says.EverFormed() && !m.Voter
}

// mayLead says whether the member's Lease calls it the leader and no one knows that it stopped: a druid that has just
// started has heard some Leases renewed before others.
func (m Member) mayLead() bool {
	return m.leads() || m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Unknown && m.Says.Role == leases.RoleLeader
}

// learns says whether the member's Lease names it a learner.
func (m Member) learns() bool {
	return m.Lease == LeaseOurs && m.Readable && m.Says.Role == leases.RoleLearner
}

// publishedVoter says whether the list that the leader's agent published has the member as a voter. A Lease that was made
// again, or of an agent that is silent since, knows nothing of the vote.
func (m Member) publishedVoter(o Observed) bool {
	return o.Record.MemberList != nil && slices.ContainsFunc(o.Record.MemberList.Members, func(entry leases.ListedMember) bool {
		return !entry.Learner && (entry.Name == m.Name || leases.MemberOfURL(entry.PeerURL) == m.Name)
	})
}

// removal candidate is the member that goes first: of those that the cluster loses least by, the newest. A cluster that forms keeps its
// seed, and of it only a member that never was in any raft group may go.
func removalCandidate(o Observed) (Member, bool) {
	candidates := o.listed()
	if o.RecordState == RecordForming {
		candidates = slices.DeleteFunc(candidates, func(m Member) bool { return m.Name == o.Record.Seed || !m.outside() })
	}
	if len(candidates) == 0 {
		return Member{}, false
	}
	return slices.MinFunc(candidates, func(a, b Member) int {
		return cmp.Or(cmp.Compare(rankOf(a, o), rankOf(b, o)), b.WasFormed.Compare(a.WasFormed), cmp.Compare(a.Name, b.Name))
	}), true
}

// wayOf says whether the other members let m go, and else which one does not and why. One that has no vote takes none away,
// so it may go whatever the others do; but a Lease that was made again, or is of a silent agent, does not take a vote away
// that the leader published.
func wayOf(m Member, o Observed) (way, string) {
	if (m.outside() || m.learns()) && !m.publishedVoter(o) {
		return wayFree, ""
	}
	found, why := wayFree, ""
	listed := o.listed()
	for _, other := range listed {
		if other.Name == m.Name {
			continue
		}
		switch ready, words := other.steady(spared(other, o, listed)); ready {
		case wayBlocked:
			return wayBlocked, "member " + other.Name + " " + words
		case wayUnknown:
			found, why = wayUnknown, "member "+other.Name+" "+words
		default:
		}
	}
	return found, why
}

// steady says whether the member is a ready voter, and else what it is, in words for a person. One that lost its volume is
// replaced first, unless the others cannot spare it: then it stays as it is, and keeps no one.
func (m Member) steady(spared rules.YesNo) (way, string) {
	switch {
	case m.Lease == LeaseAbsent:
		return wayUnknown, "has no Lease"
	case m.Lease == LeaseForeign:
		return wayBlocked, "has a Lease with another owner"
	case !m.Readable:
		return wayBlocked, "has a Lease that cannot be parsed"
	case m.Says.Retire.State == leases.RetireRemoving:
		return wayBlocked, "is being removed by an earlier request"
	case m.NodeLost:
		return wayBlocked, "is on an unreachable node"
	case m.outside():
		return wayBlocked, "has not joined yet"
	case m.learns():
		return wayBlocked, "is a learner"
	case !m.up():
		return wayBlocked, "is not ready"
	case m.lostVolume() && spared == rules.Yes:
		return wayBlocked, "has a volume that was deleted and has to be replaced"
	case m.Liveness == leases.Unknown:
		return wayUnknown, "has not renewed its Lease yet"
	case m.Liveness != leases.Live || !m.saysVoter():
		return wayBlocked, "has an agent that is not renewing its Lease"
	default:
		return m.arrived()
	}
}

// arrived says whether the member's agent, which was replaced, has shown that it works.
func (m Member) arrived() (way, string) {
	switch m.Arrival {
	case ArrivalLate:
		return wayBlocked, "has a new agent that is not renewing its Lease"
	case ArrivalAwaited, ArrivalSettles:
		return wayUnknown, "has a new agent"
	default:
		return wayFree, ""
	}
}
