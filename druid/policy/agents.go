package policy

import (
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
)

type (
	memberHealth  uint8 // how the member does whose agent is outdated
	pendingUpdate uint8 // of agents that were replaced in other Pods
)

const (
	memberHealthWell     memberHealth = 1 << iota // a ready voter, whose agent is reachable
	memberHealthIll                               // its etcd is down, or its agent is silent
	memberHealthIdle                              // no agent runs in the Pod
	memberHealthAway                              // its node is unreachable
	memberHealthNotKnown                          // it joins, or has not renewed its Lease yet
)

func (c memberHealth) String() string {
	return rules.Word(c, "serves", "is not healthy", "runs no agent", "node unreachable", "not known yet")
}

const (
	pendingUpdateNone    pendingUpdate = 1 << iota // all have arrived
	pendingUpdateAwaited                           // one was not reachable for long enough
	pendingUpdateLate                              // one does not come
)

func (n pendingUpdate) String() string {
	return rules.Word(n, "all are ready", "one is not ready yet", "one does not start")
}

// agentRows decide about an agent whose image is not the one that druid was given. The kubelet replaces it in the
// running Pod, and etcd continues to run. Agents are replaced one at a time, followers first and the leader last. Each
// waits until the previous agent renews its Lease, so that an unusable image reaches one member only. If an agent does
// not work at all, a new one can only help.
var agentRows = rules.New(wait, []rules.Row[agentFacts, verdict]{
	{Name: "agent-current", When: agentFacts{agent: AgentUnknown | AgentCurrent}, Verdict: keep,
		Why: "the agent has the configured image, as far as druid knows"},
	{Name: "agent-without-pod", When: agentFacts{agent: AgentOutdated, pod: anyPod &^ (PodUnscheduled | PodUnstarted | PodLive)}, Verdict: keep,
		Why: "the new Pod has that image"},
	{Name: "agent-leaves", When: agentFacts{agent: AgentOutdated, leaves: rules.Yes}, Verdict: keep,
		Why: "its member is being removed"},
	{Name: "agent-unreachable", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthAway}, Verdict: held,
		Why: "no kubelet would replace the agent"},
	{Name: "agent-after-late", When: agentFacts{agent: AgentOutdated, leaves: rules.No, pendingUpdate: pendingUpdateLate}, Verdict: held,
		Why: "the image failed on another member, so no second member gets it"},
	{Name: "agent-after-another", When: agentFacts{agent: AgentOutdated, leaves: rules.No, pendingUpdate: pendingUpdateAwaited}, Verdict: wait,
		Why: "the previous agent has not shown yet that it works"},
	{Name: "agent-idle", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthIdle, pendingUpdate: pendingUpdateNone},
		Verdict: change,
		Why:     "no agent runs, so nothing is lost"},
	{Name: "agent-before-formed", When: agentFacts{agent: AgentOutdated, leaves: rules.No, pendingUpdate: pendingUpdateNone, record: anyRecord &^ RecordFormed},
		Verdict: wait,
		Why:     "the raft group does not exist yet"},
	{Name: "agent-in-turn", When: agentFacts{agent: AgentOutdated, leaves: rules.No, pendingUpdate: pendingUpdateNone, record: RecordFormed, turn: rules.No},
		Verdict: wait,
		Why:     "a Pod is being replaced, or a member is being replaced, removed or repaired"},
	{Name: "agent-not-known", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthNotKnown,
		pendingUpdate: pendingUpdateNone, record: RecordFormed, turn: rules.Yes},
		Verdict: wait,
		Why:     "its member becomes a voter, or its state is not known yet"},
	{Name: "agent-unhealthy", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthIll, pendingUpdate: pendingUpdateNone,
		record: RecordFormed, turn: rules.Yes},
		Verdict: change,
		Why:     "its member does not serve, or its agent does nothing: another agent might help"},
	{Name: "agent-after-others", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthWell,
		pendingUpdate: pendingUpdateNone, record: RecordFormed, turn: rules.Yes, others: othersNotReady},
		Verdict: held,
		Why:     "another member is not ready"},
	{Name: "agent-others-starting", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthWell,
		pendingUpdate: pendingUpdateNone, record: RecordFormed, turn: rules.Yes, others: othersComing},
		Verdict: wait,
		Why:     "another member is about to be ready"},
	{Name: "agent-later", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthWell, pendingUpdate: pendingUpdateNone,
		record: RecordFormed, turn: rules.Yes, others: othersReady, place: placeLater | placeUnknown},
		Verdict: wait,
		Why:     "followers go first, the leader last"},
	{Name: "agent-outdated", When: agentFacts{agent: AgentOutdated, leaves: rules.No, memberHealth: memberHealthWell,
		pendingUpdate: pendingUpdateNone, record: RecordFormed, turn: rules.Yes, others: othersReady, place: placeFirst},
		Verdict: change,
		Why:     "the kubelet replaces the agent, and nothing else in the Pod"},
})

