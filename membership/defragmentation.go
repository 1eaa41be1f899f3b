package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

// Fragments says whose database is fragmented and may be defragmented now.
type Fragments uint8

// LeaderFragmented: only the leader's database is fragmented.
const (
	NoOneFragmented Fragments = 1 << iota
	FollowerFragmented
	LeaderFragmented
	FragmentsUnknown
)

var fragmentsNames = map[Fragments]string{
	NoOneFragmented: "none", FollowerFragmented: "a follower", LeaderFragmented: "the leader alone", FragmentsUnknown: "unknown",
}

func (f Fragments) String() string { return fragmentsNames[f] }

// DefragFacts is the complete input of DecideDefrag.
type DefragFacts struct {
	// Enabled: the configuration in force lets the agents defragment.
	Enabled rules.Answer
	// Window: a defragmentation may begin now. It is Unknown if the schedule cannot be read.
	Window rules.Answer `fact:"window open"`
	// Turn: whose database is fragmented, followers first (MostFragmented).
	Turn Fragments `fact:"whose turn"`
	// Alone: there is no other voter.
	Alone rules.Answer `fact:"the only voter"`
	// Scheduled: the configuration sets windows. Without a schedule, windows are always open.
	Scheduled rules.Answer `fact:"window chosen"`
	// Authoritative: the cluster record was read just now, has the phase Formed, and lists the deciding member, whose Lease
	// names this Pod.
	Authoritative rules.Answer `fact:"record authoritative"`
	// Leads: the agent's own member leads, in the raft term in which the list was read.
	Leads rules.Answer `fact:"we lead"`
	// Stable: no member is joining, being replaced, being removed, or superfluous.
	Stable rules.Answer `fact:"stable"`
	// Healthy: every voter knows a leader, reports no alarm, and answered a linearizable read just now. A member that
	// is being defragmented or has not caught up does not answer.
	Healthy rules.Answer `fact:"all healthy"`
	// Room: the volume of the selected member has room for a second copy of the data in use.
	Room rules.Answer `fact:"room"`
	// Moved: this agent moved leadership for a defragmentation a short time ago.
	Moved rules.Answer `fact:"moved lately"`
}

// DefragVerdict is the next step of the leader's agent.
type DefragVerdict string

// The verdicts.
const (
	DefragKeep DefragVerdict = "Keep"       // nothing is to be done
	DefragWait DefragVerdict = "Wait"       // look again
	Defrag     DefragVerdict = "Defragment" // the member whose turn it is
	DefragMove DefragVerdict = "MoveLeader" // hand leadership to another voter, whose agent goes on
)

// DefragDecision includes the name of the rule.
type DefragDecision = rules.Decision[DefragVerdict]

// defrags is the complete policy on defragmentations. The first match wins. The default is to wait.
var defrags = rules.New(DefragWait, []rules.Row[DefragFacts, DefragVerdict]{
	{Name: "disabled", When: DefragFacts{Enabled: notYes}, Verdict: DefragKeep,
		Why: "the configuration does not enable defragmentations"},
	{Name: "window-closed", When: DefragFacts{Window: rules.No}, Verdict: DefragKeep,
		Why: "the defragmentation waits for the next window"},
	{Name: "window-unread", When: DefragFacts{Window: rules.Unknown}, Verdict: DefragWait,
		Why: "the schedule cannot be read, so no window is open"},
	{Name: "not-fragmented", When: DefragFacts{Turn: NoOneFragmented}, Verdict: DefragKeep,
		Why: "no database is fragmented, or the fragmented ones were defragmented recently or without effect"},
	{Name: "sizes-unknown", When: DefragFacts{Turn: FragmentsUnknown}, Verdict: DefragWait,
		Why: "the size of a database is unknown, so the next member cannot be determined"},
	{Name: "only-member-unscheduled", When: DefragFacts{Alone: rules.Yes | rules.Unknown, Scheduled: notYes}, Verdict: DefragWait,
		Why: "a defragmentation stops all reads and writes of a cluster with one member, so it needs a configured window"},
	{Name: "record-not-authoritative", When: DefragFacts{Authoritative: notYes}, Verdict: DefragWait,
		Why: "the members are certain only with a cluster record that was read just now, has the phase Formed and lists the deciding member"},
	{Name: "leadership-moved", When: DefragFacts{Leads: notYes}, Verdict: DefragWait,
		Why: "another agent might lead now and defragment another member"},
	{Name: "not-stable", When: DefragFacts{Stable: notYes}, Verdict: DefragWait,
		Why: "a member is joining, being replaced, leaving, or superfluous, or no majority has the same data"},
	{Name: "not-healthy", When: DefragFacts{Healthy: notYes}, Verdict: DefragWait,
		Why: "a member is down, lags, has an alarm, or is being defragmented; another stalled member could cost the quorum"},
	{Name: "no-room", When: DefragFacts{Room: notYes}, Verdict: DefragWait,
		Why: "etcd writes a copy alongside the database and fails on a full volume"},
	{Name: "follower", When: DefragFacts{Turn: FollowerFragmented}, Verdict: Defrag,
		Why: "one member at a time, the leader last"},
	{Name: "only-member", When: DefragFacts{Turn: LeaderFragmented, Alone: rules.Yes}, Verdict: Defrag,
		Why: "the configured window is open"},
	{Name: "moved-before", When: DefragFacts{Moved: rules.Yes | rules.Unknown}, Verdict: DefragWait,
		Why: "leadership was moved recently and has returned; it is not moved again"},
	{Name: "move-leader", Verdict: DefragMove,
		Why: "the leader is not stalled; leadership moves, and the next leader's agent defragments this member as a follower"},
})

