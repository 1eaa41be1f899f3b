package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

// AlarmsRaised says which alarms of etcd stand.
type AlarmsRaised uint8

// What stands. CorruptRaised: whatever else does.
const (
	NoAlarm AlarmsRaised = 1 << iota
	NoSpaceRaised
	CorruptRaised
	AlarmsUnknown
)

var alarmsNames = map[AlarmsRaised]string{
	NoAlarm: "none", NoSpaceRaised: "NOSPACE", CorruptRaised: "CORRUPT", AlarmsUnknown: "unknown",
}

func (a AlarmsRaised) String() string { return alarmsNames[a] }

// AlarmsOf a list that etcd answered. An alarm of a kind that we do not know is no one's to cure: it counts as unknown.
func AlarmsOf(alarms []Alarm) AlarmsRaised {
	raised := NoAlarm
	for _, a := range alarms {
		switch {
		case a.Type == AlarmCorrupt:
			return CorruptRaised
		case a.Type != AlarmNoSpace:
			raised = AlarmsUnknown
		case raised == NoAlarm:
			raised = NoSpaceRaised
		}
	}
	return raised
}

// History says whether old revisions can be given up to make room.
type History uint8

// The states. Each is about what is older than the window that is kept for clients and, where there are backups, saved.
const (
	// HistoryThere: there is some, and it may be compacted now.
	HistoryThere History = 1 << iota
	// HistoryKept: the configuration lets no agent compact.
	HistoryKept
	// HistoryUnsaved: what is left is not backed up yet.
	HistoryUnsaved
	// HistoryRecent: what is left was made, or seen first, less than the window ago.
	HistoryRecent
	// HistoryGoing: it was compacted a moment ago; the members free the pages in their own time.
	HistoryGoing
	// HistoryGone: nothing but the present revision is left.
	HistoryGone
	HistoryUnknown
)

var historyNames = map[History]string{
	HistoryThere: "old and saved", HistoryKept: "to be kept", HistoryUnsaved: "not backed up", HistoryRecent: "recent",
	HistoryGoing: "just compacted", HistoryGone: "none", HistoryUnknown: "unknown",
}

func (h History) String() string { return historyNames[h] }

// CureFacts is all that DecideCure may look at.
type NospaceFacts struct {
	// Alarms that stand, read through raft.
	Alarms AlarmsRaised `fact:"alarm"`
	// Enabled: the configuration that is in force lets the agents act on it.
	Enabled rules.Answer
	// Firm and Leads are those of DefragFacts.
	Authoritative rules.Answer `fact:"firm record"`
	Leads         rules.Answer `fact:"we lead"`
	// Fill: how the databases of all members stand to their quotas (FillOf).
	Fill Fill `fact:"files and margins"`
	// History that could be given up.
	History History `fact:"old revisions"`
	// Settled is that of DefragFacts; Healthy too, but that the alarm NOSPACE makes no one unhealthy.
	Settled rules.Answer `fact:"settled"`
	Healthy rules.Answer `fact:"all healthy"`
	// Room: the volume of the member whose turn it is holds a second copy of what is in use.
	Room rules.Answer `fact:"room"`
	// Alone: there is no other voter. Moved: this agent moved leadership for a defragmentation's sake a short while ago.
	Alone rules.Answer `fact:"the only voter"`
	Moved rules.Answer `fact:"moved lately"`
}

// CureVerdict is what the leader's agent does next about an alarm.
type NospaceVerdict string

// The verdicts.
const (
	NospaceKeep    NospaceVerdict = "Keep" // nothing is to be done
	NospaceWait    NospaceVerdict = "Wait" // look again
	NospaceCompact NospaceVerdict = "Compact"
	NospaceDefrag  NospaceVerdict = "Defragment"
	NospaceMove    NospaceVerdict = "MoveLeader"
	NospaceDisarm  NospaceVerdict = "Disarm"
)

// CureDecision names the rule too.
type NospaceDecision = rules.Decision[NospaceVerdict]

