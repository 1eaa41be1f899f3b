package catalog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// finishing is the tolerance for clocks: how far the clock of the agent that took a full backup may differ from the
// clocks behind the times of the target and the delta backups, and how long a watch may lag. A full backup may hold
// more than its name says, up to its time. One that is this close to a target is used only if no older one leads
// there, because the restore would have to remove newer revisions from it, which is not always possible.
const finishing = time.Minute

// Plan finds what leads to the target: the newest full backup at or before it and the delta backups after that. If
// objects are missing in between, it returns a GapError, never a shorter plan.
//
// The revision of a full backup is a lower bound. If the restore finds that the plan's full backup holds more than the
// target or that an object is broken, plan again for t.Except(key): the plan then uses the next older full backup.
func (c Catalog) Plan(t Target) (Plan, error) {
	if err := t.check(); err != nil {
		return Plan{}, err
	}
	c = c.without(t.Without).sorted()
	if t.Name != "" {
		return c.planName(t)
	}
	s, notes, err := c.locate(t)
	if err != nil {
		return Plan{}, err
	}
	l := limit{revision: s.cut, until: t.Time}
	if t.Revision != 0 {
		l.revision = t.Revision
	}
	p, err := c.planIn(s.history, l, t.Revision != 0)
	if err != nil {
		return Plan{}, err
	}
	if latest := t.Revision == 0 && t.Time.IsZero(); latest && s.cut != math.MaxInt64 && p.Reach < s.cut {
		notes = append(notes, fmt.Sprintf("revisions %d to %d, up to the fork, were not saved", p.Reach+1, s.cut))
	}
	p.Notes = append(notes, p.Notes...)
	if !t.Time.IsZero() {
		p.Notes = append(p.Notes, c.ahead(p)...)
	}
	return p, nil
}

// ahead returns a note for each object of a plan that was written with a clock that was ahead. Nothing more precise is
// known about its time.
func (c Catalog) ahead(p Plan) (notes []string) {
	note := func(key string, said, at time.Time) {
		if said.After(at) {
			notes = append(notes, fmt.Sprintf("the name of %s gives the time %s, but the store had it at %s: the clock of the writer was ahead, so the "+
				"restore uses the second time for all that it holds", key, timestamp(said), timestamp(at)))
		}
	}
	if f, ok := ParseFull(c.Prefix, p.Full.Key); ok {
		note(f.Key, f.At, p.Full.At)
	}
	for _, d := range p.Deltas {
		if named, ok := ParseDelta(c.Prefix, d.Key); ok {
			note(d.Key, named.At, d.At)
		}
	}
	return notes
}

