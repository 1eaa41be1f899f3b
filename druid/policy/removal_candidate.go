package policy

import (
	"cmp"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// rank orders members by what the cluster loses with them, the smallest loss first.
type rank uint8

const (
	rankNeverFormed rank = iota // already marked to be dropped
	rankOutside                 // it never was in the cluster
	rankIdle                    // a learner whose etcd does not serve
	rankDown                    // a voter that does not serve
	rankDoomed                  // one that serves from a volume that goes with its Pod
	rankLearner                 // a learner that does
	rankFollower                // a voter that does
	rankLeader                  // or one that may be it
)

func rankOf(m Member, o Observed) rank {
	learner := m.learns() && !m.publishedVoter(o)
	switch {
	case m.Readable && m.Reports.Removal.Mark == NotFormed:
		return rankNeverFormed
	case m.outside() && !m.publishedVoter(o):
		return rankOutside
	case learner && !m.up():
		return rankIdle
	case !m.up():
		return rankDown
	case m.lostVolume():
		return rankDoomed
	case learner:
		return rankLearner
	case m.mayLead():
		return rankLeader
	default:
		return rankFollower
	}
}

// outside says whether the member was never in the cluster, according to its Lease and its Pod.
func (m Member) outside() bool {
	return m.Lease == LeaseOurs && m.Readable && !m.Reports.EverFormed() && !m.Voter
}

// mayLead says whether the member's Lease reports the leader and may still be current. A druid that has just started
// has seen some Leases renewed before others.
func (m Member) mayLead() bool {
	return m.leads() || m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Unknown && m.Reports.Role == leases.RoleLeader
}

// learns says whether the member's Lease reports a learner.
func (m Member) learns() bool {
	return m.Lease == LeaseOurs && m.Readable && m.Reports.Role == leases.RoleLearner
}

// publishedVoter says whether the list that the leader's agent published contains the member as a voter. A Lease that
// was created again, or whose agent does not renew it, knows nothing about the vote.
func (m Member) publishedVoter(o Observed) bool {
	return o.Record.MemberList != nil && slices.ContainsFunc(o.Record.MemberList.Members, func(entry leases.ListedMember) bool {
		return !entry.Learner && (entry.Name == m.Name || leases.MemberOfURL(entry.PeerURL) == m.Name)
	})
}

// removalCandidate is the member to remove next: the first that the user named, or else the newest among those with the
// smallest loss for the cluster. A cluster that is forming keeps its first member, and only a member that was never in a
// raft group can be removed from it.
func removalCandidate(d Desired, o Observed) (Member, bool) {
	candidates := o.listed()
	if o.RecordState == RecordForming {
		candidates = slices.DeleteFunc(candidates, func(m Member) bool { return m.Name == o.Record.Seed || !m.outside() })
	}
	if len(candidates) == 0 {
		return Member{}, false
	}
	return slices.MinFunc(candidates, func(a, b Member) int {
		return cmp.Or(cmp.Compare(d.turn(a, o), d.turn(b, o)), cmp.Compare(rankOf(a, o), rankOf(b, o)), b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	}), true
}

// turn is the place of a member in the order in which the user lets members leave. The one to replace comes before all that vote, and
// while one takes its place also before that one. All that the user did not name come last.
func (d Desired) turn(m Member, o Observed) int {
	takesPlace := len(o.Record.Members) == d.Replicas+1
	switch i := slices.Index(d.LeaveFirst, m.Name); {
	case m.Name == d.Replace:
		return -1
	case o.Record.Lists(d.Replace) && !takesPlace && (m.outside() || m.learns()) && !m.publishedVoter(o):
		return -2
	case i >= 0:
		return i
	}
	return len(d.LeaveFirst)
}

// removalGateOf says whether the other members allow the removal of m, and otherwise which member does not and why. A
// member without a vote can always be removed. A Lease that was created again, or that its agent does not renew, does
// not take away a vote that the leader published.
func removalGateOf(m Member, o Observed) (removalGate, string) {
	if (m.outside() || m.learns()) && !m.publishedVoter(o) {
		return removalAllowed, ""
	}
	if o.undecided() {
		return removalBlocked, "the data of the members differs, and no majority has the same"
	}
	found, why := removalAllowed, ""
	listed := o.listed()
	for _, other := range listed {
		if other.Name == m.Name {
			continue
		}
		switch ready, words := other.steady(spared(other, o, listed)); ready {
		case removalBlocked:
			return removalBlocked, "member " + other.Name + " " + words
		case removalUnknown:
			found, why = removalUnknown, "member "+other.Name+" "+words
		default:
		}
	}
	return found, why
}

// noEqual says why the member is no voter with the data of the others, empty if it is one.
func (m Member) noEqual() string {
	switch {
	case m.outside():
		return "has not joined yet"
	case m.learns():
		return "is a learner"
	case m.dataDiffers():
		return "has data that differs from that of the others"
	}
	return ""
}

// steady reports whether the member is a ready voter, and otherwise its state in words for the user. A member that
// lost its volume is replaced first. If the other members have no quorum without it, it stays as it is and blocks
// nothing.
func (m Member) steady(spared rules.YesNo) (removalGate, string) {
	switch {
	case m.Lease == LeaseAbsent:
		return removalUnknown, "has no Lease"
	case m.Lease == LeaseForeign:
		return removalBlocked, "has a Lease with another owner"
	case !m.Readable:
		return removalBlocked, "has a Lease that cannot be parsed"
	case m.Reports.Removal.State == leases.RemovalBegun:
		return removalBlocked, "is being removed by an earlier request"
	case m.NodeLost:
		return removalBlocked, "is on an unreachable node"
	case m.noEqual() != "":
		return removalBlocked, m.noEqual()
	case !m.up():
		return removalBlocked, "is not ready"
	case m.lostVolume() && spared == rules.Yes:
		return removalBlocked, "has a volume that was deleted and has to be replaced"
	case m.Liveness == leases.Unknown:
		return removalUnknown, "has not renewed its Lease yet"
	case m.Liveness != leases.Live || !m.reportsVoter():
		return removalBlocked, "has an agent that is not renewing its Lease"
	default:
		return m.arrived()
	}
}

// arrived says whether the member's agent has shown that it works after druid replaced it.
func (m Member) arrived() (removalGate, string) {
	switch m.Arrival {
	case ArrivalLate:
		return removalBlocked, "has a new agent that is not renewing its Lease"
	case ArrivalAwaited, ArrivalUnconfirmed:
		return removalUnknown, "has a new agent that is not ready yet"
	default:
		return removalAllowed, ""
	}
}

type (
	// stray is a removal request that the record's slot does not request.
	stray uint8
	// removalAck is the evidence that a name which the record does not list was removed.
	removalAck uint8
)

const (
	strayNone        stray = 1 << iota // no mark, the slot's own, or one that cannot be read
	strayNeverFormed                   // of a cluster that never formed
	strayRemoving                      // an agent of the record's raft group claimed the removal
	strayOther                         // requested or done, or claimed in a raft group that was replaced
)

func (s stray) String() string {
	return rules.Word(s, "none", "never formed", "removing", "other")
}

const (
	removalAckNone        removalAck = 1 << iota // nothing: it is no leftover
	removalAckDone                               // the raft group that the record names acknowledged that it is out
	removalAckListed                             // so it did, and the leader's agent publishes that the member is listed
	removalAckNeverFormed                        // it was dropped before there was a raft group
)

func (f removalAck) String() string {
	return rules.Word(f, "nothing", "done", "done, and the leader lists it", "never formed")
}

// strayVerdict is the decision about a removal request that no slot orders.
type strayVerdict string

const (
	strayKeep     strayVerdict = "Keep"
	strayWait     strayVerdict = "Wait"
	strayTakeSlot strayVerdict = "TakeSlot"
	strayUnmark   strayVerdict = "Unmark"
)

// strayRows decide about a removal request without a slot. It orders nothing and keeps its member from starting. A
// request that an agent had claimed continues under a new slot, because the removal may have happened. druid deletes
// all others.
var strayRows = rules.New(strayWait, []rules.Row[strayFacts, strayVerdict]{
	{Name: "request-in-order", When: strayFacts{stray: strayNone}, Verdict: strayKeep},
	{Name: "request-before-drop", When: strayFacts{record: RecordForming, stray: strayNeverFormed, excess: rules.Yes}, Verdict: strayKeep},
	{Name: "request-not-decided", When: strayFacts{record: anyRecord &^ (RecordForming | RecordFormed)}, Verdict: strayKeep},
	{Name: "claim-without-slot", When: strayFacts{record: RecordFormed, stray: strayRemoving, slot: slotFree}, Verdict: strayTakeSlot},
	{Name: "claim-waits-for-slot", When: strayFacts{record: RecordForming | RecordFormed, stray: strayRemoving}, Verdict: strayWait},
	{Name: "request-without-slot", When: strayFacts{record: RecordForming | RecordFormed}, Verdict: strayUnmark},
})

// leftoverFacts is the complete input of leftoverRows.
type leftoverFacts struct {
	removalAck removalAck  `fact:"Lease says"`
	pod        PodState    `fact:"Pod"`
	claim      ClaimState  `fact:"PVC"`
	retain     rules.YesNo `fact:"PVCs retained"`
}

// nothing means that there is no step.
const nothing Kind = ""

// leftoverRows delete the objects of a removed member: first the Pod, then the claim, and last the Lease, which
// reports that all of them can be deleted. The acknowledgement on that Lease can be forged, and a user can have removed the name from
// the record or have restored an older record. So druid deletes nothing while the leader's agent publishes that the member is listed.
var leftoverRows = rules.New(nothing, []rules.Row[leftoverFacts, Kind]{
	{Name: "not-acknowledged", When: leftoverFacts{removalAck: removalAckNone}, Verdict: nothing},
	{Name: "still-listed", When: leftoverFacts{removalAck: removalAckListed}, Verdict: nothing},
	{Name: "removed-pod-terminating", When: leftoverFacts{pod: PodTerminating}, Verdict: nothing},
	{Name: "removed-pod", When: leftoverFacts{pod: PodUnscheduled | PodUnstarted | PodLive | PodEnded}, Verdict: DeletePod},
	{Name: "removed-claim-terminating", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimTerminating}, Verdict: nothing},
	{Name: "removed-claim-retained", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimPresent, retain: rules.Yes}, Verdict: RetainClaim},
	{Name: "removed-claim", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimPresent, retain: rules.No}, Verdict: DeleteClaim},
	{Name: "removed-lease", When: leftoverFacts{pod: PodAbsent | PodForeign, claim: ClaimAbsent | ClaimForeign | ClaimUnwanted}, Verdict: DeleteLease},
})

