package plan

import "github.com/etcd-druid/druid/leases"

// recordStep is the step that writes the record. It stands alone: all others follow from what the record says afterwards.
// Each is planned once more from live reads, because what it goes by stands on other Leases than the one that it writes.
func (r retreat) recordStep(o Observed) (Step, bool) {
	if step, ok := adoption(r, o); ok {
		return step, true
	}
	step := Step{Rule: r.rule, Stage: StageRecord, Member: r.member.Name, Slot: o.Record.Retiring}
	switch r.order {
	case drainOpen:
		step.Kind, step.Slot = OpenSlot, &leases.Retiring{Member: r.member.Name}
	case drainClose:
		step.Kind, step.Member = FreeSlot, o.Record.Retiring.Member
	case drainStrike:
		step.Kind = StrikeName
	case drainDrop:
		step.Kind, step.Slot = StrikeName, nil
	default:
		return Step{}, false
	}
	return step, true
}

// adoption takes the slot for a removal that an agent claimed under a slot that is gone: the record was made again.
func adoption(r retreat, o Observed) (Step, bool) {
	for _, m := range o.listed() {
		if d := strayRows.Decide(r.strayFacts(m, o)); d.Verdict == strayTakeSlot {
			return Step{
				Kind: OpenSlot, Rule: d.Rule, Stage: StageRecord, Member: m.Name,
				Slot: &leases.Retiring{Member: m.Name, Mark: m.Says.Retire.Mark},
			}, true
		}
	}
	return Step{}, false
}

func (r retreat) strayFacts(m Member, o Observed) strayFacts {
	return strayFacts{record: o.RecordState, stray: strayOf(m, o), slot: r.facts.slot, excess: r.facts.excess}
}

// markSteps write the drain marks: that of the member that leaves, and those that nothing orders.
func (r retreat) markSteps(o Observed, add func(Step)) {
	step := Step{Rule: r.rule, Stage: StageMarks, Member: r.member.Name, Slot: o.Record.Retiring}
	switch r.order {
	case drainAsk:
		step.Kind, step.Stage, step.Toll = RetireLease, StageDelete, TollVote // after the budget was raised
	case drainNeverFormed:
		step.Kind, step.Slot = RetireLease, &leases.Retiring{Member: r.member.Name, Mark: NotFormed}
	case drainTakeBack:
		step.Kind = UnretireLease
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
			add(Step{Kind: UnretireLease, Rule: d.Rule, Stage: StageMarks, Member: m.Name, Slot: o.Record.Retiring})
		}
	}
}
