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

// ownershipRows keep the claims in step with spec.storage.persistentVolumeClaimRetentionPolicy.whenDeleted. A claim that
// is not the cluster's by its UID is never taken, whatever its name says.
var ownershipRows = []struct {
	name      string
	claim     ClaimState
	goes      rules.YesNo
	owned     rules.YesNo
	ownership ownership
}{
	{"claim-not-ours", ClaimAbsent | ClaimForeign | ClaimUnwanted, anyAnswer, anyAnswer, ownershipKeep},
	{"claim-going", ClaimTerminating, anyAnswer, anyAnswer, ownershipKeep},
	{"claim-goes-with-cluster", ClaimPresent, rules.Yes, rules.No, ownershipTake},
	{"claim-outlives-cluster", ClaimPresent, rules.No, rules.Yes, ownershipRelease},
	{"claim-in-step", ClaimPresent, anyAnswer, anyAnswer, ownershipKeep},
}

// ownershipFacts is all that the policy may look at.
type ownershipFacts struct {
	claim ClaimState
	goes  rules.YesNo // claims are to go with the EtcdCluster
	owned rules.YesNo // the claim refers to the EtcdCluster as an owner
}

func judgeOwnership(f ownershipFacts) (ownership, string) {
	for _, r := range ownershipRows {
		if r.claim&f.claim != 0 && r.goes&f.goes != 0 && r.owned&f.owned != 0 {
			return r.ownership, r.name
		}
	}
	return ownershipKeep, "uncovered"
}

// ownershipStep looks at every claim of the cluster, also of a member that the record does not list.
func ownershipStep(d Desired, m Member, add func(Step)) {
	verdict, rule := judgeOwnership(ownershipFacts{m.Claim, rules.YesNoOf(d.ClaimsGo), rules.YesNoOf(m.ClaimOwned)})
	step := Step{Rule: rule, Stage: StageLate, Member: m.Name, ClaimUID: m.ClaimUID}
	switch verdict {
	case ownershipTake:
		step.Kind, step.Irreversible = TakeClaim, true
	case ownershipRelease:
		step.Kind = ReleaseClaim
	default:
		return
	}
	add(step)
}