// strayFacts is the complete input of strayRows.
type strayFacts struct {
	record RecordState
	stray  stray       `fact:"mark"`
	slot   slot        `fact:"slots"`
	excess rules.YesNo `fact:"more members than replicas"`
}

func strayOf(m Member, o Observed) stray {
	mark := m.Reports.Removal
	switch {
	case m.Lease != LeaseOurs || !m.Readable || o.Record.PendingRemoval.Orders(m.Name, mark):
		return strayNone
	case mark.State == leases.RemovalRequested && mark.Mark == NotFormed && m.Name != o.Record.Seed: // the seed is not dropped
		return strayNeverFormed
	case mark.State == leases.RemovalBegun && (o.Record.ClusterID == 0 || mark.ClusterID == leases.FormatID(o.Record.ClusterID)):
		return strayRemoving
	case mark.State == leases.RemovalRequested, mark.State == leases.RemovalDone, mark.State == leases.RemovalBegun:
		return strayOther
	default:
		return strayNone
	}
}

// removalAckOf is what the Lease of an unlisted name reports. That the record does not list the name is not evidence:
// a record can be created again, or be older than the name.
func removalAckOf(m Member, o Observed) removalAck {
	switch {
	case m.Listed || m.Lease != LeaseOurs || !m.Readable:
		return removalAckNone
	case m.acknowledged(o) && !o.Record.Leaving && publishedEntry(m, o) == entryThere: // an external leader publishes no list
		return removalAckListed
	case m.acknowledged(o):
		return removalAckDone
	case o.RecordState&(RecordForming|RecordFormed) != 0 && !m.Reports.EverFormed() &&
		m.Reports.Removal.State == leases.RemovalRequested && m.Reports.Removal.Mark == NotFormed:
		return removalAckNeverFormed
	default:
		return removalAckNone
	}
}

