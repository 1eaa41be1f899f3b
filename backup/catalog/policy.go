package catalog

import (
	"errors"
	"fmt"
	"time"
)

// Policy selects the backups that retention keeps. An object is kept if any of the rules keeps it. The empty policy
// keeps everything.
type Policy struct {
	// KeepAll is how long each revision stays restorable.
	KeepAll time.Duration `json:"keepAll,omitempty"`
	// Hourly, Daily, Weekly and Monthly keep the last full backup of each of that many hours, days, weeks and months,
	// in UTC. Periods without a full backup do not count.
	Hourly  int `json:"hourly,omitempty"`
	Daily   int `json:"daily,omitempty"`
	Weekly  int `json:"weekly,omitempty"`
	Monthly int `json:"monthly,omitempty"`
	// Count keeps that many of the newest full backups, with the delta backups after the oldest of them.
	Count int `json:"count,omitempty"`
}

// Validate rejects negative numbers.
func (p Policy) Validate() error {
	var errs []error
	for _, n := range []struct {
		name string
		n    int64
	}{
		{"keepAll", int64(p.KeepAll)}, {"hourly", int64(p.Hourly)}, {"daily", int64(p.Daily)}, {"weekly", int64(p.Weekly)},
		{"monthly", int64(p.Monthly)}, {"count", int64(p.Count)},
	} {
		if n.n < 0 {
			errs = append(errs, fmt.Errorf("retention: %s is negative: want 0 or more", n.name))
		}
	}
	return errors.Join(errs...)
}

// period is a rule that keeps one full backup in each of the last n periods.
type period struct {
	reason Reason
	n      int
	// of names the period that contains a time.
	of func(time.Time) string
}

func (p Policy) periods() []period {
	layout := func(l string) func(time.Time) string { return func(t time.Time) string { return t.UTC().Format(l) } }
	week := func(t time.Time) string {
		year, n := t.UTC().ISOWeek()
		return fmt.Sprintf("%d-%02d", year, n)
	}
	return []period{
		{ReasonHourly, p.Hourly, layout("2006-01-02T15")},
		{ReasonDaily, p.Daily, layout(time.DateOnly)},
		{ReasonWeekly, p.Weekly, week},
		{ReasonMonthly, p.Monthly, layout("2006-01")},
	}
}

// Reason is why retention keeps an object or may delete it.
type Reason string

// Why an object is kept. Of several reasons the first in this order is reported.
const (
	ReasonNoPolicy     Reason = "no-policy"
	ReasonOther        Reason = "other-cluster"
	ReasonNoFull       Reason = "no-full"
	ReasonFinal        Reason = "final"
	ReasonNewest       Reason = "newest"
	ReasonNewestIntact Reason = "newest-intact"
	ReasonVerified     Reason = "newest-verified"
	ReasonLatest       Reason = "latest"
	ReasonKeepAll      Reason = "keep-all"
	ReasonWindow       Reason = "window"
	ReasonCount        Reason = "count"
	ReasonHourly       Reason = "hourly"
	ReasonDaily        Reason = "daily"
	ReasonWeekly       Reason = "weekly"
	ReasonMonthly      Reason = "monthly"
	ReasonSpare        Reason = "second-newest"
	ReasonNeeded       Reason = "needed"
)

// Why an object may go.
const (
	ReasonBroken Reason = "broken"
	ReasonOld    Reason = "old"
	ReasonUnused Reason = "unused"
)

type knownReason struct {
	reason Reason
	keep   bool
	words  string
}

// reasons are in the order in which they are reported, each with its description.
var reasons = []knownReason{
	{ReasonNoPolicy, true, "the policy is empty, so everything is kept"},
	{ReasonOther, true, "another cluster's"},
	{ReasonNoFull, true, "its lineage has no full backup yet, so it may still be needed"},
	{ReasonFinal, true, "a final backup, which retention never deletes"},
	{ReasonNewest, true, "the newest full backup of its lineage"},
	{ReasonNewestIntact, true, "the newest full backup of its lineage that is not known to be broken"},
	{ReasonVerified, true, "the newest verified full backup of its lineage, or a delta backup after it"},
	{ReasonLatest, true, "needed for the latest state of a lineage"},
	{ReasonKeepAll, true, "younger than keepAll"},
	{ReasonWindow, true, "needed to restore revisions younger than keepAll"},
	{ReasonCount, true, "one of the newest full backups that count keeps, or a delta backup after it"},
	{ReasonHourly, true, "the last full backup of its hour"},
	{ReasonDaily, true, "the last full backup of its day"},
	{ReasonWeekly, true, "the last full backup of its week"},
	{ReasonMonthly, true, "the last full backup of its month"},
	{ReasonSpare, true, "the second-newest full backup of its lineage, in case the newest is bad, or a delta backup after it"},
	{ReasonNeeded, true, "the only full backup from which the delta backups after it can be restored"},
	{ReasonBroken, false, "broken, and intact ones are kept"},
	{ReasonOld, false, "no rule keeps it"},
	{ReasonUnused, false, "no full backup that is kept needs it"},
}

// Words describes the reason.
func (r Reason) Words() string {
	for _, known := range reasons {
		if known.reason == r {
			return known.words
		}
	}
	return string(r)
}
