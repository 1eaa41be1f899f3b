package chain

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Range is a run of states without a gap: each revision from From to To can be restored, and each moment from Since to
// Until. From is a lower bound, as a full's revision is.
type Range struct {
	From  int64     `json:"from"`
	To    int64     `json:"to"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Ranges are what can be restored of h, in order.
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

// Gap is a break in what can be restored of a history. It may be legal: a full ends it where deltas could not be continued.
type Gap struct {
	// From and To are the first and the last revision that no delta holds.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Next is the revision of the full that can be restored after it; 0: there is none.
	Next int64 `json:"next,omitempty"`
}

// Gaps are what is missing between the ranges of h, and between the last one and what is there beyond it.
func (h History) Gaps() []Gap {
	var gaps []Gap
	ranges := h.Ranges()
	for i, r := range ranges {
		_, begins, more := h.beyond(r.To, math.MaxInt64)
		if !more {
			break
		}
		// A full holds its own revision, but not when that was written.
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
		return fmt.Sprintf("no delta holds revisions %d to %d: no state after revision %d can be restored", g.From, g.To, g.From-1)
	}
	return fmt.Sprintf("no delta holds revisions %d to %d: no state between revisions %d and %d can be restored", g.From, g.To, g.From-1, g.Next)
}

// maxTold is how many ranges an error names.
const maxReported = 6

func (r Range) String() string {
	return fmt.Sprintf("revisions %d to %d (%s to %s)", r.From, r.To, stamp(r.Since), stamp(r.Until))
}

// restorable says in words what can be restored.
func (c Catalog) restorable() string {
	var notified []string
	for _, h := range slices.Backward(c.Histories) {
		if r := h.restorable(); r != "" {
			notified = append(notified, r)
		}
	}
	if len(notified) == 0 {
		return "none"
	}
	return strings.Join(notified, "; ")
}

func (h History) restorable() string {
	ranges := h.Ranges()
	if len(ranges) == 0 {
		return ""
	}
	var notified []string
	for _, r := range ranges[max(0, len(ranges)-maxReported):] {
		notified = append(notified, r.String())
	}
	more := ""
	if n := len(ranges) - len(notified); n > 0 {
		more = fmt.Sprintf(" and %d older ranges", n)
	}
	return fmt.Sprintf("lineage %s %s%s", h.Lineage, strings.Join(notified, ", "), more)
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

// stamp writes a time as people give it to the command line, too.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
