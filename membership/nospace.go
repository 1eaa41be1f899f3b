package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

// AlarmsRaised says which alarms of etcd are raised.
type AlarmsRaised uint8

// The classes of raised alarms. CorruptRaised: the alarm CORRUPT is raised, with or without others.
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

// AlarmsOf classifies a list of alarms from etcd. An alarm of an unknown kind counts as AlarmsUnknown, so that no
// agent acts on it.
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

// History says whether old revisions can be discarded to free space.
type History uint8

// The states of the revisions that are older than the window for clients and, if there are backups, saved.
const (
	// HistoryThere: there are old revisions, and they may be compacted now.
	HistoryThere History = 1 << iota
	// HistoryKept: the configuration does not let agents compact.
	HistoryKept
	// HistoryUnsaved: the remaining old revisions are not backed up yet.
	HistoryUnsaved
	// HistoryRecent: the remaining old revisions were made, or first seen, within the window.
	HistoryRecent
	// HistoryGoing: old revisions were compacted a moment ago, and the members are still freeing the pages.
	HistoryGoing
	// HistoryGone: only the present revision is left.
	HistoryGone
	HistoryUnknown
)

var historyNames = map[History]string{
	HistoryThere: "old and saved", HistoryKept: "to be kept", HistoryUnsaved: "not backed up", HistoryRecent: "recent",
	HistoryGoing: "just compacted", HistoryGone: "none", HistoryUnknown: "unknown",
}

func (h History) String() string { return historyNames[h] }

// NospaceFacts is the complete input of DecideNospace.
type NospaceFacts struct {
	// Alarms that are raised, read through raft.
	Alarms AlarmsRaised `fact:"alarm"`
	// Enabled: the configuration in force lets the agents act on the alarm.
	Enabled rules.Answer
	// Authoritative and Leads are as in DefragFacts.
	Authoritative rules.Answer `fact:"record authoritative"`
	Leads         rules.Answer `fact:"we lead"`
	// Fill: how the databases of all members compare with their quotas (FillOf).
	Fill Fill `fact:"files and margins"`
	// History that can be discarded.
	History History `fact:"old revisions"`
	// Stable is as in DefragFacts. Healthy is too, except that the alarm NOSPACE does not make a member unhealthy.
	Stable  rules.Answer `fact:"stable"`
	Healthy rules.Answer `fact:"all healthy"`
	// Room: the volume of the selected member has room for a second copy of the data in use.
	Room rules.Answer `fact:"room"`
	// Alone: there is no other voter. Moved: this agent moved leadership for a defragmentation a short time ago.
	Alone rules.Answer `fact:"the only voter"`
	Moved rules.Answer `fact:"moved lately"`
}

// NospaceVerdict is the next step of the leader's agent for an alarm.
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

// NospaceDecision includes the name of the rule.
type NospaceDecision = rules.Decision[NospaceVerdict]

// nospaceRules is the complete policy on alarms. The first match wins. The default is to wait. The results show in
// etcd, so that the next leader's agent can continue.
var nospaceRules = rules.New(NospaceWait, []rules.Row[NospaceFacts, NospaceVerdict]{
	{Name: "no-alarm", When: NospaceFacts{Alarms: NoAlarm}, Verdict: NospaceKeep,
		Why: "no alarm is raised"},
	{Name: "alarms-unknown", When: NospaceFacts{Alarms: AlarmsUnknown}, Verdict: NospaceWait,
		Why: "the alarms could not be read, or one of them is of an unknown kind"},
	{Name: "corrupt", When: NospaceFacts{Alarms: CorruptRaised}, Verdict: NospaceWait,
		Why: "the data of the members differs; no data is rewritten and no alarm is disarmed until you have checked the members"},
	{Name: "manual-action", When: NospaceFacts{Enabled: notYes}, Verdict: NospaceKeep,
		Why: "the configuration does not let the agents act; compact, defragment and disarm the alarm manually"},
	{Name: "record-not-authoritative", When: NospaceFacts{Authoritative: notYes}, Verdict: NospaceWait,
		Why: "the members are certain only with a cluster record that was read just now, has the phase Formed and lists the deciding member"},
	{Name: "leadership-moved", When: NospaceFacts{Leads: notYes}, Verdict: NospaceWait,
		Why: "another agent might lead now and act"},
	{Name: "sizes-unknown", When: NospaceFacts{Fill: FillUnknown}, Verdict: NospaceWait,
		Why: "the size of a member's database is unknown; it could raise the alarm again at once"},
	{Name: "disarm", When: NospaceFacts{Fill: AllBelow}, Verdict: NospaceDisarm,
		Why: "the database file of every member is below the margin of its quota"},
	{Name: "compact", When: NospaceFacts{Fill: OverThreshold, History: HistoryThere}, Verdict: NospaceCompact,
		Why: "no file can shrink below the margin until old revisions are compacted"},
	{Name: "history-kept", When: NospaceFacts{Fill: OverThreshold, History: HistoryKept}, Verdict: NospaceWait,
		Why: "the data in use exceeds the margin, and the configuration keeps old revisions; compact, delete keys, or raise the quota"},
	{Name: "history-unsaved", When: NospaceFacts{Fill: OverThreshold, History: HistoryUnsaved}, Verdict: NospaceWait,
		Why: "only revisions that are backed up are compacted, and the old revisions are not backed up yet"},
	{Name: "history-recent", When: NospaceFacts{Fill: OverThreshold, History: HistoryRecent}, Verdict: NospaceWait,
		Why: "clients might still need the revisions of the last minutes"},
	{Name: "history-unknown", When: NospaceFacts{Fill: OverThreshold, History: HistoryUnknown}, Verdict: NospaceWait,
		Why: "the present revisions or the backed up revisions could not be read"},
	{Name: "compacting", When: NospaceFacts{Fill: OverThreshold, History: HistoryGoing}, Verdict: NospaceWait,
		Why: "the members are still freeing the compacted revisions"},
	{Name: "full", When: NospaceFacts{Fill: OverThreshold}, Verdict: NospaceWait,
		Why: "the data in use exceeds the margin even without old revisions; delete keys, or raise the quota"},
	{Name: "retry-paused", When: NospaceFacts{Fill: Resting}, Verdict: NospaceWait,
		Why: "the defragmentation of a member failed and is retried later (see the log of the agent)"},
	{Name: "not-stable", When: NospaceFacts{Stable: notYes}, Verdict: NospaceWait,
		Why: "a member is joining, being replaced, leaving, or superfluous, or no majority has the same data"},
	{Name: "not-healthy", When: NospaceFacts{Healthy: notYes}, Verdict: NospaceWait,
		Why: "a member is down, lags, or is being defragmented; another stalled member could cost the quorum"},
	{Name: "no-room", When: NospaceFacts{Room: notYes}, Verdict: NospaceWait,
		Why: "etcd writes a copy alongside the database and fails on a full volume; enlarge the volume"},
	{Name: "follower", When: NospaceFacts{Fill: FollowerLoose}, Verdict: NospaceDefrag,
		Why: "one member at a time, the leader last; while writes are refused, windows do not apply"},
	{Name: "only-member", When: NospaceFacts{Alone: rules.Yes}, Verdict: NospaceDefrag,
		Why: "the only member refuses writes anyway"},
	{Name: "leadership-returned", When: NospaceFacts{Moved: rules.Yes | rules.Unknown}, Verdict: NospaceDefrag,
		Why: "leadership was already moved and has returned; a leader that stalls for seconds is better than refused writes"},
	{Name: "move-leader", Verdict: NospaceMove,
		Why: "the leader is not stalled; leadership moves, and the next leader's agent continues"},
})

