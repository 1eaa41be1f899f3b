package policy

import (
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// rolling summarizes the state of outdated Pods or, if there are none, of outdated agents.
type rolling uint8

const (
	rollingNone           rolling = 1 << iota // none is outdated
	rollingGoes                               // one is replaced, or is about to be
	rollingBlocked                            // none is, until something else is repaired
	rollingUpgrades                           // they go to another version of etcd, one after another
	rollingUpgradeBlocked                     // they are to, and none does until something else is repaired
	agentsGo                                  // no Pod is outdated; an agent is replaced, or is about to be
	agentsBlocked                             // nor is any agent replaced, until something else is repaired
)

func (r rolling) String() string {
	return rules.Word(r, "none", "replaced", "blocked", "change version", "change of version blocked", "agents replaced", "agents blocked")
}

// rollout is the decision of the policy about each listed member.
type rollout struct {
	verdicts map[string]rules.Decision[verdict]
	// next is the member whose Pod is deleted next, or an empty string.
	next string
	sum  rolling
	// hindrance names what blocks the replacement of an outdated Pod; empty while one is replaced.
	hindrance string
}

func rolloutOf(e Evaluation) rollout {
	r := rollout{verdicts: map[string]rules.Decision[verdict]{}, sum: rollingNone}
	for _, m := range e.listed {
		f := rolloutFactsOf(m, e)
		decision := braked(rules.YesNoOf(e.Expired), rolloutRows.Decide(f))
		r.verdicts[m.Name] = decision
		switch decision.Verdict {
		case remove:
			if r.next == "" {
				r.next = m.Name
			}
		case wait:
			if r.sum != rollingBlocked {
				r.sum = rollingGoes
			}
		case held:
			r.sum = rollingBlocked
		default:
			continue
		}
		if words := hindranceOf(m, f, e); r.hindrance == "" || decision.Verdict == held {
			r.hindrance = words
		}
	}
	if r.next != "" {
		r.sum, r.hindrance = rollingGoes, ""
	}
	return r.upgrading(e)
}

// upgrading reports a change of version from another rolling update. It goes on after the last Pod, until the members were compared.
func (r rollout) upgrading(e Evaluation) rollout {
	u := e.upgrade
	switch {
	case u.facts.course == courseNone:
	case r.sum == rollingBlocked, r.sum == rollingNone && u.gate&(gateClosed|gateRefused) != 0:
		r.sum = rollingUpgradeBlocked
	default:
		r.sum = rollingUpgrades
	}
	if r.sum&(rollingUpgrades|rollingUpgradeBlocked) != 0 && r.next == "" && r.hindrance == "" {
		r.hindrance = upgradeHindrance(e)
	}
	return r
}

// hindranceOf says in words what keeps the outdated Pod of m.
func hindranceOf(m Member, f rolloutFacts, e Evaluation) string {
	_, why := othersOf(m, e.Observed, e.listed)
	switch {
	case f.make != MakeOutdated:
		return growing(m)
	case f.gate == gateRefused, f.podHealth&(podHealthIdle|podHealthDown) != 0 && f.gate != gateOpen:
		return upgradeHindrance(e)
	case f.record != RecordFormed:
		return "the cluster has not formed yet"
	case f.podHealth == podHealthAway:
		return "member " + m.Name + " is on an unreachable node"
	case f.turn == rules.No:
		return outOfTurn(m, e.Observed)
	case f.podHealth == podHealthDown:
		return "member " + m.Name + " is not ready, and the others are not a healthy quorum without it"
	case f.podHealth&(podHealthLearns|podHealthNotKnown) != 0:
		return "member " + m.Name + " is not known to be a ready voter yet"
	case f.room == RoomGrows:
		return growing(m)
	case why != "":
		return why
	case f.gate != gateOpen:
		return upgradeHindrance(e)
	case f.saved == rules.No:
		return "backups fail (see condition BackupReady)"
	case f.place == placeLater:
		return "" // the one that goes before it says what it waits for
	default:
		return "it is not known which member leads"
	}
}

// outOfTurn says which other change is in progress.
func outOfTurn(m Member, o Observed) string {
	if _, other := removalGateOf(m, o); other != "" {
		return other
	}
	if m.dataDiffers() {
		return "member " + m.Name + " has data that differs from that of the others"
	}
	return "another member is being replaced, removed or repaired"
}

func growing(m Member) string {
	return "the volume of member " + m.Name + " grows to spec.storage.size"
}

// updated counts the members that run what the spec requests.
func (o Observed) updated() int {
	n := 0
	for _, m := range o.listed() {
		if m.Make == MakeCurrent && m.up() && m.Room != RoomGrows {
			n++
		}
	}
	return n
}

// rolloutSteps delete at most one outdated Pod, and none while another goes by this plan already.
func rolloutSteps(e Evaluation, leaving map[string]bool, add func(Step)) {
	r := e.rollout
	for _, m := range e.listed {
		if r.verdicts[m.Name].Verdict == mark {
			add(Step{Kind: AdoptPod, Rule: r.verdicts[m.Name].Rule, Stage: StageMarks, Member: m.Name, PodUID: m.PodUID})
		}
	}
	if r.next == "" || slices.ContainsFunc(e.listed, func(m Member) bool { return leaving[m.Name] }) {
		return
	}
	m, _ := e.member(r.next)
	leaving[m.Name] = true
	add(Step{
		Kind: DeletePod, Rule: r.verdicts[m.Name].Rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, Toll: tollOfChange(m),
	})
}

// tollOfChange is the cost of replacing the Pod of m: none if no etcd runs in it.
func tollOfChange(m Member) Toll {
	if m.Pod == PodLive && !m.Idle {
		return TollChoice
	}
	return TollNone
}

// rollingMessage reports the progress of a rolling update and what it waits for.
func rollingMessage(p messageContext) string {
	r := p.rollout
	words := fmt.Sprintf("%d of %s updated: ", p.updated(), count(len(p.listed)))
	switch {
	case r.next != "":
		return words + "member " + r.next + " is being restarted"
	case r.sum == rollingBlocked:
		return words + "no other Pod is replaced, because " + p.inFull(r.hindrance)
	default:
		return words + r.hindrance
	}
}

// inFull adds what the status reports about the member that the hindrance names.
func (p messageContext) inFull(hindrance string) string {
	return hindrance + p.first(v1alpha1.MemberNotReady)
}
