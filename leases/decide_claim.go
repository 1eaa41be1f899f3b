package leases

import "github.com/etcd-druid/druid/internal/rules"

// claim is what a candidate does with the leader's Lease.
type claim string

// The claims.
const (
	// claimWait: leave it, and look again.
	claimWait claim = "Wait"
	// claimWrite: take it, or renew it, by compare-and-set.
	claimWrite claim = "Write"
	// claimLose: it was ours and is not any more.
	claimLose claim = "Lose"
)

// holding is whose the leader's Lease is.
type holding uint8

// The holdings.
const (
	// heldUnknown: it could not be read.
	heldUnknown holding = 1 << iota
	// heldAbsent: there is no such Lease.
	heldAbsent
	// heldByNobody: it was given back, or never held.
	heldByNoOne
	// heldByUs: it names us. After a restart of the agent it may do so from before.
	heldByUs
	// heldByAnother: it names someone else.
	heldByAnother
)

func (h holding) String() string {
	return rules.Word(h, "unknown", "absent", "held by no one", "held by us", "held by another")
}

func holdingOf(holder, identity string) holding {
	switch holder {
	case "":
		return heldByNoOne
	case identity:
		return heldByUs
	default:
		return heldByAnother
	}
}

// claimFacts is all that a claim may look at.
type claimFacts struct {
	holding holding
	elapsed rules.YesNo // by the candidate's own clock the Lease is unchanged for as long as it lasts
	leading rules.YesNo // our last write made it ours
}

// claims is the whole policy. First match wins; what no row covers waits.
var claims = rules.New(claimWait, []rules.Row[claimFacts, claim]{
	{Name: "out-of-reach", When: claimFacts{holding: heldUnknown}, Verdict: claimWait},
	{Name: "ours", When: claimFacts{holding: heldByUs}, Verdict: claimWrite},
	{Name: "lost", When: claimFacts{leading: rules.Yes}, Verdict: claimLose},
	{Name: "not-made-yet", When: claimFacts{holding: heldAbsent}, Verdict: claimWait},
	{Name: "given-back", When: claimFacts{holding: heldByNoOne}, Verdict: claimWrite},
	{Name: "held", When: claimFacts{elapsed: rules.No}, Verdict: claimWait},
	{Name: "run-out", When: claimFacts{elapsed: rules.Yes}, Verdict: claimWrite},
})
