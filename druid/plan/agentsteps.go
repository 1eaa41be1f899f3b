package plan

import (
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
)

// update is what the policy says of the agents.
type update struct {
	verdicts map[string]rules.Decision[verdict]
	// next are the members whose agents are replaced now: one, or all in whose Pods none runs.
	next []string
	sum  rolling
	// hindrance is what an outdated agent waits for, for a person; empty when one is replaced.
	hindrance string
}

func updateOf(d Desired, o Observed) update {
	listed := o.listed()
	leaves, rolls := retreatOf(d, o), takesPods(d, o)
	u := update{verdicts: map[string]rules.Decision[verdict]{}, sum: rollingNone}
	for _, m := range listed {
		f := agentFactsOf(m, leaves.leaving(m), rolls, o, listed)
		decision := agentRows.Decide(f)
		u.verdicts[m.Name] = decision
		v := decision.Verdict
		words := ""
		switch {
		case v == change && (len(u.next) == 0 || f.company == companyIdle):
			u.next = append(u.next, m.Name)
			continue
		case v == change:
			continue
		case v == held:
			u.sum, words = agentsBlocked, f.hindrance(m, o, listed)
		case m.Arrival == ArrivalLate:
			u.sum, words = agentsBlocked, m.late()
		case v == wait, m.Arrival == ArrivalAwaited:
			if u.sum != agentsBlocked {
				u.sum = agentsGo
			}
			words = f.hindrance(m, o, listed)
		default:
			continue
		}
		if u.hindrance == "" || v == held {
			u.hindrance = words
		}
	}
	if len(u.next) > 0 {
		u.sum, u.hindrance = agentsGo, ""
	}
	return u
}

// takesPods reports whether a rolling update replaces a Pod, or is about to. A version change that waits until the members are compared
// takes none. It must not hold back the agents either: the comparison can depend on what only a new agent reports.
func takesPods(d Desired, o Observed) bool {
	r := rolloutOf(d, o)
	waits := r.sum == rollingUpgrades && r.next == "" && upgradeOf(d, o).facts.check == checkAsked
	return r.sum&(rollingGoes|rollingUpgrades) != 0 && !waits
}

// hindrance says in words what the outdated agent of m waits for, or that m's own new one is awaited.
func (f agentFacts) hindrance(m Member, o Observed, listed []Member) string {
	_, why := othersOf(m, o, listed)
	_, of := newsOf(m, o, listed)
	switch {
	case f.agent != AgentOutdated:
		return "the new agent of member " + m.Name + " is awaited"
	case f.company == companyAway:
		return "member " + m.Name + " is on an unreachable node"
	case f.news == newsLate:
		late, _ := o.member(of)
		return late.late()
	case f.news == newsAwaited:
		return "the new agent of member " + of + " is awaited"
	case f.record != RecordFormed:
		return "the cluster has not formed yet"
	case f.turn == rules.No:
		return "a Pod is being replaced, or a member is being replaced, removed or repaired"
	case f.company == companyNotKnown:
		return "member " + m.Name + " is not known to be a ready voter yet"
	case why != "":
		return why
	case f.place == placeLater:
		return "" // the one that goes before it says what it waits for
	default:
		return "it is not known which member leads"
	}
}

// late says what is wrong with the member's new agent, and the cure.
func (m Member) late() string {
	return fmt.Sprintf("the new agent of member %s, of image %s, does not start; correct --agent-image of druid. "+
		"kubectl describe pod %s and kubectl logs %s -c agent show more. etcd continues to run", m.Name, m.AgentImage, m.Name, m.Name)
}

// agentSteps replace agents, and none while a Pod goes by this plan.
func agentSteps(d Desired, o Observed, leaving map[string]bool, add func(Step)) {
	u := updateOf(d, o)
	for _, name := range u.next {
		if slices.ContainsFunc(o.listed(), func(m Member) bool { return leaving[m.Name] }) {
			return
		}
		m, _ := o.member(name)
		add(Step{
			Kind: ReplaceAgent, Rule: u.verdicts[name].Rule, Stage: StageDelete, Member: name, PodUID: m.PodUID,
		})
	}
}

// rollingOf sums up what becomes of Pods, and where none is outdated, of agents.
func rollingOf(d Desired, o Observed) rolling {
	if r := rolloutOf(d, o); r.sum != rollingNone {
		return r.sum
	}
	return updateOf(d, o).sum
}

// agentWords report how far the update of the agents is, and what it waits for.
func agentWords(p picture) string {
	u := updateOf(p.Desired, p.Observed)
	n := 0
	for _, m := range p.listed() {
		if m.Agent == AgentCurrent && m.Arrival&(ArrivalAwaited|ArrivalLate) == 0 {
			n++
		}
	}
	words := fmt.Sprintf("%d of %d agents updated: ", n, len(p.listed()))
	switch {
	case len(u.next) > 0:
		return words + "that of member " + u.next[0] + " is replaced"
	case u.sum == agentsBlocked:
		return words + "no other is replaced, because " + u.hindrance
	default:
		return words + u.hindrance
	}
}
