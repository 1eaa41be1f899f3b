package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// segment is the part of a history up to a revision.
type segment struct {
	history History
	// cut is the last revision of the segment, where another lineage forked, or math.MaxInt64.
	cut int64
	// forked is the lineage that forked at cut.
	forked Lineage
}

// line returns the history of a lineage back to its beginning: its own segment, that of its parent up to the fork, and
// so on. It ends at a lineage without a known bootstrap or whose parent is not in the catalog.
func (c Catalog) line(h History) []segment {
	line := []segment{{history: h, cut: math.MaxInt64}}
	seen := map[Lineage]bool{h.Lineage: true}
	for {
		last := line[len(line)-1]
		formation := last.history.Formation
		if formation == nil || formation.Parent == "" || seen[formation.Parent] {
			return line
		}
		parent, found := c.History(formation.Parent)
		if !found {
			return line
		}
		seen[formation.Parent] = true
		line = append(line, segment{history: parent, cut: min(last.cut, formation.Fork), forked: last.history.Lineage})
	}
}

// fork returns the last revision that h has from its parent.
func (h History) fork() int64 {
	if h.Formation == nil {
		return 0
	}
	return h.Formation.Fork
}

// wasFormed returns when h began: as its bootstrap record says, or when its first object was made if that was earlier. The clock of the
// writer of the record was ahead then. ok is false if neither is known.
func (h History) wasFormed() (at time.Time, ok bool) {
	if h.Formation != nil {
		at, ok = h.Formation.Created, true
	}
	for _, f := range h.Fulls {
		if !ok || f.At.Before(at) {
			at, ok = f.At, true
		}
	}
	for _, d := range h.Deltas {
		if !ok || d.At.Before(at) {
			at, ok = d.At, true
		}
	}
	return at, ok
}

// segmentFor finds the segment of a line that holds the target. found is false for the latest state of a line without
// a full backup.
func segmentFor(line []segment, t Target) (s segment, found bool) {
	for _, s := range line {
		var here bool
		switch {
		case t.Revision != 0:
			here = t.Revision > s.history.fork() || s.history.Formation == nil
		case !t.Time.IsZero():
			wasFormed, known := s.history.wasFormed()
			here = !known || !t.Time.Before(wasFormed)
		default:
			here = s.hasFull()
		}
		if here {
			return s, true
		}
	}
	// The target is older than the oldest known bootstrap: planning in the oldest segment reports what is available.
	return line[len(line)-1], t.Revision != 0 || !t.Time.IsZero()
}

func (s segment) hasFull() bool {
	return slices.ContainsFunc(s.history.Fulls, func(f Full) bool { return f.Revision <= s.cut })
}

// locate finds the segment for a target without a name. It prefers the newest history, and of two with the same epoch
// the one that has a full backup.
func (c Catalog) locate(t Target) (segment, []string, error) {
	if t.Lineage != "" {
		h, found := c.History(t.Lineage)
		if !found {
			return segment{}, nil, fmt.Errorf("%w: lineage %s; the store has %s", ErrUnknown, t.Lineage, c.lineages())
		}
		line := c.line(h)
		s, found := segmentFor(line, t)
		if !found {
			return segment{}, nil, fmt.Errorf("%w: lineage %s and its parents have no full backup", ErrEmpty, t.Lineage)
		}
		return s, noteParent(h, s), nil
	}
	var notes []string
	for _, group := range c.heads(t) {
		s, note, err := c.locateIn(group, t)
		if err != nil {
			return segment{}, nil, err
		}
		notes = append(notes, note...)
		if s != nil {
			return *s, notes, nil
		}
	}
	if !t.Time.IsZero() && c.hasFull() {
		return segment{}, nil, fmt.Errorf("%w: %s is before the first backup; restorable: %s", ErrOutside, timestamp(t.Time), c.restorable())
	}
	return segment{}, nil, fmt.Errorf("%w: no full backup below %q", ErrEmpty, c.Prefix)
}

