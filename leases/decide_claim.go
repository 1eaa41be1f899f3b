package leases

// claim is what a candidate does with the leader's Lease.
type claim uint8

// The claims.
const (
	// claimWait: leave it, and look again.
	claimWait claim = iota
	// claimWrite: take it, or renew it, by compare-and-set.
	claimWrite
	// claimLose: it was ours and is not any more.
	claimLose
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
	heldByNobody
	// heldByUs: it names us. After a restart of the agent it may do so from before.
	heldByUs
	// heldByAnother: it names somebody else.
	heldByAnother
)

func holdingOf(holder, identity string) holding {
	switch holder {
	case "":
		return heldByNobody
	case identity:
		return heldByUs
	default:
		return heldByAnother
	}
}

// claimFacts is all that a claim may look at.
type claimFacts struct {
	holding holding
	elapsed answer // by the candidate's own clock the Lease is unchanged for as long as it lasts
	leading answer // our last write made it ours
}

// claims is the whole policy. First match wins; what no row covers waits.
var claims = []struct {
	name             string
	holding          holding
	elapsed, leading answer
	claim            claim
}{
	{"out-of-reach", heldUnknown, either, either, claimWait},
	{"ours", heldByUs, either, either, claimWrite},
	{"lost", heldAbsent | heldByNobody | heldByAnother, either, yes, claimLose},
	{"not-made-yet", heldAbsent, either, no, claimWait},
	{"given-back", heldByNobody, either, no, claimWrite},
	{"held", heldByAnother, no, no, claimWait},
	{"run-out", heldByAnother, yes, no, claimWrite},
}

func decideClaim(f claimFacts) (claim, string) {
	for _, row := range claims {
		if row.holding&f.holding != 0 && row.elapsed&f.elapsed != 0 && row.leading&f.leading != 0 {
			return row.claim, row.name
		}
	}
	return claimWait, "uncovered"
}
