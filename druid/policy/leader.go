package policy

import (
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// leadership is what the Leases report about whether a member leads.
type leadership uint8

const (
	leadershipOwn     leadership = 1 << iota // its renewed Lease calls it the leader, and no other one does with a newer term
	leadershipOther                          // its renewed Lease calls it something else, or that of another member calls that one the leader
	leadershipUnknown                        // its Lease is not renewed, and no other one calls its member the leader
)

func (l leadership) String() string {
	return rules.Word(l, "this member", "not this member", "unknown")
}

// leaderFacts is the complete input of leaderRows.
type leaderFacts struct {
	wanted rules.YesNo `fact:"leader Service requested"`
	serves rules.YesNo `fact:"receives clients"` // the Pod has the label for the client Service after this pass
	leads  leadership  `fact:"leader"`
}

// leaderRows decide which Pod is in the Service of the leader. A cluster without this Service has no such label, so that an
// election costs it no write.
var leaderRows = rules.New(labelKeep, []rules.Row[leaderFacts, labelVerdict]{
	{Name: "leader-not-requested", When: leaderFacts{wanted: rules.No}, Verdict: labelClear,
		Why: "the spec requests no Service of the leader"},
	{Name: "leader-without-clients", When: leaderFacts{wanted: rules.Yes, serves: rules.No}, Verdict: labelClear,
		Why: "a leader to which the client Service sends no clients gets none from here"},
	{Name: "leads", When: leaderFacts{wanted: rules.Yes, serves: rules.Yes, leads: leadershipOwn}, Verdict: labelSet},
	{Name: "leads-no-more", When: leaderFacts{wanted: rules.Yes, serves: rules.Yes, leads: leadershipOther}, Verdict: labelClear},
	{Name: "leader-not-certain", When: leaderFacts{wanted: rules.Yes, serves: rules.Yes, leads: leadershipUnknown}, Verdict: labelKeep,
		Why: "an agent that fails does not empty the Service, and a member that leads no more forwards writes"},
})

// leaderFactsOf takes the decision about the label of the client Service.
func leaderFactsOf(m Member, serving labelVerdict, e Evaluation) leaderFacts {
	return leaderFacts{
		wanted: rules.YesNoOf(e.LeaderWanted),
		serves: rules.YesNoOf(serving == labelSet || serving == labelKeep && m.Serving),
		leads:  leadershipOf(m, e.listed),
	}
}

// leadershipOf compares what the members report. Of two that call themselves leader, the one with the older term has not
// received the newer term yet.
func leadershipOf(m Member, listed []Member) leadership {
	for _, other := range listed {
		if other.Name != m.Name && other.leads() && (!m.leads() || other.Reports.Raft.Term > m.Reports.Raft.Term) {
			return leadershipOther
		}
	}
	switch {
	case m.leads():
		return leadershipOwn
	case m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live:
		return leadershipOther
	default:
		return leadershipUnknown
	}
}
