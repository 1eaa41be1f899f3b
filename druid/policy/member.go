package policy

import (
	"slices"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// verdict is the decision about one object of a member.
type verdict uint8

const (
	// keep: the object is as required, or nothing can be done about it.
	keep verdict = 1 << iota
	// wait: something else has to happen first, and an event will report.
	wait
	// conflict: an object that the EtcdCluster does not own has the name.
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

// leaseRows create the Lease of a listed name again.
var leaseRows = rules.New(wait, []rules.Row[memberFacts, verdict]{
	{Name: "lease-conflict", When: memberFacts{lease: LeaseForeign}, Verdict: conflict},
	{Name: "lease-missing", When: memberFacts{lease: LeaseAbsent}, Verdict: create},
	{Name: "lease-exists", When: memberFacts{lease: LeaseOurs}, Verdict: keep},
})

// claimRows create a claim only while no Pod can run on the volume of the previous claim. The claim of a paused
// cluster had the only copy of its data, so druid does not replace it with an empty one.
var claimRows = rules.New(wait, []rules.Row[memberFacts, verdict]{
	{Name: "claim-unwanted", When: memberFacts{claim: ClaimUnwanted}, Verdict: keep},
	{Name: "claim-conflict", When: memberFacts{claim: ClaimForeign}, Verdict: conflict},
	{Name: "claim-after-lease-conflict", When: memberFacts{claim: ClaimAbsent, lease: LeaseForeign}, Verdict: wait},
	{Name: "claim-of-paused-cluster-lost", When: memberFacts{claim: ClaimAbsent, paused: rules.Yes}, Verdict: held},
	{Name: "claim-missing", When: memberFacts{claim: ClaimAbsent, pod: PodAbsent | PodUnscheduled, paused: rules.No}, Verdict: create},
	{Name: "claim-after-pod", When: memberFacts{claim: ClaimAbsent, paused: rules.No}, Verdict: wait},
	{Name: "claim-terminating", When: memberFacts{claim: ClaimTerminating}, Verdict: wait},
	{Name: "claim-exists", When: memberFacts{claim: ClaimPresent}, Verdict: keep},
})

// podRows create a lost Pod again at once. They delete a Pod whose claim is deleted, so that the member is repaired on
// a new volume, unless the other members are fewer than a quorum. Then the Pod stays, and its Lease names it, so that
// its agent can continue its duties. A Pod that has a node keeps a deleted claim alive, also if no container of it
// runs. The rows create no Pod for a member whose own agent acknowledged its removal, while druid examines that. The member
// has left the joined raft group, and a new Pod can wait for a node without end.
var podRows = rules.New(wait, []rules.Row[memberFacts, verdict]{
	{Name: "pod-conflict", When: memberFacts{pod: PodForeign}, Verdict: conflict},
	{Name: "pod-terminating", When: memberFacts{pod: PodTerminating}, Verdict: wait},
	{Name: "pod-ended", When: memberFacts{pod: PodEnded, claim: anyClaim &^ ClaimTerminating}, Verdict: remove},
	{Name: "pod-after-conflict", When: memberFacts{pod: PodAbsent, claim: ClaimForeign}, Verdict: wait},
	{Name: "pod-after-lease-conflict", When: memberFacts{pod: PodAbsent, lease: LeaseForeign}, Verdict: wait},
	{Name: "pod-after-claim", When: memberFacts{pod: PodAbsent, claim: ClaimTerminating}, Verdict: wait},
	{Name: "pod-paused", When: memberFacts{pod: PodAbsent, paused: rules.Yes}, Verdict: keep},
	{Name: "pod-after-acknowledgement", When: memberFacts{pod: PodAbsent, paused: rules.No, answered: rules.Yes}, Verdict: wait,
		Why: "the Lease of the member would name another Pod, and its acknowledgement would not count any more"},
	{Name: "pod-missing", When: memberFacts{pod: PodAbsent, paused: rules.No}, Verdict: create},
	{Name: "pod-of-lost-claim", When: memberFacts{pod: PodUnstarted, claim: ClaimAbsent}, Verdict: remove},
	{Name: "pod-of-deleted-claim", When: memberFacts{pod: PodUnstarted | PodEnded, claim: ClaimTerminating, spare: rules.Yes}, Verdict: remove},
	{Name: "pod-of-deleted-claim-held", When: memberFacts{pod: PodUnstarted | PodEnded, claim: ClaimTerminating, spare: rules.No}, Verdict: held,
		Why: "the volume goes with the Pod, and its data can be the only copy"},
	{Name: "volume-lost", When: memberFacts{pod: PodLive, claim: ClaimAbsent | ClaimTerminating, spare: rules.Yes}, Verdict: remove},
	{Name: "pod-not-on-lease-acknowledged",
		When: memberFacts{pod: PodUnscheduled | PodUnstarted | PodLive, marked: rules.No, answered: rules.Yes}, Verdict: wait,
		Why: "the Lease of the member names the Pod whose agent acknowledged the removal"},
	{Name: "volume-lost-pod-not-on-lease",
		When: memberFacts{pod: PodLive, claim: ClaimTerminating, lease: LeaseOurs, spare: rules.No, marked: rules.No}, Verdict: mark},
	{Name: "volume-lost-held", When: memberFacts{pod: PodLive, claim: ClaimAbsent | ClaimTerminating, spare: rules.No}, Verdict: held},
	{Name: "pod-not-on-lease", When: memberFacts{pod: PodUnscheduled | PodUnstarted | PodLive, claim: ClaimPresent | ClaimUnwanted, lease: LeaseOurs,
		marked: rules.No},
		Verdict: mark},
	{Name: "pod-exists", When: memberFacts{pod: PodUnscheduled | PodUnstarted | PodLive}, Verdict: keep},
})

// memberFacts is the complete input of leaseRows, claimRows and podRows.
type memberFacts struct {
	lease LeaseState `fact:"Lease"`
	claim ClaimState `fact:"PVC"`
	pod   PodState   `fact:"Pod"`
	// spare: the other members are a quorum without this one, or the cluster never formed. No other member goes before
	// it, is being removed or replaces itself. While the data of the members differs without a majority, no member has
	// its turn: its copy can be the one that decides.
	spare rules.YesNo `fact:"the others are a quorum, and it is its turn"`
	// marked: the Lease has the UIDs of the Pod and of the claim.
	marked rules.YesNo `fact:"the Lease names Pod and PVC"`
	// paused: the member is the last one of a paused cluster.
	paused rules.YesNo
	// answered: all members leave a joined raft group, and the agent in the Pod that the Lease names acknowledged the removal of
	// its own member. druid examines that, or believes it.
	answered rules.YesNo `fact:"acknowledged its own removal"`
}

func memberFactsOf(m Member, e Evaluation) memberFacts {
	others, turn := serving(m, e.Observed, e.listed), e.slotsFreeFor(m) && !e.undecided()
	for _, other := range e.listed {
		turn = turn && (other.Name == m.Name || !((other.lostVolume() || other.keepsDeletedClaim()) && before(other, m)))
	}
	return memberFacts{
		lease:  m.Lease,
		claim:  m.Claim,
		pod:    m.Pod,
		spare:  rules.YesNoOf(turn && (e.RecordState == RecordForming || others >= quorum(votersOf(e.Observed, e.listed)))),
		marked: rules.YesNoOf(m.Readable && m.Reports.PodUID == m.PodUID && m.Reports.VolumeUID == m.ClaimUID),
		paused: rules.YesNoOf(e.pause.holds(m, pauseRest)), answered: rules.YesNoOf(m.answered(e.Observed)),
	}
}

// votersOf is how many voters the raft group can have: the number in the list that the leader published, or the number
// of voter labels, whichever is larger. A learner counts, because it can have been promoted since. A name that has not
// joined yet does not count: etcd lets no member join while a voter of three is down, so a voter that lost its volume
// cannot wait for joiners. A member of an earlier raft group, before a recovery, does not count either. Without a
// published list, all names and all members of a joined group count.
func votersOf(o Observed, listed []Member) int {
	if o.Record.MemberList == nil {
		return len(listed) + len(o.Record.Externals)
	}
	known := 0
	for _, m := range listed {
		if m.ofGroup(o) && (m.votes() || m.Readable && m.Reports.EverFormed()) {
			known++
		}
	}
	return max(len(o.Record.MemberList.Members), known)
}

// slotsFreeFor says whether no other member is being removed or replaces itself. The vote of such a member still
// counts and is about to go.
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

// lostVolume says whether a Pod runs on a volume whose claim is absent or being deleted.
func (m Member) lostVolume() bool {
	return m.Pod == PodLive && m.Claim&(ClaimAbsent|ClaimTerminating) != 0
}

// keepsDeletedClaim says whether the claim is deleted as soon as the Pod is, in which no container runs.
func (m Member) keepsDeletedClaim() bool {
	return m.Pod&(PodUnstarted|PodEnded) != 0 && m.Claim == ClaimTerminating
}

// before orders members that lost their volumes. druid replaces one at a time, and first one that serves no clients.
func before(a, b Member) bool {
	if a.up() != b.up() {
		return !a.up()
	}
	return a.Name < b.Name
}

// slotVerdict is the decision about the record's slot for the one member that replaces itself.
type slotVerdict uint8

const (
	slotKeep slotVerdict = 1 << iota
	slotRelease
)

func (s slotVerdict) String() string {
	return rules.Word(s, "Keep", "Release")
}

// slotRows decide about the slot. A member frees its slot when it votes again, and a new Pod with its name takes it
// over. The slot only makes replacements sequential: druid and etcd check the cost of each removal separately. The
// slot is therefore freed only if no call of the Pod that took it can still be in progress. Until the leader's agent
// publishes the member list, it stays: the published list can be older than the removal, and then only the slot shows it.
var slotRows = rules.New(slotKeep, []rules.Row[slotFacts, slotVerdict]{
	{Name: "slot-free", When: slotFacts{taken: rules.No}, Verdict: slotKeep,
		Why: "there is no slot to free"},
	{Name: "slot-held", When: slotFacts{taken: rules.Yes, holder: rules.Yes}, Verdict: slotKeep,
		Why: "the Pod that took the slot might still be replacing the member"},
	{Name: "slot-inherited", When: slotFacts{taken: rules.Yes, holder: rules.No, comes: rules.Yes}, Verdict: slotKeep,
		Why: "another Pod with that name takes the slot over and finishes"},
	{Name: "slot-evidence", When: slotFacts{taken: rules.Yes, holder: rules.No, comes: rules.No, published: rules.No}, Verdict: slotKeep,
		Why: "the published member list can be older than the removal, and a recovery counts the vote that the slot names"},
	{Name: "slot-abandoned", When: slotFacts{taken: rules.Yes, holder: rules.No, comes: rules.No, published: rules.Yes}, Verdict: slotRelease,
		Why: "no Pod with that name starts, and other members might need to replace themselves"},
})

// slotFacts is the complete input of slotRows.
type slotFacts struct {
	taken rules.YesNo
	// holder: the Pod that took the slot exists. comes: the name is desired, and a Pod with it runs or can still
	// start.
	holder    rules.YesNo `fact:"the Pod that took it exists"`
	comes     rules.YesNo `fact:"a Pod of its name runs or may come up"`
	published rules.YesNo `fact:"the leader's agent publishes the member list"`
}

func slotFactsOf(o Observed) slotFacts {
	slot := o.Record.Replacing
	f := slotFacts{taken: rules.YesNoOf(slot != nil), holder: rules.No, comes: rules.No, published: rules.YesNoOf(o.listPublished())}
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

// listPublished says whether the agent of a leader reaches the API, so that the published member list has each earlier removal: of a listed
// name, the Pod that took a slot is gone for longer than the Lease of a leader stays live. External members can have a leader without an agent, and druid
// recovers no raft group that has some.
func (o Observed) listPublished() bool {
	listed := o.listed()
	return hasExternals(o.Record) && groupQuorum(o, listed) == rules.Yes ||
		slices.ContainsFunc(listed, func(m Member) bool { return m.leads() && m.ofGroup(o) })
}

// slotStep frees exactly the slot that the plan saw.
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

// ownership is the decision about a claim's owner reference to its EtcdCluster. With that reference, the garbage
// collector of Kubernetes deletes the claim with the EtcdCluster, even if no druid runs.
type ownership uint8

const (
	ownershipKeep ownership = 1 << iota
	// ownershipTake: from now on, the claim is deleted with the EtcdCluster.
	ownershipTake
	// ownershipRelease: from now on, the claim outlives the EtcdCluster.
	ownershipRelease
)

func (o ownership) String() string {
	return rules.Word(o, "Keep", "Take", "Release")
}

// ownershipRows keep the claims consistent with spec.storage.persistentVolumeClaimRetentionPolicy.whenDeleted. druid
// never takes a claim that does not belong to the cluster by its UID, whatever its name is.
var ownershipRows = rules.New(ownershipKeep, []rules.Row[ownershipFacts, ownership]{
	{Name: "claim-not-ours", When: ownershipFacts{claim: ClaimAbsent | ClaimForeign | ClaimUnwanted}, Verdict: ownershipKeep},
	{Name: "claim-terminating", When: ownershipFacts{claim: ClaimTerminating}, Verdict: ownershipKeep},
	{Name: "claim-deleted-with-cluster", When: ownershipFacts{claim: ClaimPresent, goes: rules.Yes, owned: rules.No}, Verdict: ownershipTake},
	{Name: "claim-retained", When: ownershipFacts{claim: ClaimPresent, goes: rules.No, owned: rules.Yes}, Verdict: ownershipRelease},
	{Name: "claim-owner-correct", When: ownershipFacts{claim: ClaimPresent}, Verdict: ownershipKeep},
})

// ownershipFacts is the complete input of ownershipRows.
type ownershipFacts struct {
	claim ClaimState  `fact:"PVC"`
	goes  rules.YesNo `fact:"PVCs are to go"`          // claims are to go with the EtcdCluster
	owned rules.YesNo `fact:"the EtcdCluster owns it"` // the claim refers to the EtcdCluster as an owner
}

// ownershipStep checks each claim of the cluster, including claims of members that the record does not list.
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

// measured says whether the agent of the member reports how fast its disk is now.
func (m Member) measured() bool {
	return m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Reports.Fsync.Known()
}

// diskSpeed returns the verdict of the member's agent on its disk, or "" while it is unknown. A druid that has just started keeps the
// previous verdict.
func diskSpeed(m Member, before string) string {
	switch {
	case m.measured():
		return string(m.Reports.Fsync.Speed)
	case m.Liveness == leases.Unknown:
		return before
	default:
		return ""
	}
}

// diskProblems reports members whose disk is very slow. A slow disk is no problem yet: the leadership moves away from it. The message
// has no measured time, which changes with each report.
func diskProblems(listed []Member) (all []Problem) {
	for _, m := range listed {
		if m.measured() && m.Reports.Fsync.Speed == leases.SpeedVerySlow {
			all = append(all, Problem{Reason: v1alpha1.ReasonSlowDisk, Member: m.Name, Message: "its disk is very slow: one in a hundred writes to the log of " +
				"etcd takes half a second or longer, so that a leader can lose the leadership. Use a faster disk, or move other load away from it. " +
				"See docs/how-to/rescue/slow-disk.md"})
		}
	}
	return all
}
