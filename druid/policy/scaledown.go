package policy

import (
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	slot        uint8 // the record's slots
	marked      uint8 // the drain mark on the Lease of the member that the slot names
	removalGate uint8 // whether the other members let one go
	drain       uint8 // what is to be done about a member that is to go: no cell holds it
)

const (
	slotFree      slot = 1 << iota
	slotReplacing      // a member replaces itself
	slotTaken          // a listed member is on its way out
	slotLeft           // it names a member that the record does not list

	anySlot = slotFree | slotReplacing | slotTaken | slotLeft
)

func (s slot) String() string {
	return rules.Word(s, "free", "replacing", "taken", "left behind")
}

const (
	markNone        marked = 1 << iota // none, or one that answers another order or another raft group
	markNeverFormed                    // before the cluster formed: the name is to be dropped
	markRequested
	markRemoving  // an agent claimed it, or acknowledged it, and whether that is the agent of the leader is not known yet
	markElse      // an agent claimed the removal by another order
	markElsewhere // acknowledged by another agent than that of the leader
	markDone      // acknowledged by the raft group that the record names
	markUnknown   // there is no Lease, or it or its mark cannot be read
)

func (m marked) String() string {
	return rules.Word(m, "none", "never formed", "requested", "removing", "removing by another order", "done by another agent", "done", "unknown")
}

const (
	removalAllowed removalGate = 1 << iota // every other member is a ready voter, or the one that is to go does not vote
	removalBlocked                         // one is known not to be
	removalUnknown
	removalNotNeeded     // no member is to go
	removalBackupFailing // the slot is free, and the backup fails: nothing new begins
)

func (w removalGate) String() string {
	return rules.Word(w, "allowed", "blocked", "unknown", "not needed", "backup fails")
}

const (
	drainNothing     drain = iota
	drainWait              // an agent or the endpoints are awaited
	drainBlocked           // another member is
	drainOpen              // take the slot: the intent
	drainAsk               // mark the Lease
	drainRepeat            // mark the Lease again as claimed, so that the leader's agent answers
	drainTakeBack          // take the mark away
	drainClose             // free the slot
	drainRemoveName        // take the name out of the record, and free the slot
	drainNeverFormed       // mark the Lease of a member of a cluster that never formed
	drainDrop              // take its name out of the record
)

func (d drain) String() string {
	return [...]string{"Nothing", "Wait", "Blocked", "TakeSlot", "Mark", "MarkAgain", "Unmark", "FreeSlot", "RemoveName", "MarkNeverFormed", "RemoveName"}[d]
}

// removalRequests is the policy for the one member at a time that is removed. Until the leader's agent has claimed the
// removal, druid cancels it if the spec is reverted or if another member is not ready: that member might need the slot
// to replace itself. After the claim, only an acknowledgement counts that druid believes (acknowledgements). A cluster
// that never formed has no agent that could answer and no raft group, so druid removes the name from the record at
// once.
var removalRequests = rules.New(drainNothing, []rules.Row[drainFacts, drain]{
	{Name: "forming-enough", When: drainFacts{record: RecordForming, excess: rules.No}, Verdict: drainNothing},
	{Name: "forming-seed-only", When: drainFacts{record: RecordForming, excess: rules.Yes, removalGate: removalNotNeeded}, Verdict: drainNothing},
	{Name: "forming-drop", When: drainFacts{record: RecordForming, excess: rules.Yes, mark: markNeverFormed}, Verdict: drainDrop},
	{Name: "forming-unread", When: drainFacts{record: RecordForming, excess: rules.Yes, mark: markUnknown}, Verdict: drainWait},
	{Name: "forming-request", When: drainFacts{record: RecordForming, excess: rules.Yes}, Verdict: drainNeverFormed},
	{Name: "record-not-formed", When: drainFacts{record: anyRecord &^ (RecordForming | RecordFormed)}, Verdict: drainNothing},
	{Name: "slot-abandoned", When: drainFacts{record: RecordFormed, slot: slotLeft}, Verdict: drainClose},
	{Name: "removed", When: drainFacts{record: RecordFormed, slot: slotTaken, mark: markDone}, Verdict: drainRemoveName},
	{Name: "removed-by-another-agent", When: drainFacts{record: RecordFormed, slot: slotTaken, mark: markElsewhere}, Verdict: drainRepeat},
	{Name: "being-removed", When: drainFacts{record: RecordFormed, slot: slotTaken, mark: markRemoving}, Verdict: drainWait},
	{Name: "claimed-by-another-order", When: drainFacts{record: RecordFormed, slot: slotTaken, mark: markElse}, Verdict: drainClose},
	{Name: "request-unreadable", When: drainFacts{record: RecordFormed, slot: slotTaken, mark: markUnknown}, Verdict: drainWait},
	{Name: "reverted-request", When: drainFacts{record: RecordFormed, excess: rules.No, slot: slotTaken, mark: markRequested}, Verdict: drainTakeBack},
	{Name: "reverted", When: drainFacts{record: RecordFormed, excess: rules.No, slot: slotTaken}, Verdict: drainClose},
	{Name: "blocked-request", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotTaken, mark: markRequested, removalGate: removalBlocked},
		Verdict: drainTakeBack},
	{Name: "hindered", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotTaken, removalGate: removalBlocked}, Verdict: drainClose},
	{Name: "requested", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotTaken, mark: markRequested}, Verdict: drainWait},
	{Name: "others-unknown", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotTaken,
		removalGate: removalUnknown | removalNotNeeded | removalBackupFailing},
		Verdict: drainWait},
	{Name: "still-served", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotTaken, removalGate: removalAllowed, served: rules.Yes},
		Verdict: drainWait},
	{Name: "request", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotTaken, removalGate: removalAllowed, served: rules.No},
		Verdict: drainAsk},
	{Name: "enough", When: drainFacts{record: RecordFormed, excess: rules.No, slot: slotFree | slotReplacing}, Verdict: drainNothing},
	{Name: "after-replacing", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotReplacing}, Verdict: drainBlocked},
	{Name: "after-others", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotFree, removalGate: removalBlocked}, Verdict: drainBlocked},
	{Name: "after-backup", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotFree, removalGate: removalBackupFailing}, Verdict: drainBlocked},
	{Name: "not-known-yet", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotFree, removalGate: removalUnknown | removalNotNeeded},
		Verdict: drainWait},
	{Name: "too-many", When: drainFacts{record: RecordFormed, excess: rules.Yes, slot: slotFree, removalGate: removalAllowed}, Verdict: drainOpen},
})

