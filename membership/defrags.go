package membership

import "github.com/etcd-druid/druid/internal/rules"

// Fragments says whose database is fragmented and may be defragmented again by now.
type Fragments uint8

// Whose turn it is. LeaderFragmented: no follower's.
const (
	NobodyFragmented Fragments = 1 << iota
	FollowerFragmented
	LeaderFragmented
	FragmentsUnknown
)

const anyFragments = NobodyFragmented | FollowerFragmented | LeaderFragmented | FragmentsUnknown

var fragmentsNames = map[Fragments]string{
	NobodyFragmented: "nobody", FollowerFragmented: "a follower", LeaderFragmented: "the leader alone", FragmentsUnknown: "unknown",
}

func (f Fragments) String() string { return fragmentsNames[f] }

// DefragFacts is all that DecideDefrag may look at.
type DefragFacts struct {
	// Enabled: the configuration that is in force lets the agents defragment.
	Enabled rules.Answer
	// Window: now is a time at which it may be done. Unknown: the schedule cannot be read.
	Window rules.Answer
	// Turn: whose database is fragmented, followers first (MostFragmented).
	Turn Fragments
	// Alone: there is no other voter.
	Alone rules.Answer
	// Scheduled: the configuration names the windows; without a schedule any time is one.
	Scheduled rules.Answer
	// Firm: the cluster record was read just now, says Formed, and lists the member that decides, whose own Lease is its own.
	Firm rules.Answer
	// Leads: our member leads, in the raft term in which the list was read.
	Leads rules.Answer
	// Settled: nobody joins, replaces itself, is on the way out, or is superfluous.
	Settled rules.Answer
	// Healthy: every voter knows a leader, reports no alarm, and answered a linearizable read just now, which one that is
	// being defragmented, or has not caught up, does not.
	Healthy rules.Answer
	// Room: the volume of the member whose turn it is holds a second copy of what is in use.
	Room rules.Answer
	// Moved: this agent moved leadership for this sake a short while ago.
	Moved rules.Answer
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
type DefragDecision = Decision[DefragVerdict]

// defrags is the whole policy on defragmentations. First match wins; what no rule covers waits.
var defrags = []row[DefragFacts, DefragVerdict]{
	{"disabled", DefragFacts{Enabled: notYes}, DefragKeep, "only a configuration that says so lets an agent stall a member"},
	{"window-closed", DefragFacts{Window: rules.No}, DefragKeep, "its time comes with the next window"},
	{"window-unread", DefragFacts{Window: rules.Unknown}, DefragWait, "a schedule that cannot be read opens no window"},
	{"nobody", DefragFacts{Turn: NobodyFragmented}, DefragKeep,
		"no database is fragmented, or those that are were defragmented lately or without a gain"},
	{"sizes-unknown", DefragFacts{Turn: FragmentsUnknown}, DefragWait, "the size of a database is not known, so whose turn it is neither"},
	{"alone-unscheduled", DefragFacts{Alone: rules.Yes | rules.Unknown, Scheduled: notYes}, DefragWait,
		"it stops every read and write of a cluster of one: only in a window that a person chose"},
	{"record-not-firm", DefragFacts{Firm: notYes}, DefragWait,
		"only a Formed record that was read just now and lists the decider says who the members are"},
	{"leadership-moved", DefragFacts{Leads: notYes}, DefragWait, "another agent may lead now, and defragment another member"},
	{"not-settled", DefragFacts{Settled: notYes}, DefragWait, "a member joins, replaces itself, leaves, or is superfluous"},
	{"not-healthy", DefragFacts{Healthy: notYes}, DefragWait,
		"a member is down, lags, has an alarm, or is being defragmented: a second one that stalls may cost the quorum"},
	{"no-room", DefragFacts{Room: notYes}, DefragWait,
		"etcd writes the copy beside the database, and does not survive a full volume"},
	{"follower", DefragFacts{Turn: FollowerFragmented}, Defrag, "one at a time, the leader last"},
	{"alone", DefragFacts{Turn: LeaderFragmented, Alone: rules.Yes}, Defrag, "in the window that a person chose"},
	{"moved-before", DefragFacts{Moved: rules.Yes | rules.Unknown}, DefragWait, "leadership came back: it is not moved to and fro"},
	{"move-leader", DefragFacts{}, DefragMove, "nobody stalls the leader: the next one's agent measures, and finds a follower"},
}

func (w *DefragFacts) holds(f *DefragFacts) bool {
	return holds(w.Enabled, f.Enabled) && holds(w.Window, f.Window) && holds(w.Turn, f.Turn) && holds(w.Alone, f.Alone) &&
		holds(w.Scheduled, f.Scheduled) && holds(w.Firm, f.Firm) && holds(w.Leads, f.Leads) && holds(w.Settled, f.Settled) &&
		holds(w.Healthy, f.Healthy) && holds(w.Room, f.Room) && holds(w.Moved, f.Moved)
}

// DecideDefrag says what the leader's agent does next about fragmented databases.
func DecideDefrag(f DefragFacts) DefragDecision {
	for i := range defrags {
		if r := &defrags[i]; r.when.holds(&f) {
			return r.decision(r.verdict == DefragWait)
		}
	}
	return DefragDecision{Verdict: DefragWait, Rule: "uncovered"}
}
