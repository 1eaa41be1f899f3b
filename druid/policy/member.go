package policy

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// verdict on one object of a member.
type verdict uint8

const (
	// keep: it is as it should be, or nothing can be done about it.
	keep verdict = 1 << iota
	// wait: something else has to happen first, and an event will report.
	wait
	// conflict: the name is taken by an object that is not ours.
	conflict
	// held: what would repair the member would cost the cluster its quorum.
	held
	create
	remove
	mark
	// change what runs in the Pod.
	change
)

func (v verdict) String() string {
	return rules.Word(v, "Keep", "Wait", "Conflict", "Held", "Create", "Delete", "Mark", "Replace")
}

// leaseRows: a listed name without Lease gets it back.
var leaseRows = rules.New(wait, []rules.Row[memberFacts, verdict]{
	{Name: "lease-conflict", When: memberFacts{lease: LeaseForeign}, Verdict: conflict},
	{Name: "lease-missing", When: memberFacts{lease: LeaseAbsent}, Verdict: create},
	{Name: "lease-there", When: memberFacts{lease: LeaseOurs}, Verdict: keep},
})

// claimRows: a claim is made only while no Pod could run on the volume of the one before it. The claim of a paused cluster held
// the only copy of its data: another one would be empty.
var claimRows = rules.New(wait, []rules.Row[memberFacts, verdict]{
	{Name: "claim-unwanted", When: memberFacts{claim: ClaimUnwanted}, Verdict: keep},
	{Name: "claim-conflict", When: memberFacts{claim: ClaimForeign}, Verdict: conflict},
	{Name: "claim-after-lease-conflict", When: memberFacts{claim: ClaimAbsent, lease: LeaseForeign}, Verdict: wait},
	{Name: "claim-of-paused-cluster-lost", When: memberFacts{claim: ClaimAbsent, paused: rules.Yes}, Verdict: held},
	{Name: "claim-missing", When: memberFacts{claim: ClaimAbsent, pod: PodAbsent | PodUnscheduled, paused: rules.No}, Verdict: create},
	{Name: "claim-after-pod", When: memberFacts{claim: ClaimAbsent, paused: rules.No}, Verdict: wait},
	{Name: "claim-terminating", When: memberFacts{claim: ClaimTerminating}, Verdict: wait},
	{Name: "claim-there", When: memberFacts{claim: ClaimPresent}, Verdict: keep},
})

// podRows: a lost Pod comes back at once. A Pod whose claim is gone or going is deleted so that the member can heal on a
// new volume, but never one without which the others are fewer than a quorum:
// it stays, and its Lease names it, so that its agent may go on with its duties.
var podRows = rules.New(wait, []rules.Row[memberFacts, verdict]{
	{Name: "pod-conflict", When: memberFacts{pod: PodForeign}, Verdict: conflict},
	{Name: "pod-terminating", When: memberFacts{pod: PodTerminating}, Verdict: wait},
	{Name: "pod-ended", When: memberFacts{pod: PodEnded}, Verdict: remove},
	{Name: "pod-after-conflict", When: memberFacts{pod: PodAbsent, claim: ClaimForeign}, Verdict: wait},
	{Name: "pod-after-lease-conflict", When: memberFacts{pod: PodAbsent, lease: LeaseForeign}, Verdict: wait},
	{Name: "pod-after-claim", When: memberFacts{pod: PodAbsent, claim: ClaimTerminating}, Verdict: wait},
	{Name: "pod-paused", When: memberFacts{pod: PodAbsent, paused: rules.Yes}, Verdict: keep},
	{Name: "pod-missing", When: memberFacts{pod: PodAbsent, paused: rules.No}, Verdict: create},
	{Name: "pod-of-lost-claim", When: memberFacts{pod: PodUnstarted, claim: ClaimAbsent | ClaimTerminating}, Verdict: remove},
	{Name: "volume-lost", When: memberFacts{pod: PodLive, claim: ClaimAbsent | ClaimTerminating, spare: rules.Yes}, Verdict: remove},
	{Name: "volume-lost-unmarked", When: memberFacts{pod: PodLive, claim: ClaimTerminating, lease: LeaseOurs, spare: rules.No, marked: rules.No}, Verdict: mark},
	{Name: "volume-lost-held", When: memberFacts{pod: PodLive, claim: ClaimAbsent | ClaimTerminating, spare: rules.No}, Verdict: held},
	{Name: "pod-unmarked", When: memberFacts{pod: PodUnscheduled | PodUnstarted | PodLive, claim: ClaimPresent | ClaimUnwanted, lease: LeaseOurs, marked: rules.No}, Verdict: mark},
	{Name: "pod-there", When: memberFacts{pod: PodUnscheduled | PodUnstarted | PodLive}, Verdict: keep},
})

// memberFacts is all that the three policies may look at.
type memberFacts struct {
	lease LeaseState `fact:"Lease"`
	claim ClaimState
	pod   PodState `fact:"Pod"`
	// spare: the other members hold a quorum without this one, or there never was one; and no other goes before it, leaves or
	// replaces itself.
	spare rules.YesNo `fact:"the others are a quorum, and it is its turn"`
	// marked: the Lease names the Pod's and the claim's UID.
	marked rules.YesNo `fact:"the Lease names Pod and claim"`
	// paused: the member is the last one of a paused cluster.
	paused rules.YesNo
}

