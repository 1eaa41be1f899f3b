package catalog

import (
	"errors"
	"fmt"
	"time"
)

// Policy says which backups retention keeps. The rules add up: what one of them keeps is kept. The empty policy keeps
// everything.
type Policy struct {
	// KeepAll is for how long each revision stays restorable.
	KeepAll time.Duration `json:"keepAll,omitempty"`
	// Hourly, Daily, Weekly and Monthly keep the last full of each of that many hours, days, weeks and months, in UTC,
	// that have one.
	Hourly  int `json:"hourly,omitempty"`
	Daily   int `json:"daily,omitempty"`
	Weekly  int `json:"weekly,omitempty"`
	Monthly int `json:"monthly,omitempty"`
	// Count keeps the newest fulls, with the deltas after the oldest of them.
	Count int `json:"count,omitempty"`
}

// Validate refuses negative numbers.
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

// period is a rule that keeps one full of each of the last n periods.
type period struct {
	reason Reason
	n      int
	// of names the period that a time is in.
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

// Reason is why retention keeps an object or lets it go.
type Reason string

// Why an object is kept. Of several reasons the first in this order is reported.
const (
	ReasonNoPolicy Reason = "no-policy"
	ReasonOther    Reason = "other-cluster"
	ReasonNoFull   Reason = "no-full"
	ReasonFinal    Reason = "final"
	ReasonNewest   Reason = "newest"
	ReasonSound    Reason = "newest-sound"
	ReasonVerified Reason = "newest-verified"
	ReasonLatest   Reason = "latest"
	ReasonKeepAll  Reason = "keep-all"
	ReasonWindow   Reason = "window"
	ReasonCount    Reason = "count"
	ReasonHourly   Reason = "hourly"
	ReasonDaily    Reason = "daily"
	ReasonWeekly   Reason = "weekly"
	ReasonMonthly  Reason = "monthly"
	ReasonSpare    Reason = "second-newest"
	ReasonNeeded   Reason = "needed"
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

// reasons are in the order in which they are reported, with the words for them.
var reasons = []knownReason{
	{ReasonNoPolicy, true, "the policy is empty: everything is kept"},
	{ReasonOther, true, "another cluster's"},
	{ReasonNoFull, true, "its lineage has no full: no one knows yet what will need it"},
	{ReasonFinal, true, "a final full: only a person deletes it, and not by retention"},
	{ReasonNewest, true, "the newest full of its lineage"},
	{ReasonSound, true, "the newest full of its lineage that is not known to be broken"},
	{ReasonVerified, true, "the newest full of its lineage that was verified, or what leads on from it"},
	{ReasonLatest, true, "leads to the latest state of a lineage"},
	{ReasonKeepAll, true, "younger than keepAll"},
	{ReasonWindow, true, "leads to revisions that are younger than keepAll"},
	{ReasonCount, true, "one of the newest fulls that count keeps, or what leads on from it"},
	{ReasonHourly, true, "the last full of its hour"},
	{ReasonDaily, true, "the last full of its day"},
	{ReasonWeekly, true, "the last full of its week"},
	{ReasonMonthly, true, "the last full of its month"},
	{ReasonSpare, true, "the full before the newest of its lineage, or what leads on from it: should the newest be bad"},
	{ReasonNeeded, true, "the only full from which deltas after it lead to what they hold"},
	{ReasonBroken, false, "broken, and sound ones are kept"},
	{ReasonOld, false, "no rule keeps it"},
	{ReasonUnused, false, "leads from no full that is kept to anything that is kept"},
}

// Words say what a reason means.
func (r Reason) Words() string {
	for _, known := range reasons {
		if known.reason == r {
			return known.words
		}
	}
	return string(r)
}
