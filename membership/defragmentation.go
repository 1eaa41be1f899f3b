package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

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
	Authoritative rules.Answer `fact:"firm record"`
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
	{Name: "record-not-firm", When: DefragFacts{Authoritative: notYes}, Verdict: DefragWait,
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

// Space is what the file of one member's database holds, in bytes: all of it, and what is in use.
type Space struct {
	Size, InUse int64
}

// Free is what a defragmentation would give back, in bytes.
func (s Space) Free() int64 { return max(s.Size-s.InUse, 0) }

// Thresholds at which a database is called fragmented: both must be reached.
type Thresholds struct {
	// FreePercent of the file, and FreeBytes, that are not in use.
	FreePercent, FreeBytes int64
}

// Fragmented says whether the thresholds are reached. A size that is not known is no reason to defragment.
func (t Thresholds) Fragmented(s Space) bool {
	return s.Size > 0 && s.Free() > 0 && s.Free() >= t.FreeBytes && s.Free()*100 >= s.Size*t.FreePercent
}

const (
	// defragAgain is how long a member's database is left alone after each defragmentation: one that is fragmented again
	// by then is being written to its size again and again, and would only stall its member for nothing.
	defragAgain = time.Hour
	// maxDefragAgain bounds the pause that doubles with each failure.
	maxDefragAgain = 24 * time.Hour
	// materially is the part of the file, in per cent, by which a database must have changed before one that a
	// defragmentation did not help is worth another.
	materially = 10
)

// DefragAttempt is what this agent remembers of the last defragmentation of a member.
type DefragAttempt struct {
	// Failures in a row; the last attempt succeeded when there is none.
	Failures int
	// Helped: afterwards the database was below the thresholds. After is what it held then.
	Helped bool
	After  Space
}

// Again says whether a member whose database holds s may be defragmented again, so long after this attempt.
func (a DefragAttempt) Again(s Space, ago time.Duration) bool {
	pause := min(defragAgain<<min(max(a.Failures-1, 0), 8), maxDefragAgain)
	if ago < pause {
		return false
	}
	return a.Failures > 0 || a.Helped || differs(a.After.Size, s.Size) || differs(a.After.InUse, s.InUse)
}

func differs(before, now int64) bool { return max(before-now, now-before)*100 > before*materially }

// MostFragmented is the member whose turn it is: of the voters that are due the follower that comes first by name, the leader when no
// follower is due. The sizes of all voters must be known, so that the leader's turn really comes last.
func MostFragmented(v View, leader uint64, spaces map[uint64]Space, due func(Member, Space) bool) (Member, Fragments) {
	voters := v.Voters()
	slices.SortFunc(voters, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	var last Member
	found := NoOneFragmented
	for _, m := range voters {
		space, known := spaces[m.ID]
		switch {
		case !known || space.Size <= 0:
			return Member{}, FragmentsUnknown
		case !due(m, space) || found == FollowerFragmented:
		case m.ID == leader:
			last, found = m, LeaderFragmented
		default:
			last, found = m, FollowerFragmented
		}
	}
	return last, found
}

// Settled says whether the list holds exactly the desired members, each of them a started voter: no one joins, and no one is a stray.
func Settled(v View, names []string) rules.Answer {
	if len(v.Members) != len(names) {
		return rules.No
	}
	for _, m := range v.Members {
		if m.Learner || !m.Started() || !slices.Contains(names, m.Name) {
			return rules.No
		}
	}
	return rules.Yes
}

// AllHealthy says whether every voter is.
func AllHealthy(v View, health map[uint64]rules.Answer) rules.Answer {
	return OthersHealthy(v, 0, health, func(Member) rules.Answer { return rules.Yes })
}