// DecideDefrag returns the next step of the leader's agent for fragmented databases.
func DecideDefrag(f DefragFacts) DefragDecision { return defrags.Decide(f) }

// Space is the size of a member's database file and the part in use, in bytes.
type Space struct {
	Size, InUse int64
}

// Free is what a defragmentation would free, in bytes.
func (s Space) Free() int64 { return max(s.Size-s.InUse, 0) }

// Thresholds at which a database counts as fragmented. Both must be reached.
type Thresholds struct {
	// FreePercent of the file, and FreeBytes, that are unused.
	FreePercent, FreeBytes int64
}

// Fragmented says whether the thresholds are reached. An unknown size is no reason to defragment.
func (t Thresholds) Fragmented(s Space) bool {
	return s.Size > 0 && s.Free() > 0 && s.Free() >= t.FreeBytes && s.Free()*100 >= s.Size*t.FreePercent
}

const (
	// defragAgain is the minimum time between two defragmentations of a member. A database that is fragmented again
	// within that time is repeatedly written to its full size, and a defragmentation would stall its member without
	// benefit.
	defragAgain = time.Hour
	// maxDefragAgain bounds the pause, which doubles with each failure.
	maxDefragAgain = 24 * time.Hour
	// materially is the percentage of the file by which a database must have changed before it is defragmented again,
	// if the last defragmentation did not help.
	materially = 10
)

// DefragAttempt is what this agent remembers of the last defragmentation of a member.
type DefragAttempt struct {
	// Failures in a row. 0 means that the last attempt succeeded.
	Failures int
	// Helped: afterwards the database was below the thresholds. After is its size then.
	Helped bool
	After  Space
}

// Again says whether a member whose database has the size s may be defragmented again, ago after this attempt.
func (a DefragAttempt) Again(s Space, ago time.Duration) bool {
	pause := min(defragAgain<<min(max(a.Failures-1, 0), 8), maxDefragAgain)
	if ago < pause {
		return false
	}
	return a.Failures > 0 || a.Helped || differs(a.After.Size, s.Size) || differs(a.After.InUse, s.InUse)
}

func differs(before, now int64) bool { return max(before-now, now-before)*100 > before*materially }

// MostFragmented returns the next member to defragment: of the due voters, the first follower by name, or the leader
// if no follower is due. The sizes of all voters must be known, so that the leader is really the last one.
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

// Stable says whether the list has exactly the desired members, each of them a started voter: none is joining, and
// none is superfluous.
func Stable(v View, names []string) rules.Answer {
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

// AllHealthy says whether every voter is healthy.
func AllHealthy(v View, health map[uint64]rules.Answer) rules.Answer {
	return OthersHealthy(v, 0, health, func(Member) rules.Answer { return rules.Yes })
}
