package chain

import (
	"fmt"
	"math"
	"slices"
)

// GapError says that objects are missing between those that are there. It is an ErrGap.
type GapError struct {
	Lineage Lineage
	// From and To are the first and the last revision that no delta holds.
	From, To int64
	// Before and After are the keys of the objects on both sides.
	Before, After string
	// Instead says in words what can be restored.
	Instead string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%v: lineage %s has no delta that holds revisions %d to %d, between %s and %s; restorable are %s",
		ErrGap, e.Lineage, e.From, e.To, e.Before, e.After, e.Instead)
}

// Unwrap makes it an ErrGap.
func (e *GapError) Unwrap() error { return ErrGap }

// noWay says why a walk from the newest full that may be used did not lead to the limit.
func (c Catalog) noWay(h History, w walked, l limit) error {
	key, begins, more := h.beyond(w.reach, math.MaxInt64)
	if !more {
		return c.outside(h, l)
	}
	// A full holds its own revision, but not when that was written.
	to := max(begins-1, w.reach+1)
	before := w.full.Key
	if n := len(w.deltas); n > 0 {
		before = w.deltas[n-1].Key
	}
	return &GapError{Lineage: h.Lineage, From: w.reach + 1, To: to, Before: before, After: key, Instead: c.restorable()}
}

// outside says that h does not hold the limit.
func (c Catalog) outside(h History, l limit) error {
	if !l.until.IsZero() {
		return fmt.Errorf("%w: lineage %s does not hold the state at %s; restorable are %s", ErrOutside, h.Lineage, stamp(l.until), c.restorable())
	}
	var elsewhere string
	for _, other := range c.Histories {
		holds := func(r Range) bool { return r.From <= l.revision && l.revision <= r.To }
		if other.Lineage != h.Lineage && slices.ContainsFunc(other.Ranges(), holds) {
			elsewhere = fmt.Sprintf("; lineage %s has a revision of that number in another history: name that lineage to get it", other.Lineage)
		}
	}
	return fmt.Errorf("%w: lineage %s does not hold revision %d%s; restorable are %s", ErrOutside, h.Lineage, l.revision, elsewhere, c.restorable())
}
