package backups

import (
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// Turn is whose turn it is to prove the backups.
	Turn uint8
	// Reported is what the full backups' Lease says of the last proof.
	Reported uint8
)

// The turns. TurnUnknown: our etcd does not say who is there.
const (
	TurnUnknown Turn = 1 << iota
	TurnOurs
	TurnOthers
)

// What the Lease says. ToldUnknown: it cannot be read. ToldUnsaved: nothing was ever saved.
const (
	ReportedUnknown Reported = 1 << iota
	ReportedUnsaved
	ReportedNever
	ReportedProven
	ReportedBroken
)

var (
	turnNames     = map[Turn]string{TurnUnknown: "unknown", TurnOurs: "ours", TurnOthers: "another's"}
	reportedNames = map[Reported]string{
		ReportedUnknown: "unknown", ReportedUnsaved: "nothing saved", ReportedNever: "never", ReportedProven: "proven", ReportedBroken: "broken",
	}
)

func (t Turn) String() string     { return turnNames[t] }
func (t Reported) String() string { return reportedNames[t] }

// Prove is the verdict to prove now; the other one is Wait.
const Prove Verdict = "Prove"

// ProofFacts are all that DecideProof may look at.
type ProofFacts struct {
	Turn     Turn
	Reported Reported
	// Resting: the last attempt did not find out, and its pause is not over.
	Resting rules.YesNo `fact:"tried just now"`
	// Newer: there is a full that is newer than what was looked at.
	Newer rules.YesNo `fact:"newer full"`
	// Due: by schedule, counted from the last time that it was found out.
	Due rules.YesNo
}

// proofRules are the whole policy on when backups are proven, and by whom. First match wins.
var proofRules = rules.New(Wait, []rules.Row[ProofFacts, Verdict]{
	{Name: "not-our-turn", When: ProofFacts{Turn: TurnUnknown | TurnOthers}, Verdict: Wait,
		Why: "one member is enough: the voter with the smallest name that does not lead; the leader where it is alone"},
	{Name: "proof-not-read", When: ProofFacts{Turn: TurnOurs, Reported: ReportedUnknown}, Verdict: Wait,
		Why: "no one could be reported what was found"},
	{Name: "nothing-saved", When: ProofFacts{Turn: TurnOurs, Reported: ReportedUnsaved}, Verdict: Wait,
		Why: "there is nothing to prove"},
	{Name: "tried", When: ProofFacts{Turn: TurnOurs, Reported: ReportedNever | ReportedProven | ReportedBroken, Resting: rules.Yes}, Verdict: Wait,
		Why: "what was not found out is tried again after a pause"},
	{Name: "never-proven", When: ProofFacts{Turn: TurnOurs, Reported: ReportedNever, Resting: rules.No}, Verdict: Prove,
		Why: "no one knows whether the backups are good"},
	{Name: "maybe-mended", When: ProofFacts{Turn: TurnOurs, Reported: ReportedBroken, Resting: rules.No, Newer: rules.Yes}, Verdict: Prove,
		Why: "they were broken, and there is a new full"},
	{Name: "proof-due", When: ProofFacts{Turn: TurnOurs, Reported: ReportedProven | ReportedBroken, Resting: rules.No, Due: rules.Yes}, Verdict: Prove,
		Why: "by its schedule"},
	{Name: "found-out", When: ProofFacts{Turn: TurnOurs, Reported: ReportedProven | ReportedBroken, Resting: rules.No, Due: rules.No}, Verdict: Wait,
		Why: "it is known"},
})

// DecideProof says whether to prove the backups now.
func DecideProof(f ProofFacts) Decision { return proofRules.Decide(f) }

// toldBy is what a Lease says about the backups of a lineage.
func reportedBy(b leases.Backup, v leases.Verification, lineage string) Reported {
	switch {
	case !b.EverSaved() || b.Lineage != lineage:
		return ReportedUnsaved
	case v.Lineage != lineage:
		return ReportedNever
	case v.Verdict == leases.VerdictProven:
		return ReportedProven
	case v.Verdict == leases.VerdictBroken:
		return ReportedBroken
	default:
		return ReportedNever
	}
}