// DecideNospace returns the next step of the leader's agent for alarms.
func DecideNospace(f NospaceFacts) NospaceDecision { return nospaceRules.Decide(f) }

// Fill says how the databases of all members compare with the margin below their quotas.
type Fill uint8

// The states. The most urgent one of all members counts, in the order Crowded, Resting, FollowerLoose, LeaderLoose.
const (
	// AllBelow: every file is below the margin.
	AllBelow Fill = 1 << iota
	// FollowerLoose: a follower's file is above the margin, but its data in use is not. LeaderLoose: this applies to
	// the leader only.
	FollowerLoose
	LeaderLoose
	// OverThreshold: the data in use reaches the margin in a member's file, so no defragmentation brings the file below it.
	OverThreshold
	// Resting: a member's file is above the margin, and its defragmentation failed or ended a moment ago.
	Resting
	FillUnknown
)

var fillNames = map[Fill]string{
	AllBelow: "all below", FollowerLoose: "a follower is loose", LeaderLoose: "the leader alone is loose",
	OverThreshold: "one is crowded", Resting: "one is backing off", FillUnknown: "unknown",
}

func (f Fill) String() string { return fillNames[f] }

// disarmBelow is the percentage of the quota below which every file must be before the alarm is disarmed, so that new
// writes do not raise it again within moments.
const disarmBelow = 90

// Filled is one member's database and its quota.
type Filled struct {
	Space
	// Quota in bytes, negative for none.
	Quota int64
}

func (f Filled) below(bytes int64) bool { return f.Quota < 0 || bytes < f.Quota/100*disarmBelow }

// FillOf classifies all members and returns the member to defragment next, if one is loose: the first follower by
// name. The sizes of all members must be known, including learners, because any member can raise the alarm. due says
// whether a loose member may be defragmented (again).
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
	// NospaceAgain is the pause after a failed defragmentation of a member while writes are refused. It doubles with
	// each failure.
	NospaceAgain = 2 * time.Minute
	// maxNospaceAgain bounds the pause.
	maxNospaceAgain = time.Hour
)

// Spent says whether the database is as the last defragmentation left it. Then its file has no free pages, whatever
// etcd reports.
func (a DefragAttempt) Spent(s Space) bool {
	return a.Failures == 0 && a.After.Size > 0 && !differs(a.After.Size, s.Size) && !differs(a.After.InUse, s.InUse)
}

// AgainFull says whether a member above its margin may be defragmented again, ago after this attempt: if it failed, or
// if the file has changed since. pause is NospaceAgain. It doubles with each failure.
func (a DefragAttempt) AgainFull(s Space, ago, pause time.Duration) bool {
	if a.Failures > 0 {
		return ago >= min(pause<<min(a.Failures-1, 8), maxNospaceAgain)
	}
	return ago >= pause && (differs(a.After.Size, s.Size) || differs(a.After.InUse, s.InUse))
}
