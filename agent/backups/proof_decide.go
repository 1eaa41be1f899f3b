package backups

import (
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// Turn is whose turn it is to prove the backups.
	Turn uint8
	// Told is what the full backups' Lease says of the last proof.
	Told uint8
)

// The turns. TurnUnknown: our etcd does not say who is there.
const (
	TurnUnknown Turn = 1 << iota
	TurnOurs
	TurnOthers
)

// What the Lease says. ToldUnknown: it cannot be read. ToldUnsaved: nothing was ever saved.
const (
	ToldUnknown Told = 1 << iota
	ToldUnsaved
	ToldNever
	ToldProven
	ToldBroken
)

const (
	anyTurn = TurnUnknown | TurnOurs | TurnOthers
	anyTold = ToldUnknown | ToldUnsaved | ToldNever | ToldProven | ToldBroken
)

var (
	turnNames = map[Turn]string{TurnUnknown: "unknown", TurnOurs: "ours", TurnOthers: "another's"}
	toldNames = map[Told]string{
		ToldUnknown: "unknown", ToldUnsaved: "nothing saved", ToldNever: "never", ToldProven: "proven", ToldBroken: "broken",
	}
)

func (t Turn) String() string { return turnNames[t] }
func (t Told) String() string { return toldNames[t] }

// Prove is the verdict to prove now; the other one is Wait.
const Prove Verdict = "Prove"

// ProofFacts are all that DecideProof may look at.
type ProofFacts struct {
	Turn Turn
	Told Told
	// Resting: the last attempt did not find out, and its pause is not over.
	Resting rules.YesNo
	// Newer: there is a full that is newer than what was looked at.
	Newer rules.YesNo
	// Due: by schedule, counted from the last time that it was found out.
	Due rules.YesNo
}

type proofRule struct {
	name                string
	turn                Turn
	told                Told
	resting, newer, due rules.YesNo
	verdict             Verdict
	why                 string
}

// proofRules are the whole policy on when backups are proven, and by whom. First match wins.
var proofRules = []proofRule{
	{"not-our-turn", TurnUnknown | TurnOthers, anyTold, anyAnswer, anyAnswer, anyAnswer, Wait,
		"one member is enough: the voter with the smallest name that does not lead; the leader where it is alone"},
	{"proof-not-read", TurnOurs, ToldUnknown, anyAnswer, anyAnswer, anyAnswer, Wait,
		"nobody could be told what was found"},
	{"nothing-saved", TurnOurs, ToldUnsaved, anyAnswer, anyAnswer, anyAnswer, Wait,
		"there is nothing to prove"},
	{"tried", TurnOurs, ToldNever | ToldProven | ToldBroken, rules.Yes, anyAnswer, anyAnswer, Wait,
		"what was not found out is tried again after a pause"},
	{"never-proven", TurnOurs, ToldNever, rules.No, anyAnswer, anyAnswer, Prove,
		"nobody knows whether the backups are good"},
	{"maybe-mended", TurnOurs, ToldBroken, rules.No, rules.Yes, anyAnswer, Prove,
		"they were broken, and there is a new full"},
	{"proof-due", TurnOurs, ToldProven | ToldBroken, rules.No, anyAnswer, rules.Yes, Prove,
		"by its schedule"},
	{"found-out", TurnOurs, ToldProven | ToldBroken, rules.No, anyAnswer, rules.No, Wait,
		"it is known"},
}

func (r proofRule) matches(f ProofFacts) bool {
	return r.turn&f.Turn != 0 && r.told&f.Told != 0 && r.resting&f.Resting != 0 && r.newer&f.Newer != 0 && r.due&f.Due != 0
}

// DecideProof says whether to prove the backups now.
func DecideProof(f ProofFacts) Decision {
	for _, r := range proofRules {
		if r.matches(f) {
			return Decision{r.verdict, r.name}
		}
	}
	return Decision{Wait, "uncovered"}
}

// toldBy is what a Lease says about the backups of a lineage.
func toldBy(b leases.Backup, v leases.Verification, lineage string) Told {
	switch {
	case !b.EverSaved() || b.Lineage != lineage:
		return ToldUnsaved
	case v.Lineage != lineage:
		return ToldNever
	case v.Verdict == leases.VerdictProven:
		return ToldProven
	case v.Verdict == leases.VerdictBroken:
		return ToldBroken
	default:
		return ToldNever
	}
}
