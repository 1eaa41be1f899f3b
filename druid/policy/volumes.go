package policy

import (
	"fmt"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// Expansion says whether the StorageClass of a claim lets its volume grow.
	Expansion uint8
	// Room is how a member's volume stands to the size that the spec asks for.
	Room uint8
)

// What a StorageClass says of larger volumes.
const (
	ExpansionUnknown Expansion = 1 << iota // no one looked: nothing is to grow
	ExpansionAllowed
	ExpansionRefused // it does not allow it, does not exist, or the claim names none
)

func (e Expansion) String() string {
	return rules.Word(e, "not looked at", "allows it", "refuses it")
}

// The rooms.
const (
	RoomUnknown Room = 1 << iota // no one looked, or the claim does not report
	RoomEnough                   // the volume is as large as the spec asks for
	RoomGrows                    // it is smaller, and grows
	RoomMounts                   // it grows when it is mounted again, which takes another Pod
	RoomStays                    // it is smaller, and nothing makes it grow until a person acts
)

func (r Room) String() string {
	return rules.Word(r, "not known", "is enough", "grows", "grows when mounted", "stays small")
}

// growVerdict says what becomes of the size that a claim requests.
type growVerdict string

const (
	growKeep  growVerdict = "Keep"
	growWait  growVerdict = "Wait"
	growHeld  growVerdict = "Held"
	growClaim growVerdict = "Grow"
)

// growRows decide about the size that a claim requests. What a claim once requested cannot be taken back, so that it is
// never more than the spec says.
var growRows = rules.New(growWait, []rules.Row[growFacts, growVerdict]{
	{Name: "claim-not-there", When: growFacts{claim: anyClaim &^ ClaimPresent}, Verdict: growKeep,
		Why: "the claim has another owner or is being deleted; a new claim requests the size in the spec"},
	{Name: "claim-large-enough", When: growFacts{claim: ClaimPresent, asks: rules.Yes}, Verdict: growKeep,
		Why: "the claim requests the size in the spec or more"},
	{Name: "claim-leaves", When: growFacts{claim: ClaimPresent, leaves: rules.Yes, asks: rules.No}, Verdict: growKeep,
		Why: "its member is being removed"},
	{Name: "claim-unbound", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.No}, Verdict: growWait,
		Why: "the API server changes the request of a claim only after the claim is bound"},
	{Name: "claim-class-refuses", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.Yes, expands: ExpansionRefused}, Verdict: growHeld,
		Why: "the API server would reject the change"},
	{Name: "claim-class-unknown", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.Yes, expands: ExpansionUnknown}, Verdict: growWait,
		Why: "missing information changes nothing"},
	{Name: "claim-small", When: growFacts{claim: ClaimPresent, leaves: rules.No, asks: rules.No, bound: rules.Yes, expands: ExpansionAllowed}, Verdict: growClaim,
		Why: "the volume grows while etcd runs on it"},
})

// growFacts is all that the policy may look at.
type growFacts struct {
	claim   ClaimState
	leaves  rules.YesNo
	asks    rules.YesNo `fact:"requests enough"` // the claim requests what the spec says, or more
	bound   rules.YesNo
	expands Expansion `fact:"StorageClass"`
}

// growStep requests a larger volume. It is the last of a pass: one that is refused, as by a quota of the namespace, keeps
// nothing else of the member from being done.
func growStep(m Member, leaves bool, add func(Step)) {
	f := growFacts{claim: m.Claim, leaves: rules.YesNoOf(leaves), asks: rules.YesNoOf(!m.ClaimSmall), bound: rules.YesNoOf(m.ClaimBound), expands: m.Expands}
	if f.expands == 0 {
		f.expands = ExpansionUnknown
	}
	if d := growRows.Decide(f); d.Verdict == growClaim {
		add(Step{Kind: GrowClaim, Rule: d.Rule, Stage: StageGrow, Member: m.Name, ClaimUID: m.ClaimUID})
	}
}

// volatile says whether what the member holds goes with its Pod.
func (m Member) volatile() bool { return m.Claim == ClaimUnwanted }

// forgot says whether a member that stores in memory is known to have lost what it held: it has no Pod, or one in which nothing
// ran yet, or its agent says that the volume of this very Pod is empty and why no etcd starts on it. Without a reason the volume
// was empty when its etcd was started, which is how each member begins.
func (m Member) forgot() bool {
	if !m.volatile() {
		return false
	}
	notified := m.Lease == LeaseOurs && m.Readable && m.Reports.PodUID == m.PodUID && m.Reports.Data == leases.DataEmpty &&
		m.Reports.Reason != "" && m.Reports.EverFormed()
	return m.Pod&(PodAbsent|PodUnscheduled|PodUnstarted|PodEnded) != 0 || m.Pod == PodLive && !m.EtcdReady && notified
}

// lossProblem: of a raft group whose voters lost what they held the others can never be a quorum again. No one forms another
// one by a record that says Formed.
func lossProblem(o Observed, listed []Member) (Problem, bool) {
	if o.RecordState != RecordFormed {
		return Problem{}, false
	}
	lost := 0
	for _, m := range listed {
		if m.forgot() && (m.votes() || m.publishedVoter(o)) {
			lost++
		}
	}
	voters := votersOf(o, listed)
	if lost == 0 || voters-lost >= quorum(voters) {
		return Problem{}, false
	}
	return Problem{Reason: v1alpha1.ReasonDataLost, Message: fmt.Sprintf("%d of %d voters lost their Pods, and with them what they held in memory: "+
		"the others are no quorum, and never will be. No new cluster is formed in its place. Restore a backup into a new EtcdCluster by "+
		"spec.bootstrap.restore, or delete this one and create it again, empty", lost, voters)}, true
}
