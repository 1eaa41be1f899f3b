package plan

import "github.com/etcd-druid/druid/internal/rules"

// slotVerdict says what becomes of the record's slot for the one member that replaces itself.
type slotVerdict uint8

const (
	slotKeep slotVerdict = 1 << iota
	slotRelease
)

// slotRows decide about the slot. Its holder gives it back when it votes again, and a new Pod of its name takes it over. The
// slot only makes members go one after another: what a removal may cost is asked anew before each, and etcd asks too. So
// what matters is that no call of the Pod that took the slot is still under way.
var slotRows = []struct {
	name                 string
	taken, holder, comes rules.YesNo
	verdict              slotVerdict
	why                  string
}{
	{"slot-free", rules.No, anyAnswer, anyAnswer, slotKeep, "there is nothing to give back"},
	{"slot-held", rules.Yes, rules.Yes, anyAnswer, slotKeep, "the Pod that took the slot may be in the middle of it"},
	{"slot-inherited", rules.Yes, rules.No, rules.Yes, slotKeep, "another Pod of that name takes it over and finishes"},
	{"slot-left-behind", rules.Yes, rules.No, rules.No, slotRelease, "no Pod of that name comes up, and others may have to replace themselves"},
}

// slotFacts is all that the policy may look at.
type slotFacts struct {
	taken rules.YesNo
	// holder: the Pod that took the slot exists. comes: the name is desired, and a Pod of it runs or may yet come up.
	holder, comes rules.YesNo
}

func judgeSlot(f slotFacts) (slotVerdict, string) {
	for _, r := range slotRows {
		if r.taken&f.taken != 0 && r.holder&f.holder != 0 && r.comes&f.comes != 0 {
			return r.verdict, r.name
		}
	}
	return slotKeep, "uncovered"
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
	verdict, rule := judgeSlot(slotFactsOf(o))
	if verdict != slotRelease || o.RecordState != RecordFormed {
		return Step{}, false
	}
	slot := *o.Record.Replacing
	return Step{
		Kind: UpdateRecord, Rule: rule, Stage: StageRecord, Member: slot.Member, PodUID: slot.PodUID, Irreversible: true,
		Release: &slot,
	}, true
}