// agentFacts is the complete input of agentRows.
type agentFacts struct {
	agent         AgentMake
	pod           PodState `fact:"Pod"`
	leaves        rules.YesNo
	memberHealth  memberHealth  `fact:"member"`
	pendingUpdate pendingUpdate `fact:"new agents elsewhere"`
	record        RecordState
	turn          rules.YesNo `fact:"its turn"` // no Pod is replaced, and no other member replaces itself, leaves or heals
	others        others      `fact:"the others"`
	place         place
}

// agentFactsOf collects the facts. rolls reports whether a Pod is being replaced or is about to be.
func agentFactsOf(m Member, leaves, rolls bool, o Observed, listed []Member) agentFacts {
	f := agentFacts{
		agent: m.Agent, pod: m.Pod, leaves: rules.YesNoOf(leaves), memberHealth: memberHealthOf(m), record: o.RecordState,
		// A change of version waits for an agent that does nothing, so it must not block the repair of that agent.
		turn:  rules.YesNoOf((!rolls || m.up() && memberHealthOf(m) == memberHealthIll) && turnOf(m, o, listed) == rules.Yes),
		place: placeOf(m, listed, func(other Member) bool { return other.Agent == AgentOutdated }),
	}
	if f.agent == 0 {
		f.agent = AgentUnknown
	}
	f.pendingUpdate, _ = pendingUpdateOf(m, o, listed)
	f.others, _ = othersOf(m, o, listed)
	return f
}

func memberHealthOf(m Member) memberHealth {
	ready, _ := m.steady(rules.No)
	switch {
	case m.NodeLost:
		return memberHealthAway
	case m.AgentIdle || m.Pod&(PodUnscheduled|PodUnstarted) != 0:
		return memberHealthIdle
	case (m.learns() || m.outside()) && !m.Stuck:
		return memberHealthNotKnown
	case ready == removalAllowed:
		return memberHealthWell
	case ready == removalUnknown:
		return memberHealthNotKnown
	default:
		return memberHealthIll
	}
}

// pendingUpdateOf returns the state of the agents that were replaced in the Pods of other members, and the name of one
// such member. Before the raft group is formed, no member's Lease reports about its agent.
func pendingUpdateOf(m Member, o Observed, listed []Member) (pendingUpdate, string) {
	found, of := pendingUpdateNone, ""
	for _, other := range listed {
		switch {
		case other.Name == m.Name || o.RecordState != RecordFormed:
		case other.Arrival == ArrivalLate:
			return pendingUpdateLate, other.Name
		case other.Arrival&(ArrivalAwaited|ArrivalUnconfirmed) != 0:
			found, of = pendingUpdateAwaited, other.Name
		}
	}
	return found, of
}

// update is the decision of the policy about the agents.
type update struct {
	verdicts map[string]rules.Decision[verdict]
	// next are the members whose agents are replaced now: one, or all those in whose Pods no agent runs.
	next []string
	sum  rolling
	// hindrance names what blocks the replacement of an outdated agent; empty while one is replaced.
	hindrance string
}

