package membership

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

// brokenDeparture names the promise that a decision breaks, or nothing.
func brokenDeparture(f DepartureFacts, d DrainDecision) string {
	listed := f.Entry&isEntry != 0
	sound := f.Quorum == rules.Yes && f.Ruler == RulerExternal
	acts := d.Verdict != DrainKeep && d.Verdict != DrainWait
	switch {
	case acts && f.Firm != rules.Yes:
		return "acts without a firm record"
	case acts && f.Mark&(Requested|isClaimed) == 0:
		return "acts without an order"
	case acts && f.Entry == EntryUnknown:
		return "acts on what is unknown"
	case acts && listed && f.Ruler != RulerExternal:
		return "acts although no external member leads"
	case acts && listed && f.Quorum != rules.Yes:
		return "those that stay may hold no healthy quorum"
	case d.Verdict == HandBack || d.Verdict == MoveAway:
		return "does what is the leader's"
	case d.Verdict == DrainRemove && (f.Mark != ClaimedByUs || !listed):
		return "removes without its own claim, or what is not listed"
	case d.Verdict == Acknowledge && (f.Mark != ClaimedByUs || f.Entry != NotListed):
		return "acknowledges what is listed, or what it did not claim"
	// It goes on wherever it may.
	case f.Firm == rules.Yes && f.Mark&(Requested|isClaimed) != 0 && (f.Entry == NotListed || listed && sound) && !acts:
		return "a member that may go does not"
	}
	return ""
}

func TestDeparturesAreSafeForAllFacts(t *testing.T) {
	checkTable(t, departures, "departures", "The way out of a group that others go on with: membership.departures",
		"Asked by the agent of the member that the record's slot names, where the EtcdCluster is deleted and others remain.", brokenDeparture)
}
