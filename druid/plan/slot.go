package plan

import "github.com/etcd-druid/druid/internal/rules"

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
