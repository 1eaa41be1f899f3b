package policy

import (
	"slices"
	"strings"
)

type (
	// Toll is what a step that takes something away from a member costs the cluster.
	Toll uint8
	// deed is the type of a step in needRows. A cell has exactly one.
	deed uint8
	// shared are objects that all members use.
	shared uint8
)

// The tolls. A step without one costs nothing.
const (
	TollNone   Toll = 1 << iota // it serves no client, and has no vote that could be lost
	TollHeal                    // it may serve, and is deleted to repair its member
	TollChoice                  // it serves, and is deleted because another spec or image is requested
	TollVote                    // a voter is removed
)

const (
	deedElse  deed = iota // stands for itself
	deedBind              // binds the Role
	deedClaim             // makes a claim
	deedPod               // makes a Pod
	deedCount             // has the budget count one Pod more
	deedHeal
	deedChoice
	deedVote
	deedAgent // replaces an agent, next to which etcd runs on
)

const (
	sharedAccount shared = 1 << iota
	sharedRole
	sharedBinding
	sharedConfig
	sharedPeers
	sharedBudget

	sharedByPods = sharedAccount | sharedRole | sharedBinding | sharedConfig | sharedPeers
)

// need is what one type of step requires.
type need struct {
	name string
	deed deed
	// there are the objects that must exist. current are those that must be up to date if they exist.
	there, current shared
	// after are steps of the same member that must not have failed.
	after []Kind
	why   string
}

// needRows define which earlier steps of the same plan a step requires. A step that fails blocks the steps that depend
// on it, and no others. For a Pod that is created again, an object that exists and could not be changed is enough: the
// Pod ran with it before.
var needRows = []need{
	{"role-before-binding", deedBind, sharedRole, 0, nil, "the API server rejects a RoleBinding for a Role that does not exist"},
	{"lease-before-claim", deedClaim, 0, 0, []Kind{CreateMemberLease}, "the Lease is created first and deleted last, because it identifies the claim"},
	{"pod-can-start", deedPod, sharedAccount | sharedConfig, 0, []Kind{CreateMemberLease, CreateClaim},
		"the API server rejects a Pod without its ServiceAccount, and the kubelet does not start it without its volumes; intact data starts without the Role"},
	{"budget-before-count", deedCount, 0, sharedBudget, nil, "each additional Pod that the budget counts would allow one more eviction"},
	{"repairs-protected", deedHeal, sharedAccount | sharedConfig | sharedBudget, sharedBudget, []Kind{LabelPod},
		"the Pod can be created again, no other Pod is evicted meanwhile, and it receives no clients"},
	{"changes-protected", deedChoice, sharedByPods | sharedBudget, sharedByPods | sharedBudget, []Kind{LabelPod},
		"a running Pod stays until everything that the new Pod needs exists"},
	{"votes-protected", deedVote, sharedBudget, sharedBudget, []Kind{LabelPod}, "no other voter is evicted while one is removed"},
	{"agent-entitled", deedAgent, sharedByPods, sharedByPods, nil, "a new agent might need what only the new objects provide"},
	{"needs-nothing", deedElse, 0, 0, nil, "it requires no earlier step"},
}

// Troubles are the failed steps of a plan, as the later steps need them.
type Troubles struct {
	// missing are the objects that could not be created, outdated those that could not be changed.
	missing, outdated shared
	// failed are the kinds of the failed steps, by member.
	failed map[string][]Kind
}

// Add records that the step failed.
func (t *Troubles) Add(s Step) {
	of := sharedOf(s)
	if s.Rule == ruleMissing {
		t.missing |= of
	} else {
		t.outdated |= of
	}
	if s.Member == "" {
		return
	}
	if t.failed == nil {
		t.failed = map[string][]Kind{}
	}
	t.failed[s.Member] = append(t.failed[s.Member], s.Kind)
}

// Leave returns what remains of the step after the failures, and whether anything remains. A step that sets several
// labels can keep some of them.
func (t *Troubles) Leave(s Step) (Step, bool) {
	if s.Kind != LabelPod {
		return s, !t.block(deedOf(s), s.Member)
	}
	if s.Voter != nil && *s.Voter && t.block(deedCount, s.Member) {
		s.Voter = nil
	}
	if s.Serving != nil && !*s.Serving && t.block(tollDeed(s.Toll), s.Member) {
		s.Serving = nil
	}
	return s, s.Voter != nil || s.Serving != nil || s.Leader != nil || s.Mark != nil
}

func (t *Troubles) block(d deed, member string) bool {
	for _, r := range needRows {
		if r.deed != d {
			continue
		}
		return t.missing&r.there != 0 || t.outdated&r.current != 0 ||
			slices.ContainsFunc(r.after, func(k Kind) bool { return slices.Contains(t.failed[member], k) })
	}
	return true
}

func deedOf(s Step) deed {
	switch s.Kind {
	case ApplyObject:
		if strings.HasPrefix(s.Object, "RoleBinding/") {
			return deedBind
		}
		return deedElse
	case CreateClaim:
		return deedClaim
	case CreatePod:
		return deedPod
	case ReplaceAgent:
		return deedAgent
	default:
		return tollDeed(s.Toll)
	}
}

func tollDeed(t Toll) deed {
	switch t {
	case TollHeal:
		return deedHeal
	case TollChoice:
		return deedChoice
	case TollVote:
		return deedVote
	default:
		return deedElse
	}
}

// sharedOf returns the object that the step creates or changes, or 0 if no other step needs it. A budget that could
// not be lowered allows fewer evictions, which is safe. Its sentence protects nothing.
func sharedOf(s Step) shared {
	kind, _, _ := strings.Cut(s.Object, "/")
	switch {
	case s.Kind == ApplyBudget && s.Rule != ruleLowered && s.Rule != ruleExplained:
		return sharedBudget
	case s.Kind != ApplyObject:
		return 0
	case kind == "Service" && s.Stage == StageLate: // that of the clients
		return 0
	default:
		return map[string]shared{
			"ServiceAccount": sharedAccount, "Role": sharedRole, "RoleBinding": sharedBinding, "ConfigMap": sharedConfig, "Service": sharedPeers,
		}[kind]
	}
}

// bearTolls gives each step that removes a Pod from the client Service the toll of the step that it prepares. So a Pod
// that stays keeps its clients.
func bearTolls(steps []Step, leaves scaleDown) {
	for i := range steps {
		s := &steps[i]
		if s.Kind != LabelPod || s.Serving == nil || *s.Serving {
			continue
		}
		s.Toll = TollNone
		if leaves.leaving(Member{Name: s.Member}) {
			s.Toll = TollVote
		}
		for _, other := range steps {
			if other.Member == s.Member && other.Kind != LabelPod {
				s.Toll = max(s.Toll, other.Toll)
			}
		}
	}
}
