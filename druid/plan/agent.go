package plan

import "github.com/etcd-druid/druid/internal/rules"

type (
	company uint8 // how the member does whose agent is outdated
	news    uint8 // of agents that were replaced in other Pods
)

const (
	companyWell     company = 1 << iota // a ready voter, whose agent is heard of
	companyIll                          // its etcd is down, or its agent is silent
	companyIdle                         // no agent runs in the Pod
	companyAway                         // its node is not heard of
	companyNotKnown                     // it joins, or was not heard of yet

	anyCompany = companyWell | companyIll | companyIdle | companyAway | companyNotKnown
)

const (
	newsNone    news = 1 << iota // all have arrived
	newsAwaited                  // one was not heard of for long enough
	newsLate                     // one does not come

	anyNews = newsNone | newsAwaited | newsLate
)

// agentRows decide about an agent that is not of the image that druid was given. It is replaced in the Pod that runs, and etcd
// runs on: one at a time, followers first, the leader last, and the next only when the one before was heard of, so that an image that is
// no good reaches one member. Where no agent does its work, another can only mend.
var agentRows = []struct {
	name    string
	agent   AgentMake
	pod     PodState
	leaves  rules.YesNo
	company company
	news    news
	record  RecordState
	turn    rules.YesNo
	others  others
	place   place
	verdict verdict
	why     string
}{
	{"agent-current", AgentUnknown | AgentCurrent, anyPod, anyAnswer, anyCompany, anyNews, anyRecord, anyAnswer, anyOthers, anyPlace, keep,
		"it is of the image that druid was given, as far as is known"},
	{"agent-without-pod", AgentOutdated, anyPod &^ (PodUnscheduled | PodUnstarted | PodLive), anyAnswer, anyCompany, anyNews, anyRecord, anyAnswer, anyOthers, anyPlace, keep,
		"the Pod that comes has that image"},
	{"agent-leaves", AgentOutdated, anyPod, rules.Yes, anyCompany, anyNews, anyRecord, anyAnswer, anyOthers, anyPlace, keep,
		"its member is on its way out"},
	{"agent-away", AgentOutdated, anyPod, rules.No, companyAway, anyNews, anyRecord, anyAnswer, anyOthers, anyPlace, held,
		"nobody would replace it"},
	{"agent-after-late", AgentOutdated, anyPod, rules.No, anyCompany, newsLate, anyRecord, anyAnswer, anyOthers, anyPlace, held,
		"the image is no good where it was tried: never a second one"},
	{"agent-after-another", AgentOutdated, anyPod, rules.No, anyCompany, newsAwaited, anyRecord, anyAnswer, anyOthers, anyPlace, wait,
		"the one before has not shown yet that it works"},
	{"agent-idle", AgentOutdated, anyPod, rules.No, companyIdle, newsNone, anyRecord, anyAnswer, anyOthers, anyPlace, change,
		"no agent runs, so nothing is lost"},
	{"agent-before-formed", AgentOutdated, anyPod, rules.No, anyCompany, newsNone, anyRecord &^ RecordFormed, anyAnswer, anyOthers, anyPlace, wait,
		"the raft group is not there yet"},
	{"agent-in-turn", AgentOutdated, anyPod, rules.No, anyCompany, newsNone, RecordFormed, rules.No, anyOthers, anyPlace, wait,
		"a Pod is replaced, or a member replaces itself, leaves or heals"},
	{"agent-not-known", AgentOutdated, anyPod, rules.No, companyNotKnown, newsNone, RecordFormed, rules.Yes, anyOthers, anyPlace, wait,
		"its member becomes a voter, or is not known yet"},
	{"agent-ill", AgentOutdated, anyPod, rules.No, companyIll, newsNone, RecordFormed, rules.Yes, anyOthers, anyPlace, change,
		"its member does not serve anyhow, or its agent does nothing: another one may be the cure"},
	{"agent-after-others", AgentOutdated, anyPod, rules.No, companyWell, newsNone, RecordFormed, rules.Yes, othersNotReady, anyPlace, held,
		"another member is not ready"},
	{"agent-others-come", AgentOutdated, anyPod, rules.No, companyWell, newsNone, RecordFormed, rules.Yes, othersComing, anyPlace, wait,
		"another member is about to be ready"},
	{"agent-later", AgentOutdated, anyPod, rules.No, companyWell, newsNone, RecordFormed, rules.Yes, othersReady, placeLater | placeUnknown, wait,
		"followers go first, the leader last"},
	{"agent-outdated", AgentOutdated, anyPod, rules.No, companyWell, newsNone, RecordFormed, rules.Yes, othersReady, placeFirst, change,
		"the kubelet replaces the agent, and nothing else in the Pod"},
}

// agentFacts is all that the policy may look at.
type agentFacts struct {
	agent   AgentMake
	pod     PodState
	leaves  rules.YesNo
	company company
	news    news
	record  RecordState
	turn    rules.YesNo // no Pod is replaced, and no other member replaces itself, leaves or heals
	others  others
	place   place
}

func judgeAgent(f agentFacts) (verdict, string) {
	for _, r := range agentRows {
		if r.agent&f.agent != 0 && r.pod&f.pod != 0 && r.leaves&f.leaves != 0 && r.company&f.company != 0 && r.news&f.news != 0 &&
			r.record&f.record != 0 && r.turn&f.turn != 0 && r.others&f.others != 0 && r.place&f.place != 0 {
			return r.verdict, r.name
		}
	}
	return wait, "uncovered"
}

// agentFactsOf gathers the facts. rolls says that a Pod is replaced, or is about to be.
func agentFactsOf(m Member, leaves, rolls bool, o Observed, listed []Member) agentFacts {
	f := agentFacts{
		agent: m.Agent, pod: m.Pod, leaves: rules.YesNoOf(leaves), company: companyOf(m), record: o.RecordState,
		// A change of version waits for an agent that does nothing, and so must not keep it from being mended.
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

// newsOf tells of the agents that were replaced in the Pods of others, and of whom. Before a raft group was formed no agent is
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
