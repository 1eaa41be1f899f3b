package membership

import (
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
)

// One-bit enums: a fact holds exactly one bit, a rule's cell may hold several.
type (
	// Kind of an entry of the member list.
	Kind uint8
	// Voters counts the voters of the list.
	Voters uint8
)

// The kinds. A member is started once it published its name.
const (
	VoterUnstarted Kind = 1 << iota
	VoterStarted
	LearnerUnstarted
	LearnerStarted
)

// One voter has no second one to lose; more have.
const (
	OneVoter Voters = 1 << iota
	MoreVoters
)

var (
	kindNames = map[Kind]string{
		VoterUnstarted: "voter unstarted", VoterStarted: "voter started",
		LearnerUnstarted: "learner unstarted", LearnerStarted: "learner started",
	}
	votersNames = map[Voters]string{OneVoter: "one", MoreVoters: "more"}
)

func (k Kind) String() string   { return kindNames[k] }
func (v Voters) String() string { return votersNames[v] }

// KindOf an entry.
func KindOf(m Member) Kind {
	switch {
	case m.Learner && m.Started():
		return LearnerStarted
	case m.Learner:
		return LearnerUnstarted
	case m.Started():
		return VoterStarted
	default:
		return VoterUnstarted
	}
}

// VotersOf a list.
func VotersOf(v View) Voters {
	if len(v.Voters()) <= 1 {
		return OneVoter
	}
	return MoreVoters
}

// Desired says whether m is one of names; a member that never started is known by its peer URL alone.
func Desired(m Member, names []string, peerURL func(name string) string) rules.Answer {
	if m.Started() {
		return rules.AnswerOf(slices.Contains(names, m.Name))
	}
	return rules.AnswerOf(slices.ContainsFunc(names, func(name string) bool { return slices.Contains(m.PeerURLs, peerURL(name)) }))
}

// QuorumWithout says whether the voters that are left when the member with id is gone hold a healthy quorum. health is
// each voter's own answer; a voter without one is Unknown, and counts as not healthy. Unknown means that the unknown
// voters decide.
func QuorumWithout(v View, id uint64, health map[uint64]rules.Answer) rules.Answer {
	var left, healthy, unknown int
	for _, m := range v.Voters() {
		if m.ID == id {
			continue
		}
		left++
		switch health[m.ID] {
		case rules.Yes:
			healthy++
		case rules.No:
		default:
			unknown++
		}
	}
	switch quorum := Quorum(left); {
	case left == 0, healthy+unknown < quorum:
		return rules.No
	case healthy >= quorum:
		return rules.Yes
	default:
		return rules.Unknown
	}
}