// locateIn searches the histories of one epoch. It returns nil if none of them holds the target.
func (c Catalog) locateIn(group []History, t Target) (*segment, []string, error) {
	full := slices.DeleteFunc(slices.Clone(group), func(h History) bool { return len(h.Fulls) == 0 })
	if len(full) == 0 {
		full = group
	}
	var at *segment
	var notes []string
	for _, h := range full {
		s, found := segmentFor(c.line(h), t)
		switch {
		case !found:
			notes = append(notes, noteWithout(h))
		case at == nil:
			at = &s
			notes = append(notes, noteParent(h, s)...)
		case at.history.Lineage != s.history.Lineage || at.cut != s.cut:
			return nil, nil, fmt.Errorf("%w: lineages %s and %s have the same epoch, and the records do not say which one belongs to the cluster; "+
				"specify the lineage; restorable: %s",
				ErrAmbiguous, full[0].Lineage, h.Lineage, c.restorable())
		}
	}
	for _, h := range group {
		if at != nil && len(full) < len(group) && len(h.Fulls) == 0 {
			notes = append(notes, fmt.Sprintf("lineage %s has the same epoch but no full backup, and is not used", h.Lineage))
		}
	}
	return at, notes, nil
}

// heads returns the histories that may hold a target, grouped by epoch, the newest first. A time belongs to the
// history that was the last to be formed before it.
func (c Catalog) heads(t Target) [][]History {
	var groups [][]History
	for _, h := range slices.Backward(c.Histories) {
		wasFormed, known := h.wasFormed()
		if !t.Time.IsZero() && (!known || t.Time.Before(wasFormed)) {
			continue
		}
		if n := len(groups); n > 0 && groups[n-1][0].Lineage.Epoch() == h.Lineage.Epoch() {
			groups[n-1] = append(groups[n-1], h)
			continue
		}
		groups = append(groups, []History{h})
	}
	for _, g := range groups {
		slices.SortFunc(g, func(a, b History) int { return cmp.Compare(a.Lineage, b.Lineage) })
	}
	return groups
}

func noteWithout(h History) string {
	if h.Formation != nil && h.Formation.Parent == "" {
		return fmt.Sprintf("lineage %s is newer, started without data, and has no full backup yet", h.Lineage)
	}
	return fmt.Sprintf("lineage %s is newer and has no full backup yet; it is not known at which revision it forked", h.Lineage)
}

func noteParent(asked History, s segment) []string {
	if asked.Lineage == s.history.Lineage {
		return nil
	}
	if len(asked.Fulls) == 0 {
		return []string{fmt.Sprintf("lineage %s has no full backup yet: this restores lineage %s up to revision %d, where %s forked", asked.Lineage,
			s.history.Lineage, s.cut, s.forked)}
	}
	return []string{fmt.Sprintf("this state is older than lineage %s: it is from lineage %s", asked.Lineage, s.history.Lineage)}
}

// lineageFamily is the set of all lineages that one cluster has and had, with the lineages from which they forked.
type lineageFamily map[Lineage]bool

// descents returns the family of l. Without l it returns each family that is not part of another one.
func (c Catalog) descents(l Lineage) []lineageFamily {
	if l != "" {
		return []lineageFamily{c.lineageFamily(l)}
	}
	var lines []lineageFamily
	for _, h := range c.Histories {
		line := c.lineageFamily(h.Lineage)
		if slices.ContainsFunc(lines, line.within) {
			continue
		}
		lines = append(slices.DeleteFunc(lines, func(old lineageFamily) bool { return old.within(line) }), line)
	}
	return lines
}

// lineageFamily returns the family of l. It is empty if the catalog does not have l, and l alone if its bootstrap
// record cannot be read.
func (c Catalog) lineageFamily(l Lineage) lineageFamily {
	line := lineageFamily{}
	self, found := c.History(l)
	if !found {
		return line
	}
	for _, h := range c.Histories {
		if h.Lineage != l && !sameCluster(h, self) {
			continue
		}
		for _, s := range c.line(h) {
			line[s.history.Lineage] = true
		}
	}
	return line
}

func sameCluster(a, b History) bool {
	return a.Formation != nil && b.Formation != nil && a.Formation.ClusterUID != "" && a.Formation.ClusterUID == b.Formation.ClusterUID
}

func (d lineageFamily) within(other lineageFamily) bool {
	for l := range d {
		if !other[l] {
			return false
		}
	}
	return true
}