// drainFacts is the complete input of removalRequests.
type drainFacts struct {
	record      RecordState
	excess      rules.YesNo `fact:"more members than replicas"` // more names than replicas, of which one is always kept, and the deadline has not passed
	slot        slot        `fact:"slots"`
	mark        marked
	removalGate removalGate `fact:"the others"`
	served      rules.YesNo `fact:"clients sent to it"` // clients may still be sent to it
}

// scaleDown is the decision of the policy and the member that it is about.
type scaleDown struct {
	order drain
	rule  string
	facts drainFacts
	// member to remove, empty if there is none.
	member Member
	// hindrance names what blocks it, for the user.
	hindrance string
}

func scaleDownOf(e Evaluation) scaleDown {
	r := scaleDown{facts: drainFacts{
		record: e.RecordState,
		excess: excessOf(e),
		slot:   slotOf(e.Record),
	}}
	// A record that does not name its raft group, or the record of a bootstrap that failed, does not permit a
	// scale-down.
	if e.RecordState == RecordFormed && e.Record.ClusterID == 0 ||
		e.RecordState == RecordForming && e.evidence >= evidenceLease {
		r.facts.record = RecordRecovering
	}
	member, there := Member{}, false
	if r.facts.slot == slotTaken {
		member, there = e.member(e.Record.PendingRemoval.Member)
	} else if r.facts.excess == rules.Yes {
		member, there = removalCandidate(e.Desired, e.Observed)
	}
	r.facts.removalGate, r.facts.mark, r.facts.served = removalNotNeeded, markNone, rules.No
	if there {
		r.member = member
		r.facts.mark = markOf(member, e.Observed)
		r.facts.served = rules.YesNoOf(member.Serving && member.Pod&(PodAbsent|PodForeign) == 0 || member.Routed)
		r.facts.removalGate, r.hindrance = wayOut(member, e)
	}
	if r.facts.slot == slotReplacing {
		r.hindrance = "member " + e.Record.Replacing.Member + " replaces itself"
	}
	decision := removalRequests.Decide(r.facts)
	r.order, r.rule = decision.Verdict, decision.Rule
	return r
}

// excessOf says whether there are more names than are to stay.
func excessOf(e Evaluation) rules.YesNo {
	if e.Deleted {
		return rules.YesNoOf(e.leaves() && len(e.Record.Members) > 0)
	}
	return rules.YesNoOf(len(e.Record.Members) > e.kept() && !e.Expired)
}

// wayOut reports whether m may be removed, and otherwise why not. If all members leave, none of them waits for another
// one: the agents check all members that stay.
func wayOut(m Member, e Evaluation) (removalGate, string) {
	if e.leaves() {
		return removalAllowed, ""
	}
	found, why := removalGateOf(m, e.Observed)
	if slotOf(e.Record) == slotFree && found&(removalAllowed|removalUnknown) != 0 && e.backups.block(actionRemove) {
		return removalBackupFailing, "backups fail (see condition BackupReady)"
	}
	return found, why
}

func slotOf(r leases.Record) slot {
	switch {
	case r.PendingRemoval != nil && r.Lists(r.PendingRemoval.Member):
		return slotTaken
	case r.PendingRemoval != nil:
		return slotLeft
	case r.Replaces():
		return slotReplacing
	default:
		return slotFree
	}
}

// NotFormed is the removal request for a member whose cluster never formed. No agent responds to it, and no slot names
// it.
const NotFormed = "never-formed"

