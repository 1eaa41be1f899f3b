package membership

import "github.com/etcd-druid/druid/internal/rules"

// AlarmsRaised says which alarms of etcd stand.
type AlarmsRaised uint8

// What stands. CorruptRaised: whatever else does.
const (
	NoAlarm AlarmsRaised = 1 << iota
	NoSpaceRaised
	CorruptRaised
	AlarmsUnknown
)

const anyAlarms = NoAlarm | NoSpaceRaised | CorruptRaised | AlarmsUnknown

var alarmsNames = map[AlarmsRaised]string{
	NoAlarm: "none", NoSpaceRaised: "NOSPACE", CorruptRaised: "CORRUPT", AlarmsUnknown: "unknown",
}

func (a AlarmsRaised) String() string { return alarmsNames[a] }

// AlarmsOf a list that etcd answered. An alarm of a kind that we do not know is nobody's to cure: it counts as unknown.
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

const anyHistory = HistoryThere | HistoryKept | HistoryUnsaved | HistoryRecent | HistoryGoing | HistoryGone | HistoryUnknown

var historyNames = map[History]string{
	HistoryThere: "old and saved", HistoryKept: "to be kept", HistoryUnsaved: "not backed up", HistoryRecent: "recent",
	HistoryGoing: "just compacted", HistoryGone: "none", HistoryUnknown: "unknown",
}

func (h History) String() string { return historyNames[h] }

// CureFacts is all that DecideCure may look at.
type CureFacts struct {
	// Alarms that stand, read through raft.
	Alarms AlarmsRaised
	// Enabled: the configuration that is in force lets the agents act on it.
	Enabled rules.Answer
	// Firm and Leads are those of DefragFacts.
	Firm, Leads rules.Answer
	// Fill: how the databases of all members stand to their quotas (FillOf).
	Fill Fill
	// History that could be given up.
	History History
	// Settled is that of DefragFacts; Healthy too, but that the alarm NOSPACE makes nobody unhealthy.
	Settled, Healthy rules.Answer
	// Room: the volume of the member whose turn it is holds a second copy of what is in use.
	Room rules.Answer
	// Alone: there is no other voter. Moved: this agent moved leadership for a defragmentation's sake a short while ago.
	Alone, Moved rules.Answer
}

// CureVerdict is what the leader's agent does next about an alarm.
type CureVerdict string

// The verdicts.
const (
	CureKeep    CureVerdict = "Keep" // nothing is to be done
	CureWait    CureVerdict = "Wait" // look again
	CureCompact CureVerdict = "Compact"
	CureDefrag  CureVerdict = "Defragment"
	CureMove    CureVerdict = "MoveLeader"
	CureDisarm  CureVerdict = "Disarm"
)

// CureDecision names the rule too.
type CureDecision = Decision[CureVerdict]

// cures is the whole policy on alarms. First match wins; what no rule covers waits. What was done is seen in etcd, so whoever leads next
// goes on.
var cures = []row[CureFacts, CureVerdict]{
	{"no-alarm", CureFacts{Alarms: NoAlarm}, CureKeep, "nothing is to be cured"},
	{"alarms-unknown", CureFacts{Alarms: AlarmsUnknown}, CureWait, "the alarms could not be read, or one is of a kind that nobody here knows"},
	{"corrupt", CureFacts{Alarms: CorruptRaised}, CureWait,
		"the members' data differs: nothing is rewritten, and no alarm taken back, before a person has looked"},
	{"left-to-a-person", CureFacts{Enabled: notYes}, CureKeep, "the configuration leaves it to a person: compact, defragment, disarm the alarm"},
	{"record-not-firm", CureFacts{Firm: notYes}, CureWait,
		"only a Formed record that was read just now and lists the decider says who the members are"},
	{"leadership-moved", CureFacts{Leads: notYes}, CureWait, "another agent may lead now, and act"},
	{"sizes-unknown", CureFacts{Fill: FillUnknown}, CureWait, "a member does not say how large its database is: it could raise the alarm again at once"},
	{"disarm", CureFacts{Fill: AllBelow}, CureDisarm, "every member's file is below its quota by the margin"},
	{"compact", CureFacts{Fill: Crowded, History: HistoryThere}, CureCompact, "no file can shrink below the margin before old revisions go"},
	{"history-kept", CureFacts{Fill: Crowded, History: HistoryKept}, CureWait,
		"what is in use exceeds the margin, and the configuration keeps old revisions: compact, delete keys, or raise the quota"},
	{"history-unsaved", CureFacts{Fill: Crowded, History: HistoryUnsaved}, CureWait, "revisions are compacted only when they are backed up, and they are not yet"},
	{"history-recent", CureFacts{Fill: Crowded, History: HistoryRecent}, CureWait, "clients may still want the revisions of the last minutes"},
	{"history-unknown", CureFacts{Fill: Crowded, History: HistoryUnknown}, CureWait, "it could not be read which revisions there are and which are backed up"},
	{"compacting", CureFacts{Fill: Crowded, History: HistoryGoing}, CureWait, "the members free what was compacted in their own time"},
	{"full", CureFacts{Fill: Crowded}, CureWait,
		"without any old revision what is in use still exceeds the margin: delete keys, or raise the quota"},
	{"resting", CureFacts{Fill: Resting}, CureWait, "the defragmentation of a member failed, and is tried again in a while: the agent's log has the error"},
	{"not-settled", CureFacts{Settled: notYes}, CureWait, "a member joins, replaces itself, leaves, or is superfluous"},
	{"not-healthy", CureFacts{Healthy: notYes}, CureWait,
		"a member is down, lags, or is being defragmented: a second one that stalls may cost the quorum"},
	{"no-room", CureFacts{Room: notYes}, CureWait, "etcd writes the copy beside the database, and does not survive a full volume: make the volume larger"},
	{"follower", CureFacts{Fill: FollowerLoose}, CureDefrag, "one at a time, the leader last; no window is waited for while writes are refused"},
	{"alone", CureFacts{Alone: rules.Yes}, CureDefrag, "its writes are refused anyway"},
	{"leads-again", CureFacts{Moved: rules.Yes | rules.Unknown}, CureDefrag, "leadership came back: a leader that stalls for seconds is less than writes that are refused"},
	{"move-leader", CureFacts{}, CureMove, "nobody stalls the leader: the next one's agent goes on"},
}

func (w *CureFacts) holds(f *CureFacts) bool {
	return holds(w.Alarms, f.Alarms) && holds(w.Enabled, f.Enabled) && holds(w.Firm, f.Firm) && holds(w.Leads, f.Leads) &&
		holds(w.Fill, f.Fill) && holds(w.History, f.History) && holds(w.Settled, f.Settled) && holds(w.Healthy, f.Healthy) &&
		holds(w.Room, f.Room) && holds(w.Alone, f.Alone) && holds(w.Moved, f.Moved)
}

// DecideCure says what the leader's agent does next about alarms.
func DecideCure(f CureFacts) CureDecision {
	for i := range cures {
		if r := &cures[i]; r.when.holds(&f) {
			return r.decision(r.verdict == CureWait || r.name == "left-to-a-person")
		}
	}
	return CureDecision{Verdict: CureWait, Rule: "uncovered"}
}
