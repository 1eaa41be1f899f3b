package plan

import "github.com/etcd-druid/druid/internal/rules"

type (
	company uint8 // how the member does whose agent is outdated
	news    uint8 // of agents that were replaced in other Pods
)

const (
	companyWell     company = 1 << iota // a ready voter, whose agent is reachable
	companyIll                          // its etcd is down, or its agent is silent
	companyIdle                         // no agent runs in the Pod
	companyAway                         // its node is unreachable
	companyNotKnown                     // it joins, or has not renewed its Lease yet
)

func (c company) String() string {
	return rules.Word(c, "serves", "is ill", "runs no agent", "is away", "not known yet")
}

const (
	newsNone    news = 1 << iota // all have arrived
	newsAwaited                  // one was not reachable for long enough
	newsLate                     // one does not come
)

func (n news) String() string {
	return rules.Word(n, "all are there", "one is awaited", "one does not come")
}

// agentRows decide about an agent that is not of the image that druid was given. It is replaced in the Pod that runs, and etcd
// runs on: one at a time, followers first, the leader last, and the next only when the one before was reachable, so that an image that is
// no good reaches one member. Where no agent does its work, another can only repair.
var agentRows = rules.New(wait, []rules.Row[agentFacts, verdict]{
	{Name: "agent-current", When: agentFacts{agent: AgentUnknown | AgentCurrent}, Verdict: keep,
		Why: "it is of the image that druid was given, as far as is known"},
	{Name: "agent-without-pod", When: agentFacts{agent: AgentOutdated, pod: anyPod &^ (PodUnscheduled | PodUnstarted | PodLive)}, Verdict: keep,
		Why: "the Pod that comes has that image"},
	{Name: "agent-leaves", When: agentFacts{agent: AgentOutdated, leaves: rules.Yes}, Verdict: keep,
		Why: "its member is on its way out"},
	{Name: "agent-away", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyAway}, Verdict: held,
		Why: "no one would replace it"},
	{Name: "agent-after-late", When: agentFacts{agent: AgentOutdated, leaves: rules.No, news: newsLate}, Verdict: held,
		Why: "the image is no good where it was tried: never a second one"},
	{Name: "agent-after-another", When: agentFacts{agent: AgentOutdated, leaves: rules.No, news: newsAwaited}, Verdict: wait,
		Why: "the one before has not shown yet that it works"},
	{Name: "agent-idle", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyIdle, news: newsNone}, Verdict: change,
		Why: "no agent runs, so nothing is lost"},
	{Name: "agent-before-formed", When: agentFacts{agent: AgentOutdated, leaves: rules.No, news: newsNone, record: anyRecord &^ RecordFormed}, Verdict: wait,
		Why: "the raft group is not there yet"},
	{Name: "agent-in-turn", When: agentFacts{agent: AgentOutdated, leaves: rules.No, news: newsNone, record: RecordFormed, turn: rules.No}, Verdict: wait,
		Why: "a Pod is being replaced, or a member is being replaced, removed or repaired"},
	{Name: "agent-not-known", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyNotKnown, news: newsNone, record: RecordFormed, turn: rules.Yes}, Verdict: wait,
		Why: "its member becomes a voter, or is not known yet"},
	{Name: "agent-ill", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyIll, news: newsNone, record: RecordFormed, turn: rules.Yes}, Verdict: change,
		Why: "its member does not serve anyhow, or its agent does nothing: another one may be the cure"},
	{Name: "agent-after-others", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyWell, news: newsNone, record: RecordFormed, turn: rules.Yes, others: othersNotReady}, Verdict: held,
		Why: "another member is not ready"},
	{Name: "agent-others-come", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyWell, news: newsNone, record: RecordFormed, turn: rules.Yes, others: othersComing}, Verdict: wait,
		Why: "another member is about to be ready"},
	{Name: "agent-later", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyWell, news: newsNone, record: RecordFormed, turn: rules.Yes, others: othersReady, place: placeLater | placeUnknown}, Verdict: wait,
		Why: "followers go first, the leader last"},
	{Name: "agent-outdated", When: agentFacts{agent: AgentOutdated, leaves: rules.No, company: companyWell, news: newsNone, record: RecordFormed, turn: rules.Yes, others: othersReady, place: placeFirst}, Verdict: change,
		Why: "the kubelet replaces the agent, and nothing else in the Pod"},
})

// agentFacts is all that the policy may look at.
type agentFacts struct {
	agent   AgentMake
	pod     PodState `fact:"Pod"`
	leaves  rules.YesNo
	company company `fact:"member"`
	news    news    `fact:"new agents elsewhere"`
	record  RecordState
	turn    rules.YesNo `fact:"its turn"` // no Pod is replaced, and no other member replaces itself, leaves or heals
	others  others      `fact:"the others"`
	place   place
}

// agentFactsOf gathers the facts. rolls says that a Pod is replaced, or is about to be.
func agentFactsOf(m Member, leaves, rolls bool, o Observed, listed []Member) agentFacts {
	f := agentFacts{
		agent: m.Agent, pod: m.Pod, leaves: rules.YesNoOf(leaves), company: companyOf(m), record: o.RecordState,
		// A change of version waits for an agent that does nothing, and so must not keep it from being repaired.
		turn:  rules.YesNoOf((!rolls || m.up() && companyOf(m) == companyIll) && turnOf(m, o, listed) == rules.Yes),
		place: placeOf(m, listed, func(other Member) bool { return other.Agent == AgentOutdated }),
	}
	if f.agent == 0 {
		f.agent = AgentUnknown
	}
	f.news, _ = newsOf(m, o, listed)
	f.others, _ = othersOf(m, o, listed)
	return f
}

func companyOf(m Member) company {
	ready, _ := m.steady(rules.No)
	switch {
	case m.NodeLost:
		return companyAway
	case m.AgentIdle || m.Pod&(PodUnscheduled|PodUnstarted) != 0:
		return companyIdle
	case (m.learns() || m.outside()) && !m.Stuck:
		return companyNotKnown
	case ready == wayFree:
		return companyWell
	case ready == wayUnknown:
		return companyNotKnown
	default:
		return companyIll
	}
}

// newsOf reports the agents that were replaced in the Pods of others, and of whom. Before a raft group was formed no agent is
// known by its member's Lease.
func newsOf(m Member, o Observed, listed []Member) (news, string) {
	found, of := newsNone, ""
	for _, other := range listed {
		switch {
		case other.Name == m.Name || o.RecordState != RecordFormed:
		case other.Arrival == ArrivalLate:
			return newsLate, other.Name
		case other.Arrival&(ArrivalAwaited|ArrivalSettles) != 0:
			found, of = newsAwaited, other.Name
		}
	}
	return found, of
}