// leftoverStep is the next step that deletes an object of a removed member.
func leftoverStep(m Member, d Desired, o Observed) (Step, bool) {
	retain := rules.YesNoOf(d.RetainClaims || slices.Contains(d.KeepVolumes, m.Name))
	decision := leftoverRows.Decide(leftoverFacts{removalAckOf(m, o), m.Pod, m.Claim, retain})
	step := Step{Kind: decision.Verdict, Rule: decision.Rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, ClaimUID: m.ClaimUID}
	return step, step.Kind != nothing
}

// ChangeSlot applies a step that takes or frees the slot, or removes a name, to the record as it was just read. It
// returns false if the record is not what the plan saw. mark names the request of a slot that is taken without one.
func (s Step) ChangeSlot(record leases.Record, mark string) (leases.Record, bool) {
	switch {
	case s.Kind == OpenSlot:
		return s.openSlot(record, mark)
	case s.Kind == RemoveName && s.Slot == nil:
		if record.Phase != leases.PhaseForming || record.Seed == s.Member || !record.Lists(s.Member) {
			return record, false
		}
		return s.removeName(record), true
	case record.PendingRemoval == nil || s.Slot == nil || *record.PendingRemoval != *s.Slot || record.Phase != leases.PhaseFormed:
		return record, false
	case s.Kind == RemoveName:
		record = s.removeName(record)
	}
	record.PendingRemoval = nil
	return record, true
}

func (s Step) openSlot(record leases.Record, mark string) (leases.Record, bool) {
	if record.Phase != leases.PhaseFormed || slotOf(record) != slotFree || !record.Lists(s.Member) {
		return record, false
	}
	taken := *s.Slot
	if taken.Mark == "" {
		taken.Mark = mark
	}
	record.PendingRemoval, record.Replacing = &taken, nil
	return record, true
}

func (s Step) removeName(record leases.Record) leases.Record {
	record.Members = slices.DeleteFunc(slices.Clone(record.Members), func(name string) bool { return name == s.Member })
	return record
}
