package policy

import (
	"fmt"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// Expansion reports whether the StorageClass of a claim allows expansion.
	Expansion uint8
	// Room compares the size of a member's volume with the size in the spec.
	Room uint8
)

// What a StorageClass says of larger volumes.
const (
	ExpansionUnknown Expansion = 1 << iota // not read: nothing is to grow
	ExpansionAllowed
	ExpansionRefused // it does not allow it, does not exist, or the claim names none
)

func (e Expansion) String() string {
	return rules.Word(e, "not looked at", "allows it", "refuses it")
}

// The rooms.
const (
	RoomUnknown Room = 1 << iota // not read, or the claim does not report
	RoomEnough                   // the volume is as large as the spec asks for
	RoomGrows                    // it is smaller, and grows
	RoomMounts                   // it grows when it is mounted again, which takes another Pod
	RoomStays                    // it is smaller, and nothing makes it grow until an operator acts
)

func (r Room) String() string {
	return rules.Word(r, "not known", "is enough", "grows", "grows when mounted", "stays small")
}

// growVerdict is the decision about the size that a claim requests.
type growVerdict string

const (
	growKeep  growVerdict = "Keep"
	growWait  growVerdict = "Wait"
	growHeld  growVerdict = "Held"
	growClaim growVerdict = "Grow"
)

// growRows decide about the size that a claim requests. Kubernetes does not allow a claim to request less later, so a
// claim never requests more than the spec.
var growRows = rules.New(growWait, []rules.Row[growFacts, growVerdict]{
	{Name: "claim-absent", When: growFacts{claim: anyClaim &^ ClaimPresent}, Verdict: growKeep,
		Why: "the claim has another owner or is being deleted; a new claim requests the size in the spec"},
	{Name: "claim-large-enough", When: growFacts{claim: ClaimPresent, asks: rules.Yes}, Verdict: growKeep,
		Why: "the claim requests the size in the spec or more"},
	{Name: "claim-leaves", When: growFacts{claim: ClaimPresent, leaves: rules.Yes, asks: rules.No}, Verdict: growKeep,
		Why: "its member is being removed"},
	{Name: "claim-unbound", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.No}, Verdict: growWait,
		Why: "the API server changes the request of a claim only after the claim is bound"},
	{Name: "claim-class-refuses", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.Yes, expands: ExpansionRefused},
		Verdict: growHeld,
		Why:     "the API server would reject the change"},
	{Name: "claim-class-unknown", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.Yes, expands: ExpansionUnknown},
		Verdict: growWait,
		Why:     "missing information changes nothing"},
	{Name: "claim-small", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.Yes, expands: ExpansionAllowed}, Verdict: growClaim,
		Why: "the volume grows while etcd runs on it"},
})

// growFacts is the complete input of growRows.
type growFacts struct {
	claim   ClaimState `fact:"PVC"`
	leaves  rules.YesNo
	asks    rules.YesNo `fact:"requests enough"` // the claim requests what the spec says, or more
	bound   rules.YesNo
	expands Expansion `fact:"StorageClass"`
}

// growStep requests a larger volume. It is the last step of a reconciliation. If it is rejected, for example by a
// quota of the namespace, all other steps of the member are done already.
func growStep(m Member, leaves bool, add func(Step)) {
	f := growFacts{claim: m.Claim, leaves: rules.YesNoOf(leaves), asks: rules.YesNoOf(!m.ClaimSmall), bound: rules.YesNoOf(m.ClaimBound), expands: m.Expands}
	if f.expands == 0 {
		f.expands = ExpansionUnknown
	}
	if d := growRows.Decide(f); d.Verdict == growClaim {
		add(Step{Kind: GrowClaim, Rule: d.Rule, Stage: StageGrow, Member: m.Name, ClaimUID: m.ClaimUID})
	}
}

// volatile reports whether the member's data is lost with its Pod.
func (m Member) volatile() bool { return m.Claim == ClaimUnwanted }

// forgot reports whether a member that stores in its Pod is known to have lost its data. It has no Pod, or nothing ran
// in its Pod yet. Or its agent reports that the volume of this Pod is empty, and why etcd does not start on it.
// Without such a reason, the volume was empty when etcd started, as for every new member.
func (m Member) forgot() bool {
	if !m.volatile() {
		return false
	}
	reported := m.Lease == LeaseOurs && m.Readable && m.Reports.PodUID == m.PodUID && m.Reports.Data == leases.DataEmpty &&
		m.Reports.Reason != "" && m.Reports.EverFormed()
	return m.Pod&(PodAbsent|PodUnscheduled|PodUnstarted|PodEnded) != 0 || m.Pod == PodLive && !m.EtcdReady && reported
}

// lossProblem reports a raft group in which so many voters lost their data that the others can never be a quorum
// again. No member forms another group while the record says Formed. What a member of an earlier group lost does not count.
func lossProblem(o Observed, listed []Member) (Problem, bool) {
	if o.RecordState != RecordFormed {
		return Problem{}, false
	}
	lost := 0
	for _, m := range listed {
		if m.ofGroup(o) && m.forgot() && (m.votes() || m.publishedVoter(o)) {
			lost++
		}
	}
	voters := votersOf(o, listed)
	if lost == 0 || voters-lost >= quorum(voters) {
		return Problem{}, false
	}
	return Problem{Reason: v1alpha1.ReasonDataLost, Message: fmt.Sprintf("%d of %d voters lost their Pods, and with them their data. "+
		"The others can never be a quorum again. druid shows in status.recovery how it can recover the cluster", lost, voters)}, true
}