// markOf is the meaning of the removal request on the member's Lease.
func markOf(m Member, o Observed) marked {
	mark := m.Reports.Removal
	switch {
	case m.Lease != LeaseOurs || !m.Readable || mark.State == leases.RemovalUnreadable:
		return markUnknown
	case mark.State == leases.RemovalRequested && mark.Mark == NotFormed:
		return markNeverFormed
	case !o.Record.PendingRemoval.Orders(m.Name, mark) && mark.State == leases.RemovalBegun:
		return markElse
	case !o.Record.PendingRemoval.Orders(m.Name, mark):
		return markNone
	}
	switch mark.State {
	case leases.RemovalRequested:
		return markRequested
	case leases.RemovalBegun:
		return markRemoving
	case leases.RemovalDone:
		return m.markAcknowledged(o)
	default:
		return markNone
	}
}

// leaving says whether druid removes m from the client endpoints.
func (r scaleDown) leaving(m Member) bool {
	return r.facts.slot == slotTaken && r.member.Name == m.Name && r.facts.record == RecordFormed
}

// shrinking summarizes the scale-down for the status.
func (r scaleDown) shrinking() shrinking {
	switch {
	case r.facts.slot == slotTaken && r.facts.mark&(markRemoving|markElsewhere|markDone) != 0:
		return shrinkingGoes
	case r.facts.excess == rules.No:
		return shrinkingNone
	case r.order == drainBlocked, r.facts.removalGate == removalBlocked && (r.order == drainTakeBack || r.order == drainClose):
		return shrinkingBlocked
	default:
		return shrinkingGoes
	}
}

// station is the progress of the removal of m.
func (r scaleDown) station(m Member) v1alpha1.MemberLeaving {
	if !r.leaving(m) {
		return ""
	}
	switch r.facts.mark {
	case markRequested:
		return v1alpha1.LeaveRequested
	case markRemoving, markElsewhere:
		return v1alpha1.LeaveRemoving
	case markDone:
		return v1alpha1.LeaveRemoved
	default:
		return v1alpha1.DrainingClients
	}
}

// recordStep is the step that writes the record. It stands alone, because all other steps depend on the record. druid
// plans it again from live reads, because it depends on other Leases than the one that it writes.
func (r scaleDown) recordStep(o Observed) (Step, bool) {
	if step, ok := adoption(r, o); ok {
		return step, true
	}
	step := Step{Rule: r.rule, Stage: StageRecord, Member: r.member.Name, Slot: o.Record.PendingRemoval}
	switch r.order {
	case drainOpen:
		step.Kind, step.Slot = OpenSlot, &leases.PendingRemoval{Member: r.member.Name}
	case drainClose:
		step.Kind, step.Member = FreeSlot, o.Record.PendingRemoval.Member
	case drainRemoveName:
		step.Kind = RemoveName
	case drainDrop:
		step.Kind, step.Slot = RemoveName, nil
	default:
		return Step{}, false
	}
	return step, true
}

// adoption takes the slot for a removal that an agent claimed under a slot that no longer exists because the record
// was created again.
func adoption(r scaleDown, o Observed) (Step, bool) {
	for _, m := range o.listed() {
		if d := strayRows.Decide(r.strayFacts(m, o)); d.Verdict == strayTakeSlot {
			return Step{
				Kind: OpenSlot, Rule: d.Rule, Stage: StageRecord, Member: m.Name,
				Slot: &leases.PendingRemoval{Member: m.Name, Mark: m.Reports.Removal.Mark},
			}, true
		}
	}
	return Step{}, false
}

func (r scaleDown) strayFacts(m Member, o Observed) strayFacts {
	return strayFacts{record: o.RecordState, stray: strayOf(m, o), slot: r.facts.slot, excess: r.facts.excess}
}

// markSteps write the removal request of the member that leaves and delete the removal requests that no slot orders.
func (r scaleDown) markSteps(o Observed, add func(Step)) {
	step := Step{Rule: r.rule, Stage: StageMarks, Member: r.member.Name, Slot: o.Record.PendingRemoval}
	switch r.order {
	case drainAsk:
		step.Kind, step.Stage, step.Toll = RequestRemoval, StageDelete, TollVote // after the budget was raised
	case drainNeverFormed:
		step.Kind, step.Slot = RequestRemoval, &leases.PendingRemoval{Member: r.member.Name, Mark: NotFormed}
	case drainRepeat:
		step.Kind = RepeatRemoval
	case drainTakeBack:
		step.Kind = WithdrawRemoval
	default:
	}
	if step.Kind != "" {
		add(step)
	}
	for _, m := range o.listed() {
		if step.Kind != "" && m.Name == r.member.Name {
			continue
		}
		if d := strayRows.Decide(r.strayFacts(m, o)); d.Verdict == strayUnmark {
			add(Step{Kind: WithdrawRemoval, Rule: d.Rule, Stage: StageMarks, Member: m.Name, Slot: o.Record.PendingRemoval})
		}
	}
}
