package plan

import "github.com/etcd-druid/druid/internal/rules"

// ownership is what becomes of a claim's reference to its EtcdCluster. By that reference Kubernetes' garbage collector
// deletes the claim when the EtcdCluster goes, whether a druid runs or not.
type ownership uint8

const (
	ownershipKeep ownership = 1 << iota
	// ownershipTake: the claim goes with the EtcdCluster from now on.
	ownershipTake
	// ownershipRelease: the claim outlives the EtcdCluster from now on.
	ownershipRelease
)

func (o ownership) String() string {
	return rules.Word(o, "Keep", "Take", "Release")
}

// ownershipRows keep the claims in step with spec.storage.persistentVolumeClaimRetentionPolicy.whenDeleted. A claim that
// is not the cluster's by its UID is never taken, whatever its name says.
var ownershipRows = rules.New(ownershipKeep, []rules.Row[ownershipFacts, ownership]{
	{Name: "claim-not-ours", When: ownershipFacts{claim: ClaimAbsent | ClaimForeign | ClaimUnwanted}, Verdict: ownershipKeep},
	{Name: "claim-going", When: ownershipFacts{claim: ClaimTerminating}, Verdict: ownershipKeep},
	{Name: "claim-goes-with-cluster", When: ownershipFacts{claim: ClaimPresent, goes: rules.Yes, owned: rules.No}, Verdict: ownershipTake},
	{Name: "claim-outlives-cluster", When: ownershipFacts{claim: ClaimPresent, goes: rules.No, owned: rules.Yes}, Verdict: ownershipRelease},
	{Name: "claim-in-step", When: ownershipFacts{claim: ClaimPresent}, Verdict: ownershipKeep},
})

// ownershipFacts is all that the policy may look at.
type ownershipFacts struct {
	claim ClaimState
	goes  rules.YesNo `fact:"claims are to go"`        // claims are to go with the EtcdCluster
	owned rules.YesNo `fact:"the EtcdCluster owns it"` // the claim refers to the EtcdCluster as an owner
}

// ownershipStep looks at every claim of the cluster, also of a member that the record does not list.
func ownershipStep(d Desired, m Member, add func(Step)) {
	decision := ownershipRows.Decide(ownershipFacts{m.Claim, rules.YesNoOf(d.ClaimsGo), rules.YesNoOf(m.ClaimOwned)})
	step := Step{Rule: decision.Rule, Stage: StageLate, Member: m.Name, ClaimUID: m.ClaimUID}
	switch decision.Verdict {
	case ownershipTake:
		step.Kind = TakeClaim
	case ownershipRelease:
		step.Kind = ReleaseClaim
	default:
		return
	}
	add(step)
}