// cures is the whole policy on alarms. First match wins; what no rule covers waits. What was done is seen in etcd, so anyone who leads next
// goes on.
var nospaceRules = rules.New(NospaceWait, []rules.Row[NospaceFacts, NospaceVerdict]{
	{Name: "no-alarm", When: NospaceFacts{Alarms: NoAlarm}, Verdict: NospaceKeep,
		Why: "nothing is to be cured"},
	{Name: "alarms-unknown", When: NospaceFacts{Alarms: AlarmsUnknown}, Verdict: NospaceWait,
		Why: "the alarms could not be read, or one is of a kind that no one here knows"},
	{Name: "corrupt", When: NospaceFacts{Alarms: CorruptRaised}, Verdict: NospaceWait,
		Why: "the members' data differs: nothing is rewritten, and no alarm taken back, before a person has looked"},
	{Name: "left-to-a-person", When: NospaceFacts{Enabled: notYes}, Verdict: NospaceKeep,
		Why: "the configuration leaves it to a person: compact, defragment, disarm the alarm"},
	{Name: "record-not-firm", When: NospaceFacts{Authoritative: notYes}, Verdict: NospaceWait,
		Why: "only a Formed record that was read just now and lists the decider says who the members are"},
	{Name: "leadership-moved", When: NospaceFacts{Leads: notYes}, Verdict: NospaceWait,
		Why: "another agent may lead now, and act"},
	{Name: "sizes-unknown", When: NospaceFacts{Fill: FillUnknown}, Verdict: NospaceWait,
		Why: "a member does not say how large its database is: it could raise the alarm again at once"},
	{Name: "disarm", When: NospaceFacts{Fill: AllBelow}, Verdict: NospaceDisarm,
		Why: "every member's file is below its quota by the margin"},
	{Name: "compact", When: NospaceFacts{Fill: OverThreshold, History: HistoryThere}, Verdict: NospaceCompact,
		Why: "no file can shrink below the margin before old revisions go"},
	{Name: "history-kept", When: NospaceFacts{Fill: OverThreshold, History: HistoryKept}, Verdict: NospaceWait,
		Why: "what is in use exceeds the margin, and the configuration keeps old revisions: compact, delete keys, or raise the quota"},
	{Name: "history-unsaved", When: NospaceFacts{Fill: OverThreshold, History: HistoryUnsaved}, Verdict: NospaceWait,
		Why: "revisions are compacted only when they are backed up, and they are not yet"},
	{Name: "history-recent", When: NospaceFacts{Fill: OverThreshold, History: HistoryRecent}, Verdict: NospaceWait,
		Why: "clients may still want the revisions of the last minutes"},
	{Name: "history-unknown", When: NospaceFacts{Fill: OverThreshold, History: HistoryUnknown}, Verdict: NospaceWait,
		Why: "it could not be read which revisions there are and which are backed up"},
	{Name: "compacting", When: NospaceFacts{Fill: OverThreshold, History: HistoryGoing}, Verdict: NospaceWait,
		Why: "the members free what was compacted in their own time"},
	{Name: "full", When: NospaceFacts{Fill: OverThreshold}, Verdict: NospaceWait,
		Why: "without any old revision what is in use still exceeds the margin: delete keys, or raise the quota"},
	{Name: "resting", When: NospaceFacts{Fill: Resting}, Verdict: NospaceWait,
		Why: "the defragmentation of a member failed, and is tried again in a while: the agent's log has the error"},
	{Name: "not-settled", When: NospaceFacts{Settled: notYes}, Verdict: NospaceWait,
		Why: "a member joins, replaces itself, leaves, or is superfluous"},
	{Name: "not-healthy", When: NospaceFacts{Healthy: notYes}, Verdict: NospaceWait,
		Why: "a member is down, lags, or is being defragmented: a second one that stalls may cost the quorum"},
	{Name: "no-room", When: NospaceFacts{Room: notYes}, Verdict: NospaceWait,
		Why: "etcd writes the copy next to the database, and does not survive a full volume: make the volume larger"},
	{Name: "follower", When: NospaceFacts{Fill: FollowerLoose}, Verdict: NospaceDefrag,
		Why: "one at a time, the leader last; no window is waited for while writes are refused"},
	{Name: "alone", When: NospaceFacts{Alone: rules.Yes}, Verdict: NospaceDefrag,
		Why: "its writes are refused anyway"},
	{Name: "leads-again", When: NospaceFacts{Moved: rules.Yes | rules.Unknown}, Verdict: NospaceDefrag,
		Why: "leadership came back: a leader that stalls for seconds is less than writes that are refused"},
	{Name: "move-leader", Verdict: NospaceMove,
		Why: "no one stalls the leader: the next one's agent goes on"},
})

