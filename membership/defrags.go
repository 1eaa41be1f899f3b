package membership

import "github.com/etcd-druid/druid/internal/rules"

// Fragments says whose database is fragmented and may be defragmented again by now.
type Fragments uint8

// Whose turn it is. LeaderFragmented: no follower's.
const (
	NoOneFragmented Fragments = 1 << iota
	FollowerFragmented
	LeaderFragmented
	FragmentsUnknown
)

var fragmentsNames = map[Fragments]string{
	NoOneFragmented: "nobody", FollowerFragmented: "a follower", LeaderFragmented: "the leader alone", FragmentsUnknown: "unknown",
}

func (f Fragments) String() string { return fragmentsNames[f] }

// DefragFacts is all that DecideDefrag may look at.
type DefragFacts struct {
	// Enabled: the configuration that is in force lets the agents defragment.
	Enabled rules.Answer
	// Window: now is a time at which it may be done. Unknown: the schedule cannot be read.
	Window rules.Answer `fact:"window open"`
	// Turn: whose database is fragmented, followers first (MostFragmented).
	Turn Fragments `fact:"whose turn"`
	// Alone: there is no other voter.
	Alone rules.Answer `fact:"the only voter"`
	// Scheduled: the configuration names the windows; without a schedule any time is one.
	Scheduled rules.Answer `fact:"window chosen"`
	// Firm: the cluster record was read just now, says Formed, and lists the member that decides, whose own Lease is its own.
	Firm rules.Answer `fact:"firm record"`
	// Leads: our member leads, in the raft term in which the list was read.
	Leads rules.Answer `fact:"we lead"`
	// Settled: no one joins, replaces itself, is on the way out, or is superfluous.
	Settled rules.Answer `fact:"settled"`
	// Healthy: every voter knows a leader, reports no alarm, and answered a linearizable read just now, which one that is
	// being defragmented, or has not caught up, does not.
	Healthy rules.Answer `fact:"all healthy"`
	// Room: the volume of the member whose turn it is holds a second copy of what is in use.
	Room rules.Answer `fact:"room"`
	// Moved: this agent moved leadership for this sake a short while ago.
	Moved rules.Answer `fact:"moved lately"`
}

// DefragVerdict is what the leader's agent does next.
type DefragVerdict string

// The verdicts.
const (
	DefragKeep DefragVerdict = "Keep"       // nothing is to be done
	DefragWait DefragVerdict = "Wait"       // look again
	Defrag     DefragVerdict = "Defragment" // the member whose turn it is
	DefragMove DefragVerdict = "MoveLeader" // hand leadership to another voter, whose agent goes on
)

// DefragDecision names the rule too.
type DefragDecision = rules.Decision[DefragVerdict]

// defrags is the whole policy on defragmentations. First match wins; what no rule covers waits.
var defrags = rules.New(DefragWait, []rules.Row[DefragFacts, DefragVerdict]{
	{Name: "disabled", When: DefragFacts{Enabled: notYes}, Verdict: DefragKeep,
		Why: "only a configuration that says so lets an agent stall a member"},
	{Name: "window-closed", When: DefragFacts{Window: rules.No}, Verdict: DefragKeep,
		Why: "its time comes with the next window"},
	{Name: "window-unread", When: DefragFacts{Window: rules.Unknown}, Verdict: DefragWait,
		Why: "a schedule that cannot be read opens no window"},
	{Name: "nobody", When: DefragFacts{Turn: NoOneFragmented}, Verdict: DefragKeep,
		Why: "no database is fragmented, or those that are were defragmented lately or without a gain"},
	{Name: "sizes-unknown", When: DefragFacts{Turn: FragmentsUnknown}, Verdict: DefragWait,
		Why: "the size of a database is not known, so whose turn it is neither"},
	{Name: "alone-unscheduled", When: DefragFacts{Alone: rules.Yes | rules.Unknown, Scheduled: notYes}, Verdict: DefragWait,
		Why: "it stops every read and write of a cluster of one: only in a window that a person chose"},
	{Name: "record-not-firm", When: DefragFacts{Firm: notYes}, Verdict: DefragWait,
		Why: "only a Formed record that was read just now and lists the decider says who the members are"},
	{Name: "leadership-moved", When: DefragFacts{Leads: notYes}, Verdict: DefragWait,
		Why: "another agent may lead now, and defragment another member"},
	{Name: "not-settled", When: DefragFacts{Settled: notYes}, Verdict: DefragWait,
		Why: "a member joins, replaces itself, leaves, or is superfluous"},
	{Name: "not-healthy", When: DefragFacts{Healthy: notYes}, Verdict: DefragWait,
		Why: "a member is down, lags, has an alarm, or is being defragmented: a second one that stalls may cost the quorum"},
	{Name: "no-room", When: DefragFacts{Room: notYes}, Verdict: DefragWait,
		Why: "etcd writes the copy next to the database, and does not survive a full volume"},
	{Name: "follower", When: DefragFacts{Turn: FollowerFragmented}, Verdict: Defrag,
		Why: "one at a time, the leader last"},
	{Name: "alone", When: DefragFacts{Turn: LeaderFragmented, Alone: rules.Yes}, Verdict: Defrag,
		Why: "in the window that a person chose"},
	{Name: "moved-before", When: DefragFacts{Moved: rules.Yes | rules.Unknown}, Verdict: DefragWait,
		Why: "leadership came back: it is not moved to and fro"},
	{Name: "move-leader", Verdict: DefragMove,
		Why: "no one stalls the leader: the next one's agent measures, and finds a follower"},
})

// DecideDefrag says what the leader's agent does next about fragmented databases.
func DecideDefrag(f DefragFacts) DefragDecision { return defrags.Decide(f) }
