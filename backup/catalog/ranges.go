package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Range is a sequence of states without a gap. Each revision from From to To and each moment from Since to Until can
// be restored. From is a lower bound, as is the revision of a full backup.
type Range struct {
	From  int64     `json:"from"`
	To    int64     `json:"to"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Ranges returns what can be restored of h, in order.
func (h History) Ranges() []Range {
	var ranges []Range
	h.Fulls, h.Deltas = inOrder(h.Fulls, compareFulls), inOrder(h.Deltas, compareDeltas)
	times := h.times()
	for i, f := range h.Fulls {
		if n := len(ranges); n > 0 && f.Revision <= ranges[n-1].To {
			ranges[n-1].Until = later(ranges[n-1].Until, times[i])
			continue
		}
		w := h.walk(f, times[i], unlimited)
		ranges = append(ranges, Range{From: f.Revision, To: w.reach, Since: times[i], Until: w.at})
	}
	return ranges
}

// Gap is a break in what can be restored of a history. It is not always a fault: if delta backups could not continue,
// the next full backup ends the gap.
type Gap struct {
	// From and To are the first and the last revision that no delta backup holds.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Next is the revision of the full backup that can be restored after the gap; 0 if there is none.
	Next int64 `json:"next,omitempty"`
}

// Gaps returns what is missing between the ranges of h, and between the last range and the objects after it.
func (h History) Gaps() []Gap {
	var gaps []Gap
	ranges := h.Ranges()
	for i, r := range ranges {
		_, begins, more := h.beyond(r.To, math.MaxInt64)
		if !more {
			break
		}
		// A full backup holds its own revision, but not when that was written.
		gap := Gap{From: r.To + 1, To: max(begins-1, r.To+1)}
		if i+1 < len(ranges) {
			gap.Next = ranges[i+1].From
		}
		gaps = append(gaps, gap)
	}
	return gaps
}

func (g Gap) String() string {
	if g.Next == 0 {
		return fmt.Sprintf("no delta backup holds revisions %d to %d: states after revision %d cannot be restored", g.From, g.To, g.From-1)
	}
	return fmt.Sprintf("no delta backup holds revisions %d to %d: states between revisions %d and %d cannot be restored", g.From, g.To, g.From-1, g.Next)
}

// maxReported limits the ranges that an error names.
const maxReported = 6

func (r Range) String() string {
	return fmt.Sprintf("revisions %d to %d (%s to %s)", r.From, r.To, timestamp(r.Since), timestamp(r.Until))
}

// restorable describes what can be restored.
func (c Catalog) restorable() string {
	var reported []string
	for _, h := range slices.Backward(c.Histories) {
		if r := h.restorable(); r != "" {
			reported = append(reported, r)
		}
	}
	if len(reported) == 0 {
		return "none"
	}
	return strings.Join(reported, "; ")
}

func (h History) restorable() string {
	ranges := h.Ranges()
	if len(ranges) == 0 {
		return ""
	}
	var reported []string
	for _, r := range ranges[max(0, len(ranges)-maxReported):] {
		reported = append(reported, r.String())
	}
	more := ""
	if n := len(ranges) - len(reported); n > 0 {
		more = fmt.Sprintf(" and %d older ranges", n)
	}
	return fmt.Sprintf("lineage %s %s%s", h.Lineage, strings.Join(reported, ", "), more)
}

func (c Catalog) lineages() string {
	names := make([]string, 0, len(c.Histories))
	for _, h := range c.Histories {
		names = append(names, string(h.Lineage))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (c Catalog) hasFull() bool {
	return slices.ContainsFunc(c.Histories, func(h History) bool { return len(h.Fulls) > 0 })
}

// timestamp formats a time as users write it on the command line.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// limit is where a walk stops: at a revision, or at the first delta backup that was closed at or after a time.
type limit struct {
	revision int64
	until    time.Time
}

// unlimited walks to the last delta backup.
var unlimited = limit{revision: math.MaxInt64}

func (l limit) reached(revision int64, at time.Time) bool {
	return revision >= l.revision || !l.until.IsZero() && !at.Before(l.until)
}

func (l limit) bounded() bool { return l.revision != math.MaxInt64 || !l.until.IsZero() }

// walked is an unbroken sequence: a full backup and the delta backups that follow it without a gap.
type walked struct {
	full   Full
	deltas []Delta
	// reach is the last revision of the sequence. at is the latest time at which it can have been written.
	reach int64
	at    time.Time
}

// walk follows the delta backups from full. At revision p it takes, among those with from ≤ p+1 ≤ to, the one with the
// largest to. No other choice reaches further. at is the time of full.
func (h History) walk(full Full, at time.Time, l limit) walked {
	w := walked{full: full, reach: full.Revision, at: at}
	deltas := inOrder(h.Deltas, compareDeltas)
	for !l.reached(w.reach, w.at) {
		var best *Delta
		for len(deltas) > 0 && deltas[0].From <= w.reach+1 {
			if best == nil || deltas[0].To >= best.To {
				best = &deltas[0]
			}
			deltas = deltas[1:]
		}
		if best == nil || best.To <= w.reach {
			break
		}
		w.deltas = append(w.deltas, *best)
		w.reach = best.To
		w.at = later(w.at, best.At)
	}
	return w
}

// times returns the times of h.Fulls, which must be sorted, made monotonic: none is before its predecessor, whatever
// the clocks of the writers said.
func (h History) times() []time.Time {
	times := make([]time.Time, len(h.Fulls))
	for i, f := range h.Fulls {
		times[i] = f.At
	}
	for _, d := range h.Deltas {
		i, _ := slices.BinarySearchFunc(h.Fulls, d.To, func(f Full, to int64) int { return cmp.Compare(f.Revision, to) })
		if i < len(times) {
			times[i] = later(times[i], d.At)
		}
	}
	for i := 1; i < len(times); i++ {
		times[i] = later(times[i], times[i-1])
	}
	return times
}

// beyond finds the first object that holds revisions after reach and begins at or before last. begins is the first
// revision that it holds; for a full backup that is its own revision.
func (h History) beyond(reach, last int64) (key string, begins int64, found bool) {
	consider := func(k string, b int64) {
		if b <= last && (!found || b < begins) {
			key, begins, found = k, b, true
		}
	}
	for _, d := range h.Deltas {
		if d.To > reach {
			consider(d.Key, d.From)
		}
	}
	for _, f := range h.Fulls {
		if f.Revision > reach {
			consider(f.Key, f.Revision)
		}
	}
	return key, begins, found
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
