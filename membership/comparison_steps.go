package membership

import (
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
)

// Found is the verdict of a comparison as a fact.
type Found uint8

// The verdicts.
const (
	FoundSame Found = 1 << iota
	FoundDiffering
	FoundTie
	FoundUnknown
)

func (f Found) String() string { return rules.Word(f, "same", "differing", "tie", "unknown") }

// Found returns the verdict as a fact.
func (c Comparison) Found() Found {
	switch c.Verdict {
	case VerdictSame:
		return FoundSame
	case VerdictDiffering:
		return FoundDiffering
	case VerdictTie:
		return FoundTie
	case VerdictUnknown:
	}
	return FoundUnknown
}

// ComparisonFacts is the complete input of DecideComparison.
type ComparisonFacts struct {
	// Authoritative: the record was read just now, has the phase Formed, belongs to this raft group, and lists the agent's
	// own member.
	Authoritative rules.Answer `fact:"record authoritative"`
	Found         Found        `fact:"voters are"`
	// Undecided: the record says that no majority has the same data.
	Undecided rules.YesNo `fact:"record says undecided"`
	// Ours: the record lists a differing voter.
	Ours rules.YesNo `fact:"differing voter is desired"`
	// Marked: the Lease of a desired voter says that its data differs.
	Marked rules.Answer `fact:"a Lease has the mark"`
	// Quiet: no member replaces itself, and no agent began to remove one. druid withdraws a request for a removal while a member is marked.
	Quiet rules.YesNo `fact:"no member joins or leaves"`
	// Corrupt: the alarm CORRUPT is raised.
	Corrupt rules.YesNo `fact:"alarm CORRUPT"`
}

// ComparisonVerdict is the next step of the leader's agent after a comparison.
type ComparisonVerdict string

// The verdicts.
const (
	// ComparisonKeep: nothing is to be done. ComparisonWait: something differs or is unknown, and the agent compares again.
	ComparisonKeep ComparisonVerdict = "Keep"
	ComparisonWait ComparisonVerdict = "Wait"
	// ComparisonMark marks the differing member on its Lease, and ComparisonUnmark removes a mark.
	ComparisonMark   ComparisonVerdict = "Mark"
	ComparisonUnmark ComparisonVerdict = "Unmark"
	// ComparisonReport writes to the record that no majority has the same data, and ComparisonWithdraw removes that.
	ComparisonReport   ComparisonVerdict = "Report"
	ComparisonWithdraw ComparisonVerdict = "Withdraw"
	// ComparisonDisarm disarms the alarm CORRUPT.
	ComparisonDisarm ComparisonVerdict = "Disarm"
)

// comparisons is the complete policy on the result of a comparison. The first match wins.
var comparisons = rules.New(ComparisonWait, []rules.Row[ComparisonFacts, ComparisonVerdict]{
	{Name: "record-not-authoritative", When: ComparisonFacts{Authoritative: notYes}, Verdict: ComparisonWait,
		Why: "the voters might belong to another raft group than the cluster record"},
	{Name: "incomplete", When: ComparisonFacts{Found: FoundUnknown}, Verdict: ComparisonWait,
		Why: "a voter did not answer, or a difference was not found at a second revision"},
	{Name: "tie-reported", When: ComparisonFacts{Found: FoundTie, Undecided: rules.Yes}, Verdict: ComparisonWait,
		Why: "no majority of all voters has the same data, so no agent can know which data is good"},
	{Name: "tie", When: ComparisonFacts{Found: FoundTie}, Verdict: ComparisonReport,
		Why: "no majority of all voters has the same data; nothing that could be evidence is changed until one has"},
	{Name: "decided", When: ComparisonFacts{Undecided: rules.Yes}, Verdict: ComparisonWithdraw,
		Why: "a majority of all voters has the same data again"},
	{Name: "differing-external", When: ComparisonFacts{Found: FoundDiffering, Ours: rules.No}, Verdict: ComparisonWait,
		Why: "the data of an external member differs; replace that member yourself"},
	{Name: "differing-reported", When: ComparisonFacts{Found: FoundDiffering, Marked: rules.Yes | rules.Unknown}, Verdict: ComparisonWait,
		Why: "one member at a time is replaced, and one is marked already"},
	{Name: "differing-during-change", When: ComparisonFacts{Found: FoundDiffering, Quiet: rules.No}, Verdict: ComparisonWait,
		Why: "another member replaces itself or is being removed"},
	{Name: "differing", When: ComparisonFacts{Found: FoundDiffering}, Verdict: ComparisonMark,
		Why: "the member receives no clients, compares again by itself, and is replaced"},
	{Name: "reports-unread", When: ComparisonFacts{Found: FoundSame, Marked: rules.Unknown}, Verdict: ComparisonWait,
		Why: "a member Lease could not be read, and it might still have a mark"},
	{Name: "equal-again", When: ComparisonFacts{Found: FoundSame, Marked: rules.Yes}, Verdict: ComparisonUnmark,
		Why: "the data of the marked member is that of all others"},
	{Name: "disarm", When: ComparisonFacts{Found: FoundSame, Corrupt: rules.Yes}, Verdict: ComparisonDisarm,
		Why: "all voters have the same data, so the alarm CORRUPT has no cause any more"},
	{Name: "same", When: ComparisonFacts{Found: FoundSame}, Verdict: ComparisonKeep,
		Why: "all voters have the same data"},
})

