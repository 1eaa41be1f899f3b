package plan

import (
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// stray is a drain mark that the record's slot does not order.
	stray uint8
	// farewell is what speaks for a name that the record does not list.
	farewell uint8
)

const (
	strayNone        stray = 1 << iota // no mark, the slot's own, or one that cannot be read
	strayNeverFormed                   // of a cluster that never formed
	strayRemoving                      // an agent claimed the removal
	strayOther                         // requested or done
)

func (s stray) String() string {
	return rules.Word(s, "none", "unborn", "removing", "other")
}

const (
	farewellNone        farewell = 1 << iota // nothing: it is no leftover
	farewellDone                             // the raft group that the record names acknowledged that it is out
	farewellNeverFormed                      // it was dropped before there was a raft group
)

func (f farewell) String() string {
	return rules.Word(f, "nothing", "done", "unborn")
}

// strayVerdict says what becomes of a mark that no slot orders.
type strayVerdict string

const (
	strayKeep     strayVerdict = "Keep"
	strayWait     strayVerdict = "Wait"
	strayTakeSlot strayVerdict = "TakeSlot"
	strayUnmark   strayVerdict = "Unmark"
)

// strayRows: a mark without a slot orders nothing, and keeps its member from starting. What an agent had claimed goes on
// under a slot made again, for the removal may have happened; every other mark is taken away.
var strayRows = rules.New(strayWait, []rules.Row[strayFacts, strayVerdict]{
	{Name: "mark-in-order", When: strayFacts{stray: strayNone}, Verdict: strayKeep},
	{Name: "mark-before-drop", When: strayFacts{record: RecordForming, stray: strayNeverFormed, excess: rules.Yes}, Verdict: strayKeep},
	{Name: "mark-not-judged", When: strayFacts{record: anyRecord &^ (RecordForming | RecordFormed)}, Verdict: strayKeep},
	{Name: "claim-without-slot", When: strayFacts{record: RecordFormed, stray: strayRemoving, slot: slotFree}, Verdict: strayTakeSlot},
	{Name: "claim-waits-for-slot", When: strayFacts{record: RecordForming | RecordFormed, stray: strayRemoving}, Verdict: strayWait},
	{Name: "mark-without-slot", When: strayFacts{record: RecordForming | RecordFormed}, Verdict: strayUnmark},
})

// leftoverFacts is all that the policy may look at.
type leftoverFacts struct {
	farewell farewell `fact:"Lease says"`
	pod      PodState `fact:"Pod"`
	claim    ClaimState
	retain   rules.YesNo `fact:"claims retained"`
}

// nothing is no step.
const nothing Kind = ""

// leftoverRows: of a member that is out for good its Pod goes first, then the claim, and last the Lease, which says that
// all of it may go.
var leftoverRows = rules.New(nothing, []rules.Row[leftoverFacts, Kind]{
	{Name: "not-acknowledged", When: leftoverFacts{farewell: farewellNone}, Verdict: nothing},
	{Name: "removed-pod-goes", When: leftoverFacts{pod: PodTerminating}, Verdict: nothing},
	{Name: "removed-pod", When: leftoverFacts{pod: PodUnscheduled | PodUnstarted | PodLive | PodEnded}, Verdict: DeletePod},
	{Name: "removed-claim-goes", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimTerminating}, Verdict: nothing},
	{Name: "removed-claim-retained", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimPresent, retain: rules.Yes}, Verdict: RetainClaim},
	{Name: "removed-claim", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimPresent, retain: rules.No}, Verdict: DeleteClaim},
	{Name: "removed-lease", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimAbsent | ClaimForeign | ClaimUnwanted}, Verdict: DeleteLease},
})

// strayFacts is all that strayRows may look at.
type strayFacts struct {
	record RecordState
	stray  stray       `fact:"mark"`
	slot   slot        `fact:"slots"`
	excess rules.YesNo `fact:"names too many"`
}

func strayOf(m Member, o Observed) stray {
	mark := m.Says.Retire
	switch {
	case m.Lease != LeaseOurs || !m.Readable || o.Record.Retiring.Orders(m.Name, mark):
		return strayNone
	case mark.State == leases.RetireRequested && mark.Mark == NotFormed && m.Name != o.Record.Seed: // the seed is not dropped
		return strayNeverFormed
	case mark.State == leases.RetireRemoving:
		return strayRemoving
	case mark.State == leases.RetireRequested, mark.State == leases.RetireDone:
		return strayOther
	default:
		return strayNone
	}
}

// farewellOf is what a Lease says of a name that the record does not list. That the record does not list it is no word at
// all: a record can be made again or be older than the name.
func farewellOf(m Member, o Observed) farewell {
	switch {
	case m.Listed || m.Lease != LeaseOurs || !m.Readable:
		return farewellNone
	case m.acknowledged(o):
		return farewellDone
	case o.RecordState&(RecordForming|RecordFormed) != 0 && !m.Says.EverFormed() &&
		m.Says.Retire.State == leases.RetireRequested && m.Says.Retire.Mark == NotFormed:
		return farewellNeverFormed
	default:
		return farewellNone
	}
}

// leftoverStep is the next step that takes away what a removed member left.
func leftoverStep(m Member, d Desired, o Observed) (Step, bool) {
	decision := leftoverRows.Decide(leftoverFacts{farewellOf(m, o), m.Pod, m.Claim, rules.YesNoOf(d.RetainClaims)})
	step := Step{Kind: decision.Verdict, Rule: decision.Rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, ClaimUID: m.ClaimUID}
	return step, step.Kind != nothing
}
