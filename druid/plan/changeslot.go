package plan

import (
	"slices"

	"github.com/etcd-druid/druid/leases"
)

// ChangeSlot is what a step that takes or frees the slot, or strikes a name, makes of the record as it was read just now;
// false when that is not what the plan saw. mark names the order of a slot that is taken without one.
func (s Step) ChangeSlot(record leases.Record, mark string) (leases.Record, bool) {
	switch {
	case s.Kind == OpenSlot:
		return s.openSlot(record, mark)
	case s.Kind == StrikeName && s.Slot == nil:
		if record.Phase != leases.PhaseForming || record.Seed == s.Member || !record.Lists(s.Member) {
			return record, false
		}
		return s.strike(record), true
	case record.Retiring == nil || s.Slot == nil || *record.Retiring != *s.Slot || record.Phase != leases.PhaseFormed:
		return record, false
	case s.Kind == StrikeName:
		record = s.strike(record)
	}
	record.Retiring = nil
	return record, true
}

func (s Step) openSlot(record leases.Record, mark string) (leases.Record, bool) {
	replacing := record.Replacing != nil && record.Lists(record.Replacing.Member)
	if record.Phase != leases.PhaseFormed || record.Retiring != nil || replacing || !record.Lists(s.Member) {
		return record, false
	}
	taken := *s.Slot
	if taken.Mark == "" {
		taken.Mark = mark
	}
	record.Retiring, record.Replacing = &taken, nil
	return record, true
}

func (s Step) strike(record leases.Record) leases.Record {
	record.Members = slices.DeleteFunc(slices.Clone(record.Members), func(name string) bool { return name == s.Member })
	return record
}
