package membership

import "github.com/etcd-druid/druid/internal/rules"

// Ruler is who leads the raft group that a member of ours is to leave.
type Ruler uint8

// The rulers.
const (
	RulerGuest   Ruler = 1 << iota // one that is not ours
	RulerOurs                      // another member of ours
	RulerSelf                      // the member that is to go
	RulerUnknown                   // nobody, or nobody who told
)

const anyRuler = RulerGuest | RulerOurs | RulerSelf | RulerUnknown

var rulerNames = map[Ruler]string{RulerGuest: "a guest", RulerOurs: "another of ours", RulerSelf: "itself", RulerUnknown: "unknown"}

func (r Ruler) String() string { return rulerNames[r] }

// DepartureFacts is all that DecideDeparture may look at, for our own member, which the record's slot names.
type DepartureFacts struct {
	// Firm: the cluster record was read just now, says Formed and Leaving, and lists our member, whose Lease is this Pod's.
	Firm  rules.Answer
	Mark  Mark
	Entry Entry
	Ruler Ruler
	// Quorum: the voters that are left hold a healthy quorum (QuorumWithout).
	Quorum rules.Answer
}

// departures is the policy of a member that leaves a group which others go on with, by its own agent through one of them. The leader's
// agent removes members by the table drains; where none of ours leads, and at the last of ours none can, there is no such agent.
// First match wins; what no rule covers waits.
var departures = []row[DepartureFacts, DrainVerdict]{
	{"record-not-firm", DepartureFacts{Firm: notYes}, DrainWait,
		"only a Formed record that was read just now, says that all leave and lists the member sends it off"},
	{"mark-unread", DepartureFacts{Mark: MarkUnreadable | MarkUnknown}, DrainWait,
		"a mark that cannot be read orders nothing"},
	{"not-asked", DepartureFacts{Mark: NotAsked}, DrainWait,
		"the slot alone orders nothing: druid is about to mark the Lease"},
	{"retired", DepartureFacts{Mark: Retired}, DrainKeep, "the member is out, the rest is druid's"},
	{"entry-unknown", DepartureFacts{Entry: EntryUnknown}, DrainWait, "several entries are the member; a person has to remove the wrong one"},
	{"led-by-another", DepartureFacts{Entry: isEntry, Ruler: RulerOurs}, DrainWait, "the agent beside the leader removes it"},
	{"leads", DepartureFacts{Entry: isEntry, Ruler: RulerSelf}, DrainWait, "leadership is handed on first"},
	{"leader-unknown", DepartureFacts{Entry: isEntry, Ruler: RulerUnknown}, DrainWait, "without a leader nobody is removed"},
	{"quorum", DepartureFacts{Entry: isEntry, Quorum: notYes}, DrainWait, "those that stay must be a healthy quorum"},
	{"claim", DepartureFacts{Mark: Requested | ClaimedByAnother}, Claim, "from here on it does not start again"},
	{"remove", DepartureFacts{Entry: isEntry}, DrainRemove, "exactly the ID that was claimed, by the leader that stays"},
	{"acknowledge", DepartureFacts{}, Acknowledge, "a linearizable list that was read under our claim does not have it"},
}

func (w *DepartureFacts) holds(f *DepartureFacts) bool {
	return holds(w.Firm, f.Firm) && holds(w.Mark, f.Mark) && holds(w.Entry, f.Entry) && holds(w.Ruler, f.Ruler) && holds(w.Quorum, f.Quorum)
}

// DecideDeparture says what the agent of a member that leaves does next.
func DecideDeparture(f DepartureFacts) DrainDecision {
	for i := range departures {
		if r := &departures[i]; r.when.holds(&f) {
			return r.decision(r.verdict == DrainWait)
		}
	}
	return DrainDecision{Verdict: DrainWait, Rule: "uncovered"}
}