// DecideCure says what the leader's agent does next about alarms.
func DecideNospace(f NospaceFacts) NospaceDecision { return nospaceRules.Decide(f) }

// Fill says how the databases of all members stand to the margin below their quotas.
type Fill uint8

// How they stand. What one member needs first counts: Crowded before Resting before FollowerLoose before LeaderLoose.
const (
	// AllBelow: every file is below the margin.
	AllBelow Fill = 1 << iota
	// FollowerLoose: a follower's file is above it, what is in use is not. LeaderLoose: the leader's alone.
	FollowerLoose
	LeaderLoose
	// Crowded: what is in use reaches the margin in some member's file, so no defragmentation brings it below.
	OverThreshold
	// Resting: a member's file is above it, and its defragmentation failed or ended a moment ago.
	Resting
	FillUnknown
)

var fillNames = map[Fill]string{
	AllBelow: "all below", FollowerLoose: "a follower is loose", LeaderLoose: "the leader alone is loose",
	OverThreshold: "one is crowded", Resting: "one is to rest", FillUnknown: "unknown",
}

func (f Fill) String() string { return fillNames[f] }

// disarmBelow is the part of the quota, in per cent, below which every file must be before the alarm is taken back: writes that begin again
// shall not raise it within moments.
const disarmBelow = 90

// Filled is one member's database and its quota.
type Filled struct {
	Space
	// Quota in bytes; below zero for none.
	Quota int64
}

func (f Filled) below(bytes int64) bool { return f.Quota < 0 || bytes < f.Quota/100*disarmBelow }

// FillOf all members, and the member to defragment next, where one is loose: the follower that comes first by name. The sizes of all
// members must be known, those of learners too: a member of any kind raises the alarm. due says whether a loose one may be
// defragmented (again).
func FillOf(v View, leader uint64, filled map[uint64]Filled, due func(Member, Space) bool) (Member, Fill) {
	members := slices.Clone(v.Members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	var next Member
	worst := AllBelow
	rank := map[Fill]int{AllBelow: 0, LeaderLoose: 1, FollowerLoose: 2, Resting: 3, OverThreshold: 4}
	for _, m := range members {
		f, known := filled[m.ID]
		if !known || f.Size <= 0 || f.Quota == 0 {
			return Member{}, FillUnknown
		}
		fill := FollowerLoose
		switch {
		case f.below(f.Size):
			fill = AllBelow
		case !f.below(f.InUse):
			fill = OverThreshold
		case !due(m, f.Space):
			fill = Resting
		case m.ID == leader:
			fill = LeaderLoose
		}
		if rank[fill] > rank[worst] {
			next, worst = m, fill
		}
	}
	return next, worst
}

const (
	// CureAgain is how long a member is left alone after a defragmentation that failed while writes are refused; the pause doubles with
	// each failure.
	NospaceAgain = 2 * time.Minute
	// maxCureAgain bounds it.
	maxNospaceAgain = time.Hour
)

// Spent says whether the database is as the last defragmentation left it: then its file has no slack, whatever etcd counts.
func (a DefragAttempt) Spent(s Space) bool {
	return a.Failures == 0 && a.After.Size > 0 && !differs(a.After.Size, s.Size) && !differs(a.After.InUse, s.InUse)
}

// AgainFull says whether a member that is to come below its margin may be defragmented again, so long after this attempt: when it
// failed, or when the file is not as it was left. The pause is CureAgain, and doubles with each failure.
func (a DefragAttempt) AgainFull(s Space, ago, pause time.Duration) bool {
	if a.Failures > 0 {
		return ago >= min(pause<<min(a.Failures-1, 8), maxNospaceAgain)
	}
	return ago >= pause && (differs(a.After.Size, s.Size) || differs(a.After.InUse, s.InUse))
}
