package membership

import "github.com/etcd-druid/druid/internal/rules"

// Ruler is who leads the raft group that a member of ours is to leave.
type Ruler uint8

// The rulers.
const (
	RulerExternal Ruler = 1 << iota // one that is not ours
	RulerOurs                       // another member of ours
	RulerSelf                       // the member that is to go
	RulerUnknown                    // no one, or no one who reported
)

var rulerNames = map[Ruler]string{RulerExternal: "an external member", RulerOurs: "another of ours", RulerSelf: "itself", RulerUnknown: "unknown"}

func (r Ruler) String() string { return rulerNames[r] }

// DepartureFacts is all that DecideDeparture may look at, for our own member, which the record's slot names.
type DepartureFacts struct {
	// Firm: the cluster record was read just now, says Formed and Leaving, and lists our member, whose Lease is this Pod's.
	Firm  rules.Answer `fact:"firm record"`
	Mark  Mark
	Entry Entry
	Ruler Ruler `fact:"leader"`
	// Quorum: the voters that are left hold a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
}

// departures is the policy of a member that leaves a group which others go on with, by its own agent through one of them. The leader's
// agent removes members by the table drains; where none of ours leads, and at the last of ours none can, there is no such agent.
// First match wins; what no rule covers waits.
var departures = rules.New(DrainWait, []rules.Row[DepartureFacts, DrainVerdict]{
	{Name: "record-not-firm", When: DepartureFacts{Firm: notYes}, Verdict: DrainWait,
		Why: "only a Formed record that was read just now, says that all leave and lists the member sends it off"},
	{Name: "mark-unread", When: DepartureFacts{Mark: MarkUnreadable | MarkUnknown}, Verdict: DrainWait,
		Why: "a mark that cannot be read orders nothing"},
	{Name: "not-asked", When: DepartureFacts{Mark: NotAsked}, Verdict: DrainWait,
		Why: "the slot alone orders nothing: druid is about to mark the Lease"},
	{Name: "retired", When: DepartureFacts{Mark: Retired}, Verdict: DrainKeep,
		Why: "the member is out, the rest is druid's"},
	{Name: "entry-unknown", When: DepartureFacts{Entry: EntryUnknown}, Verdict: DrainWait,
		Why: "several entries are the member; a person has to remove the wrong one"},
	{Name: "led-by-another", When: DepartureFacts{Entry: isEntry, Ruler: RulerOurs}, Verdict: DrainWait,
		Why: "the agent next to the leader removes it"},
	{Name: "leads", When: DepartureFacts{Entry: isEntry, Ruler: RulerSelf}, Verdict: DrainWait,
		Why: "leadership is handed on first"},
	{Name: "leader-unknown", When: DepartureFacts{Entry: isEntry, Ruler: RulerUnknown}, Verdict: DrainWait,
		Why: "without a leader no one is removed"},
	{Name: "quorum", When: DepartureFacts{Entry: isEntry, Quorum: notYes}, Verdict: DrainWait,
		Why: "those that stay must be a healthy quorum"},
	{Name: "claim", When: DepartureFacts{Mark: Requested | ClaimedByAnother}, Verdict: Claim,
		Why: "from here on it does not start again"},
	{Name: "remove", When: DepartureFacts{Entry: isEntry}, Verdict: DrainRemove,
		Why: "exactly the ID that was claimed, by the leader that stays"},
	{Name: "acknowledge", Verdict: Acknowledge,
		Why: "a linearizable list that was read under our claim does not have it"},
})

// DecideDeparture says what the agent of a member that leaves does next.
func DecideDeparture(f DepartureFacts) DrainDecision { return departures.Decide(f) }