func updateOf(e Evaluation) update {
	o, listed, rolls := e.Observed, e.listed, e.takesPods()
	u := update{verdicts: map[string]rules.Decision[verdict]{}, sum: rollingNone}
	for _, m := range listed {
		f := agentFactsOf(m, e.scaleDown.leaving(m), rolls, o, listed)
		decision := agentRows.Decide(f)
		u.verdicts[m.Name] = decision
		v := decision.Verdict
		words := ""
		switch {
		case v == change && (len(u.next) == 0 || f.memberHealth == memberHealthIdle):
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
func (e Evaluation) takesPods() bool {
	r := e.rollout
	waits := r.sum == rollingUpgrades && r.next == "" && e.upgrade.facts.check == checkAsked
	return r.sum&(rollingGoes|rollingUpgrades) != 0 && !waits
}

// hindrance says what the outdated agent of m waits for, or that the new agent of m has not renewed its Lease yet.
func (f agentFacts) hindrance(m Member, o Observed, listed []Member) string {
	_, why := othersOf(m, o, listed)
	_, of := pendingUpdateOf(m, o, listed)
	switch {
	case f.agent != AgentOutdated:
		return "the new agent of member " + m.Name + " is not ready yet"
	case f.memberHealth == memberHealthAway:
		return "member " + m.Name + " is on an unreachable node"
	case f.pendingUpdate == pendingUpdateLate:
		late, _ := o.member(of)
		return late.late()
	case f.pendingUpdate == pendingUpdateAwaited:
		return "the new agent of member " + of + " is not ready yet"
	case f.record != RecordFormed:
		return "the cluster has not formed yet"
	case f.turn == rules.No:
		return "a Pod is being replaced, or a member is being replaced, removed or repaired"
	case f.memberHealth == memberHealthNotKnown:
		return "member " + m.Name + " is not known to be a ready voter yet"
	case why != "":
		return why
	case f.place == placeLater:
		return "" // the member before it reports what it waits for
	default:
		return "it is not known which member leads"
	}
}

// late says what is wrong with the member's new agent, and what to do.
func (m Member) late() string {
	return fmt.Sprintf("the new agent of member %s, of image %s, does not start. Correct --agent-image of druid. "+
		"kubectl describe pod %s and kubectl logs %s -c agent show more. etcd continues to run", m.Name, m.AgentImage, m.Name, m.Name)
}

// agentSteps replace agents, but not if this plan deletes a Pod.
func agentSteps(e Evaluation, leaving map[string]bool, add func(Step)) {
	u := e.update
	for _, name := range u.next {
		if slices.ContainsFunc(e.listed, func(m Member) bool { return leaving[m.Name] }) {
			return
		}
		m, _ := e.member(name)
		add(Step{
			Kind: ReplaceAgent, Rule: u.verdicts[name].Rule, Stage: StageDelete, Member: name, PodUID: m.PodUID,
		})
	}
}

// rolling sums up what becomes of Pods, and where none is outdated, of agents.
func (e Evaluation) rolling() rolling {
	if e.rollout.sum != rollingNone {
		return e.rollout.sum
	}
	return e.update.sum
}

// agentMessage reports how many agents are updated, and what the update waits for.
func agentMessage(p messageContext) string {
	u := p.update
	n := 0
	for _, m := range p.listed {
		if m.Agent == AgentCurrent && m.Arrival&(ArrivalAwaited|ArrivalLate) == 0 {
			n++
		}
	}
	words := fmt.Sprintf("%d of %d agents updated: ", n, len(p.listed))
	switch {
	case len(u.next) > 0:
		return words + "the agent of member " + u.next[0] + " is being replaced"
	case u.sum == agentsBlocked:
		return words + "no other agent is replaced, because " + u.hindrance
	default:
		return words + u.hindrance
	}
}
