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
	strayNone     stray = 1 << iota // no mark, the slot's own, or one that cannot be read
	strayUnborn                     // of a cluster that never formed
	strayRemoving                   // an agent claimed the removal
	strayOther                      // requested or done

	anyStray = strayNone | strayUnborn | strayRemoving | strayOther
)

const (
	farewellNone   farewell = 1 << iota // nothing: it is no leftover
	farewellDone                        // the raft group that the record names acknowledged that it is out
	farewellUnborn                      // it was dropped before there was a raft group

	anyFarewell = farewellNone | farewellDone | farewellUnborn
)

// strayRows: a mark without a slot orders nothing, and keeps its member from starting. What an agent had claimed goes on
// under a slot made anew, for the removal may have happened; every other mark is taken away.
var strayRows = []struct {
	name    string
	record  RecordState
	stray   stray
	slot    slot
	excess  rules.YesNo
	verdict verdict
}{
	{"mark-in-order", anyRecord, strayNone, anySlot, anyAnswer, keep},
	{"mark-before-drop", RecordForming, strayUnborn, anySlot, rules.Yes, keep},
	{"mark-not-judged", anyRecord &^ (RecordForming | RecordFormed), anyStray, anySlot, anyAnswer, keep},
	{"claim-without-slot", RecordFormed, strayRemoving, slotFree, anyAnswer, create},
	{"claim-waits-for-slot", RecordForming | RecordFormed, strayRemoving, anySlot, anyAnswer, wait},
	{"mark-without-slot", RecordForming | RecordFormed, anyStray, anySlot, anyAnswer, remove},
}

// leftoverRows: of a member that is out for good its Pod goes first, then the claim, and last the Lease, which says that
// all of it may go.
var leftoverRows = []struct {
	name     string
	farewell farewell
	pod      PodState
	claim    ClaimState
	retain   rules.YesNo
	object   Kind // what is to be done, empty for nothing
}{
	{"not-acknowledged", farewellNone, anyPod, anyClaim, anyAnswer, ""},
	{"removed-pod-goes", anyFarewell, PodTerminating, anyClaim, anyAnswer, ""},
	{"removed-pod", anyFarewell, PodUnscheduled | PodUnstarted | PodLive | PodEnded, anyClaim, anyAnswer, DeletePod},
	{"removed-claim-goes", anyFarewell, PodAbsent | PodForeign, ClaimTerminating, anyAnswer, ""},
	{"removed-claim-retained", anyFarewell, PodAbsent | PodForeign, ClaimPresent, rules.Yes, RetainClaim},
	{"removed-claim", anyFarewell, PodAbsent | PodForeign, ClaimPresent, rules.No, DeleteClaim},
	{"removed-lease", anyFarewell, PodAbsent | PodForeign, ClaimAbsent | ClaimForeign | ClaimUnwanted, anyAnswer, DeleteLease},
}

// strayFacts is all that strayRows may look at.
type strayFacts struct {
	record RecordState
	stray  stray
	slot   slot
	excess rules.YesNo
}

func judgeStray(f strayFacts) (verdict, string) {
	for _, r := range strayRows {
		if r.record&f.record != 0 && r.stray&f.stray != 0 && r.slot&f.slot != 0 && r.excess&f.excess != 0 {
			return r.verdict, r.name
		}
	}
	return wait, "uncovered"
}

func judgeLeftover(f farewell, pod PodState, claim ClaimState, retain rules.YesNo) (Kind, string) {
	for _, r := range leftoverRows {
		if r.farewell&f != 0 && r.pod&pod != 0 && r.claim&claim != 0 && r.retain&retain != 0 {
			return r.object, r.name
		}
	}
	return "", "uncovered"
}

func strayOf(m Member, o Observed) stray {
	mark := m.Says.Retire
	switch {
	case m.Lease != LeaseOurs || !m.Readable || o.Record.Retiring.Orders(m.Name, mark):
		return strayNone
	case mark.State == leases.RetireRequested && mark.Mark == Unborn && m.Name != o.Record.Seed: // the seed is not dropped
		return strayUnborn
	case mark.State == leases.RetireRemoving:
		return strayRemoving
	case mark.State == leases.RetireRequested, mark.State == leases.RetireDone:
		return strayOther
	default:
		return strayNone
	}
}

// farewellOf is what a Lease says of a name that the record does not list. That the record does not list it is no word at
// all: a record can be made anew or be older than the name.
func farewellOf(m Member, o Observed) farewell {
	switch {
	case m.Listed || m.Lease != LeaseOurs || !m.Readable:
		return farewellNone
	case m.acknowledged(o):
		return farewellDone
	case o.RecordState&(RecordForming|RecordFormed) != 0 && !m.Says.EverFormed() &&
		m.Says.Retire.State == leases.RetireRequested && m.Says.Retire.Mark == Unborn:
		return farewellUnborn
	default:
		return farewellNone
	}
}

// leftoverStep is the next step that takes away what a removed member left.
func leftoverStep(m Member, d Desired, o Observed) (Step, bool) {
	kind, rule := judgeLeftover(farewellOf(m, o), m.Pod, m.Claim, rules.YesNoOf(d.RetainClaims))
	step := Step{Kind: kind, Rule: rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, ClaimUID: m.ClaimUID, Irreversible: true}
	return step, kind != ""
}