// DecideComparison returns the next step of the leader's agent after a comparison.
func DecideComparison(f ComparisonFacts) rules.Decision[ComparisonVerdict] {
	return comparisons.Decide(f)
}

// OwnData is what the agent of a marked member finds in its own comparison.
type OwnData uint8

// The results.
const (
	OwnAgrees    OwnData = 1 << iota // the own data is that of a majority of all voters; others may be the differing ones
	OwnDiffering                     // the own data differs from that of a majority of all voters
	OwnUndecided                     // not known, or the own member is no voter
)

func (o OwnData) String() string { return rules.Word(o, "agrees", "differing", "undecided") }

// OwnDataOf returns what a comparison says about the member with id. It agrees only if its own hash was compared: a learner has none, and a
// hash at another compaction says nothing.
func OwnDataOf(c Comparison, id uint64) OwnData {
	switch {
	case c.Names(id):
		return OwnDiffering
	case c.Verdict != VerdictSame && c.Verdict != VerdictDiffering:
		return OwnUndecided
	case slices.ContainsFunc(c.Contents, func(own Content) bool {
		return own.MemberID == id && own.comparesWith(c.Majority) && own.Hash == c.Majority.Hash
	}):
		return OwnAgrees
	default:
		return OwnUndecided
	}
}

// SlotState is the slot of the record for a member that replaces itself.
type SlotState uint8

// The states.
const (
	SlotFree SlotState = 1 << iota
	SlotOurs
	SlotOther
)

func (s SlotState) String() string { return rules.Word(s, "free", "ours", "taken") }

// DifferingFacts is the complete input of DecideDiffering, for a member whose Lease says that its data differs.
type DifferingFacts struct {
	// Authoritative is as in ComparisonFacts, and the Lease names this Pod.
	Authoritative rules.Answer `fact:"record authoritative"`
	Own           OwnData      `fact:"own comparison"`
	Slot          SlotState    `fact:"slot for a replacement"`
}

// DifferingVerdict is the next step of the agent of a marked member.
type DifferingVerdict string

// The verdicts.
const (
	DifferingKeep    DifferingVerdict = "Keep"
	DifferingWait    DifferingVerdict = "Wait"
	DifferingReplace DifferingVerdict = "Replace"
)

// differingMembers is the complete policy of the agent of a marked member. The first match wins.
var differingMembers = rules.New(DifferingWait, []rules.Row[DifferingFacts, DifferingVerdict]{
	{Name: "record-not-authoritative", When: DifferingFacts{Authoritative: notYes}, Verdict: DifferingWait,
		Why: "the mark might belong to another raft group or to another Pod"},
	{Name: "not-confirmed", When: DifferingFacts{Own: OwnUndecided}, Verdict: DifferingWait,
		Why: "the member's own comparison did not find which data a majority of all voters has"},
	{Name: "agrees", When: DifferingFacts{Own: OwnAgrees}, Verdict: DifferingKeep,
		Why: "the member's own comparison finds that its data is that of a majority; the leader's agent removes the mark"},
	{Name: "slot-taken", When: DifferingFacts{Slot: SlotOther}, Verdict: DifferingWait,
		Why: "another member replaces itself or is being removed"},
	{Name: "replace", When: DifferingFacts{Own: OwnDiffering}, Verdict: DifferingReplace,
		Why: "a majority of all voters serves with other data; etcd stops, the agent moves the data to quarantine, and the member joins again"},
})

// DecideDiffering returns the next step of the agent of a marked member.
func DecideDiffering(f DifferingFacts) rules.Decision[DifferingVerdict] {
	return differingMembers.Decide(f)
}
