package chain

import (
	"fmt"
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

// maxTold is how many ranges an error names.
const maxTold = 6

func (r Range) String() string {
	return fmt.Sprintf("revisions %d to %d (%s to %s)", r.From, r.To, stamp(r.Since), stamp(r.Until))
}

// restorable says in words what can be restored.
func (c Catalog) restorable() string {
	var told []string
	for _, h := range slices.Backward(c.Histories) {
		if r := h.restorable(); r != "" {
			told = append(told, r)
		}
	}
	if len(told) == 0 {
		return "none"
	}
	return strings.Join(told, "; ")
}

func (h History) restorable() string {
	ranges := h.Ranges()
	if len(ranges) == 0 {
		return ""
	}
	var told []string
	for _, r := range ranges[max(0, len(ranges)-maxTold):] {
		told = append(told, r.String())
	}
	more := ""
	if n := len(ranges) - len(told); n > 0 {
		more = fmt.Sprintf(" and %d older ranges", n)
	}
	return fmt.Sprintf("lineage %s %s%s", h.Lineage, strings.Join(told, ", "), more)
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