func memberFactsOf(m Member, d Desired, o Observed, listed []Member) memberFacts {
	others, turn := serving(m, listed), o.slotsFreeFor(m)
	for _, other := range listed {
		turn = turn && (other.Name == m.Name || !(other.lostVolume() && before(other, m)))
	}
	return memberFacts{
		lease:  m.Lease,
		claim:  m.Claim,
		pod:    m.Pod,
		spare:  rules.YesNoOf(turn && (o.RecordState == RecordForming || others >= quorum(votersOf(o, listed)))),
		marked: rules.YesNoOf(m.Readable && m.Reports.PodUID == m.PodUID && m.Reports.VolumeUID == m.ClaimUID),
		paused: rules.YesNoOf(pauseStateOf(d, o).holds(m, pauseRest)),
	}
}

// votersOf is how many voters the raft group may have: the members that the leader published, or that bear the mark of
// one, whichever are more. A learner counts, for it may have been promoted since. A name that was added and did not join yet
// does not: etcd lets no one join while a voter of three is down, so a voter that lost its volume cannot wait for joiners.
// Where no list was published all names count, and all who were in a group that was joined.
func votersOf(o Observed, listed []Member) int {
	if o.Record.MemberList == nil {
		return len(listed) + len(o.Record.Externals)
	}
	known := 0
	for _, m := range listed {
		if m.votes() || m.Readable && m.Reports.EverFormed() {
			known++
		}
	}
	return max(len(o.Record.MemberList.Members), known)
}

// slotsFreeFor says whether no other member is on its way out or replaces itself: its vote still counts among those that
// serve, and is about to go.
func (o Observed) slotsFreeFor(m Member) bool {
	holder := ""
	switch slotOf(o.Record) {
	case slotTaken:
		holder = o.Record.PendingRemoval.Member
	case slotReplacing:
		holder = o.Record.Replacing.Member
	default:
	}
	return holder == "" || holder == m.Name
}

// lostVolume says whether a Pod runs on a volume whose claim is gone or going.
func (m Member) lostVolume() bool {
	return m.Pod == PodLive && m.Claim&(ClaimAbsent|ClaimTerminating) != 0
}

// before orders members that lost their volumes: one at a time is replaced, first one that serves no one anyway.
func before(a, b Member) bool {
	if a.up() != b.up() {
		return !a.up()
	}
	return a.Name < b.Name
}

// slotVerdict says what becomes of the record's slot for the one member that replaces itself.
type slotVerdict uint8

const (
	slotKeep slotVerdict = 1 << iota
	slotRelease
)

func (s slotVerdict) String() string {
	return rules.Word(s, "Keep", "Release")
}

// slotRows decide about the slot. Its holder gives it back when it votes again, and a new Pod of its name takes it over. The
// slot only makes members go one after another: what a removal may cost is asked again before each, and etcd asks too. So
// what matters is that no call of the Pod that took the slot is still under way.
var slotRows = rules.New(slotKeep, []rules.Row[slotFacts, slotVerdict]{
	{Name: "slot-free", When: slotFacts{taken: rules.No}, Verdict: slotKeep,
		Why: "there is nothing to give back"},
	{Name: "slot-held", When: slotFacts{taken: rules.Yes, holder: rules.Yes}, Verdict: slotKeep,
		Why: "the Pod that took the slot may be in the middle of it"},
	{Name: "slot-inherited", When: slotFacts{taken: rules.Yes, holder: rules.No, comes: rules.Yes}, Verdict: slotKeep,
		Why: "another Pod of that name takes it over and finishes"},
	{Name: "slot-left-behind", When: slotFacts{taken: rules.Yes, holder: rules.No, comes: rules.No}, Verdict: slotRelease,
		Why: "no Pod of that name comes up, and others may have to replace themselves"},
})

// slotFacts is all that the policy may look at.
type slotFacts struct {
	taken rules.YesNo
	// holder: the Pod that took the slot exists. comes: the name is desired, and a Pod of it runs or may yet come up.
	holder rules.YesNo `fact:"the Pod that took it exists"`
	comes  rules.YesNo `fact:"a Pod of its name runs or may come up"`
}

func slotFactsOf(o Observed) slotFacts {
	slot := o.Record.Replacing
	f := slotFacts{taken: rules.YesNoOf(slot != nil), holder: rules.No, comes: rules.No}
	if slot == nil {
		return f
	}
	for _, m := range o.Members {
		if m.Name != slot.Member {
			continue
		}
		f.holder = rules.YesNoOf(m.PodUID == slot.PodUID)
		f.comes = rules.YesNoOf(m.Listed && !m.Lingers)
	}
	return f
}

// slotStep gives back exactly the slot that the plan saw.
func slotStep(o Observed) (Step, bool) {
	decision := slotRows.Decide(slotFactsOf(o))
	if decision.Verdict != slotRelease || o.RecordState != RecordFormed {
		return Step{}, false
	}
	slot := *o.Record.Replacing
	return Step{
		Kind: UpdateRecord, Rule: decision.Rule, Stage: StageRecord, Member: slot.Member, PodUID: slot.PodUID, Irreversible: true,
		Release: &slot,
	}, true
}

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