func (t Target) check() error {
	var given []string
	for name, set := range map[string]bool{"revision": t.Revision != 0, "time": !t.Time.IsZero(), "name": t.Name != ""} {
		if set {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	switch {
	case len(given) > 1:
		return fmt.Errorf("%w: %s are set: specify only one", ErrTarget, strings.Join(given, " and "))
	case t.Revision < 0:
		return fmt.Errorf("%w: revision %d is invalid: want 1 or more", ErrTarget, t.Revision)
	}
	return nil
}

// planIn plans within one history. With exact, the plan must reach the revision of the limit; otherwise the end of the
// history is enough.
func (c Catalog) planIn(h History, l limit, exact bool) (Plan, error) {
	var best *walked
	times := h.times()
	for i, f := range slices.Backward(h.Fulls) {
		if f.Revision > l.revision || !l.until.IsZero() && times[i].After(l.until) {
			continue
		}
		w := h.walk(f, times[i], l)
		if !h.leads(w, l, exact) {
			if best == nil {
				return Plan{}, c.noPath(h, w, l)
			}
			break
		}
		if best == nil {
			best = &w
		}
		if isBefore(w, l) {
			best = &w
			break
		}
	}
	if best == nil {
		return Plan{}, c.outside(h, l)
	}
	p := Plan{Full: best.full, Deltas: best.deltas, Until: l.until, Reach: min(best.reach, l.revision)}
	if l.revision != math.MaxInt64 {
		p.Revision = l.revision
	}
	if !l.until.IsZero() && !l.reached(best.reach, best.at) {
		p.Notes = []string{fmt.Sprintf("the backups end with revision %d at %s: writes after that, until %s, are missing",
			best.reach, timestamp(best.at), timestamp(l.until))}
	}
	return p, nil
}

// leads reports whether a walk reached the limit, or the end of what the history has before it.
func (h History) leads(w walked, l limit, exact bool) bool {
	if l.reached(w.reach, w.at) {
		return true
	}
	_, _, more := h.beyond(w.reach, l.revision)
	return !exact && !more
}

// isBefore reports whether a full backup was made long enough before the limit to hold nothing beyond it.
func isBefore(w walked, l limit) bool {
	if !l.bounded() {
		return true
	}
	from := w.full.At.Add(finishing)
	if !l.until.IsZero() {
		return !l.until.Before(from)
	}
	return slices.ContainsFunc(w.deltas, func(d Delta) bool { return d.To <= l.revision && !d.At.Before(from) })
}

// planName plans a full backup alone, or up to the end of a delta backup.
func (c Catalog) planName(t Target) (Plan, error) {
	var fulls []Full
	var deltas []Delta
	var keys []string
	for _, h := range c.Histories {
		if t.Lineage != "" && t.Lineage != h.Lineage {
			continue
		}
		for _, f := range h.Fulls {
			if isNamed(f.Key, t.Name) {
				fulls, keys = append(fulls, f), append(keys, f.Key)
			}
		}
		for _, d := range h.Deltas {
			if isNamed(d.Key, t.Name) {
				deltas, keys = append(deltas, d), append(keys, d.Key)
			}
		}
	}
	switch {
	case len(keys) == 0:
		return Plan{}, fmt.Errorf("%w: no full or delta backup below %q has the name %q", ErrUnknown, c.Prefix, t.Name)
	case len(keys) > 1:
		return Plan{}, fmt.Errorf("%w: %q matches %s: specify more of the name", ErrAmbiguous, t.Name, strings.Join(keys, " and "))
	case len(fulls) == 1:
		return Plan{Full: fulls[0], Reach: fulls[0].Revision}, nil
	}
	h, _ := c.History(deltas[0].Lineage)
	return c.planIn(h, limit{revision: deltas[0].To}, true)
}

// isNamed reports whether name is key, or complete path elements at its end.
func isNamed(key, name string) bool { return key == name || strings.HasSuffix(key, "/"+name) }

// without returns a copy of c without some full and delta backups.
func (c Catalog) without(keys []string) Catalog {
	if len(keys) == 0 {
		return c
	}
	out := map[string]bool{}
	for _, key := range keys {
		out[key] = true
	}
	c.Histories = slices.Clone(c.Histories)
	for i, h := range c.Histories {
		c.Histories[i].Fulls = slices.DeleteFunc(slices.Clone(h.Fulls), func(f Full) bool { return out[f.Key] })
		c.Histories[i].Deltas = slices.DeleteFunc(slices.Clone(h.Deltas), func(d Delta) bool { return out[d.Key] })
	}
	return c
}

// Target is the state to restore. The zero value is the latest state.
type Target struct {
	// Revision is the last one that is to be there; 0 does not say.
	Revision int64
	// Time is the moment to restore; zero means not given.
	Time time.Time
	// Name is the key of a full or delta backup, or as much of its end as is unique. A full backup is restored alone,
	// a delta backup up to its last revision.
	Name string
	// Lineage wins over what Revision or Time would find by themselves; empty does not say.
	Lineage Lineage
	// Without are the keys of objects that the plan must not use, because they are broken or hold more than their name
	// says. If it has the full backup of a plan, the next plan uses the next older one.
	Without []string
}

// Except returns t without one more object.
func (t Target) Except(key string) Target {
	t.Without = append(slices.Clone(t.Without), key)
	return t
}

// Plan is what to restore: a full backup, and delta backups in their order. The first of them holds or follows the
// revision after that of the full backup.
type Plan struct {
	Full   Full    `json:"full"`
	Deltas []Delta `json:"deltas,omitempty"`
	// Revision is the last revision to apply; 0 means all that the objects hold.
	Revision int64 `json:"revision,omitempty"`
	// Until is the last moment to apply; zero means all that the objects hold.
	Until time.Time `json:"until,omitzero"`
	// Reach is the last revision according to the names of the objects, limited by Revision. A full backup may hold a
	// little more.
	Reach int64 `json:"reach"`
	// Notes are sentences that the user must see before a restore.
	Notes []string `json:"notes,omitempty"`
}

// Why there is no plan.
var (
	// ErrEmpty: there is no full backup.
	ErrEmpty = errors.New("nothing to restore")
	// ErrUnknown: no lineage or object has this name.
	ErrUnknown = errors.New("no such backup")
	// ErrOutside: no backup holds that state.
	ErrOutside = errors.New("not in the backups")
	// ErrGap: objects between the existing ones are missing; see GapError.
	ErrGap = errors.New("gap in the backups")
	// ErrAmbiguous: more than one object or history matches.
	ErrAmbiguous = errors.New("more than one backup matches")
	// ErrTarget: the target is contradictory.
	ErrTarget = errors.New("target")
)

// GapError means that objects between the existing ones are missing. It is an ErrGap.
type GapError struct {
	Lineage Lineage
	// From and To are the first and the last revision that no delta backup holds.
	From, To int64
	// Before and After are the keys of the objects on both sides of the gap.
	Before, After string
	// Instead describes what can be restored.
	Instead string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%v: lineage %s has no delta backup with revisions %d to %d, between %s and %s; restorable: %s",
		ErrGap, e.Lineage, e.From, e.To, e.Before, e.After, e.Instead)
}

// Unwrap makes it an ErrGap.
func (e *GapError) Unwrap() error { return ErrGap }

// noPath explains why a walk from the newest usable full backup did not reach the limit.
func (c Catalog) noPath(h History, w walked, l limit) error {
	key, begins, more := h.beyond(w.reach, math.MaxInt64)
	if !more {
		return c.outside(h, l)
	}
	// A full backup holds its own revision, but not when that was written.
	to := max(begins-1, w.reach+1)
	before := w.full.Key
	if n := len(w.deltas); n > 0 {
		before = w.deltas[n-1].Key
	}
	return &GapError{Lineage: h.Lineage, From: w.reach + 1, To: to, Before: before, After: key, Instead: c.restorable()}
}

// outside returns the error for a limit that h does not hold.
func (c Catalog) outside(h History, l limit) error {
	if !l.until.IsZero() {
		return fmt.Errorf("%w: lineage %s does not hold the state at %s; restorable: %s", ErrOutside, h.Lineage, timestamp(l.until), c.restorable())
	}
	var elsewhere string
	for _, other := range c.Histories {
		holds := func(r Range) bool { return r.From <= l.revision && l.revision <= r.To }
		if other.Lineage != h.Lineage && slices.ContainsFunc(other.Ranges(), holds) {
			elsewhere = fmt.Sprintf("; lineage %s has a revision with this number in another history: to restore that, specify the lineage", other.Lineage)
		}
	}
	return fmt.Errorf("%w: lineage %s does not hold revision %d%s; restorable: %s", ErrOutside, h.Lineage, l.revision, elsewhere, c.restorable())
}
