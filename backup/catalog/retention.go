package catalog

import (
	"cmp"
	"slices"
	"time"
)

// Evidence is what verification found out about objects, by their keys. Nothing is known about objects in neither set.
type Evidence struct {
	// Verified full backups were restored, with the delta backups that follow, and compared equal.
	Verified map[string]bool
	// Broken objects cannot be read as what their names say.
	Broken map[string]bool
}

// Verdict is the decision of retention on one object.
type Verdict struct {
	Lineage Lineage   `json:"lineage"`
	Key     string    `json:"key"`
	At      time.Time `json:"at"`
	Size    int64     `json:"size"`
	Keep    bool      `json:"keep"`
	Reason  Reason    `json:"reason"`
}

// Retain decides for each full and delta backup of c whether it is kept, oldest first. Delete in that order: if the
// deletion stops early, what is kept is restorable as far as it will be at the end. Bootstrap records and unknown
// objects are never in the result.
//
// It deletes and counts only objects in the family of l: l, the lineages from which it forked, and other lineages of
// the same EtcdCluster, if the bootstrap record of l names one. All else belongs to another cluster and is kept.
// Without l, it applies the policy to each family separately and keeps what any of them keeps.
//
// Independent of the policy, it keeps each final backup, the newest full backup of each lineage, the two newest that
// are not broken, the newest verified one, and what leads from them to the latest state. One more full backup that is
// broken without being known as such costs no revision.
//
// now is the clock of the caller, limited by c.Newest if that is known. A clock that is ahead therefore deletes
// nothing early, and if no more backups are made, backups do not age.
func (c Catalog) Retain(l Lineage, p Policy, e Evidence, now time.Time) []Verdict {
	c = c.sorted()
	if !c.Newest.IsZero() && c.Newest.Before(now) {
		now = c.Newest
	}
	r := retention{c: c, sound: c.without(keysOf(e.Broken)), e: e, why: map[string]Reason{}}
	if p == (Policy{}) {
		r.keepEverything(ReasonNoPolicy)
		return r.verdicts()
	}
	r.keepAlways()
	if p.KeepAll > 0 {
		for _, h := range c.Histories {
			r.keepWindow(h, now.Add(-p.KeepAll))
		}
	}
	lines := c.descents(l)
	for _, line := range lines {
		r.keepFulls(p, line)
	}
	r.keepOthers(lines)
	return r.verdicts()
}

type retention struct {
	c Catalog
	// sound is c without broken objects.
	sound Catalog
	e     Evidence
	why   map[string]Reason
}

// keep records a reason, unless an earlier one in the order of reasons is recorded.
func (r *retention) keep(key string, reason Reason) {
	if old, kept := r.why[key]; !kept || rank(reason) < rank(old) {
		r.why[key] = reason
	}
}

func (r *retention) keepPlan(p Plan, reason Reason) {
	r.keep(p.Full.Key, reason)
	for _, d := range p.Deltas {
		r.keep(d.Key, reason)
	}
}

func (r *retention) keepEverything(reason Reason) {
	for _, h := range r.c.Histories {
		r.keepHistory(h, reason)
	}
}

func (r *retention) keepHistory(h History, reason Reason) {
	for _, f := range h.Fulls {
		r.keep(f.Key, reason)
	}
	for _, d := range h.Deltas {
		r.keep(d.Key, reason)
	}
}

// keepAlways keeps what every policy keeps.
func (r *retention) keepAlways() {
	for _, h := range r.c.Histories {
		r.keepLatest(h)
		r.keepFinals(h)
	}
	for _, h := range r.sound.Histories {
		r.keepSpare(h)
		r.keepVerified(h)
	}
}

// keepLatest keeps what the latest state of a lineage needs, with and without the broken objects. For a lineage
// without a full backup, that includes what it needs from its parent.
func (r *retention) keepLatest(h History) {
	if len(h.Fulls) == 0 {
		r.keepHistory(h, ReasonNoFull)
	} else {
		newest := h.Fulls[len(h.Fulls)-1]
		r.keep(newest.Key, ReasonNewest)
		if sound, _ := r.sound.History(h.Lineage); len(sound.Fulls) > 0 {
			newest = sound.Fulls[len(sound.Fulls)-1]
			r.keep(newest.Key, ReasonNewestIntact)
		}
		r.keepAfter(h, newest.Revision, ReasonLatest)
	}
	for _, c := range []Catalog{r.c, r.sound} {
		// If no plan exists, nothing more is needed than what is kept above.
		if p, err := c.Plan(Target{Lineage: h.Lineage}); err == nil {
			r.keepPlan(p, ReasonLatest)
		}
	}
}

// keepFinals keeps the final backups, also broken ones: only a user deletes them.
func (r *retention) keepFinals(h History) {
	for _, f := range h.Fulls {
		if f.Final {
			r.keep(f.Key, ReasonFinal)
		}
	}
}

// keepAfter keeps all delta backups that hold something after a revision. It keeps superfluous ones too, because one
// of the others may turn out to be broken.
func (r *retention) keepAfter(h History, revision int64, reason Reason) {
	for _, d := range h.Deltas {
		if d.To > revision {
			r.keep(d.Key, reason)
		}
	}
}

// keepSpare keeps the second-newest full backup of the intact ones, and what follows it, because the newest may turn
// out not to be restorable.
func (r *retention) keepSpare(h History) {
	if n := len(h.Fulls); n > 1 {
		r.keepFrom(h.Fulls[n-2], ReasonSpare)
	}
}

func (r *retention) keepVerified(h History) {
	for _, f := range slices.Backward(h.Fulls) {
		if r.e.Verified[f.Key] {
			r.keepFrom(f, ReasonVerified)
			return
		}
	}
}

// keepFrom keeps a full backup and the delta backups after it, also broken ones.
func (r *retention) keepFrom(f Full, reason Reason) {
	r.keep(f.Key, reason)
	h, _ := r.c.History(f.Lineage)
	r.keepAfter(h, f.Revision, reason)
}

// keepWindow keeps what is younger than start, and what is needed to restore it.
func (r *retention) keepWindow(h History, start time.Time) {
	for _, f := range h.Fulls {
		if !f.At.Before(start) {
			r.keep(f.Key, ReasonKeepAll)
		}
	}
	for _, d := range h.Deltas {
		if !d.At.Before(start) {
			r.keep(d.Key, ReasonKeepAll)
		}
	}
	for _, c := range []Catalog{r.c, r.sound} {
		if h, found := c.History(h.Lineage); found {
			r.keepWay(h, start)
		}
	}
}

// keepWay keeps the full backup with which the plan for start begins, and all that follows it. If no plan leads to
// start, older objects do not lead to a younger state either.
func (r *retention) keepWay(h History, start time.Time) {
	p, err := r.c.planIn(h, limit{revision: unlimited.revision, until: start}, false)
	// A lineage that ended before start has nothing in the window.
	if last, _ := h.ended(); err != nil || last.Before(start) {
		return
	}
	r.keep(p.Full.Key, ReasonWindow)
	r.keepAfter(h, p.Full.Revision, ReasonWindow)
}

// ended returns the time of the last object of a lineage.
func (h History) ended() (at time.Time, ok bool) {
	for _, f := range h.Fulls {
		at, ok = later(at, f.At), true
	}
	for _, d := range h.Deltas {
		at, ok = later(at, d.At), true
	}
	return at, ok
}

// keepOthers keeps the histories that are in none of the families.
func (r *retention) keepOthers(lines []lineageFamily) {
	for _, h := range r.c.Histories {
		if !slices.ContainsFunc(lines, func(line lineageFamily) bool { return line[h.Lineage] }) {
			r.keepHistory(h, ReasonOther)
		}
	}
}

// keepFulls keeps what the policy counts: full backups that are not known to be broken, the newest first, over all
// lineages of a family. It also keeps the delta backups after those that Count keeps.
func (r *retention) keepFulls(p Policy, line lineageFamily) {
	var fulls []Full
	for _, h := range slices.Backward(r.sound.Histories) {
		if !line[h.Lineage] {
			continue
		}
		for _, f := range slices.Backward(h.Fulls) {
			fulls = append(fulls, f)
		}
	}
	oldest := map[Lineage]Full{}
	for _, f := range fulls[:min(p.Count, len(fulls))] {
		r.keep(f.Key, ReasonCount)
		oldest[f.Lineage] = f
	}
	for _, f := range oldest {
		r.keepFrom(f, ReasonCount)
	}
	for _, rule := range p.periods() {
		had := map[string]bool{}
		for _, f := range fulls {
			if name := rule.of(f.At); len(had) < rule.n && !had[name] {
				had[name] = true
				r.keep(f.Key, rule.reason)
			}
		}
	}
}

func (r *retention) verdicts() []Verdict {
	var verdicts []Verdict
	add := func(l Lineage, key string, at time.Time, size int64, otherwise Reason) {
		reason, keep := r.why[key]
		switch {
		case keep:
		case r.e.Broken[key]:
			reason = ReasonBroken
		default:
			reason = otherwise
		}
		verdicts = append(verdicts, Verdict{Lineage: l, Key: key, At: at, Size: size, Keep: keep, Reason: reason})
	}
	for _, h := range r.c.Histories {
		deltas := slices.SortedFunc(slices.Values(h.Deltas), func(a, b Delta) int { return cmp.Or(cmp.Compare(a.To, b.To), compareDeltas(a, b)) })
		for _, f := range inOrder(h.Fulls, compareFulls) {
			for len(deltas) > 0 && deltas[0].To <= f.Revision {
				add(h.Lineage, deltas[0].Key, deltas[0].At, deltas[0].Size, ReasonUnused)
				deltas = deltas[1:]
			}
			add(h.Lineage, f.Key, f.At, f.Size, ReasonOld)
		}
		for _, d := range deltas {
			add(h.Lineage, d.Key, d.At, d.Size, ReasonUnused)
		}
	}
	return verdicts
}

func rank(r Reason) int {
	for i, known := range reasons {
		if known.reason == r {
			return i
		}
	}
	return len(reasons)
}

func keysOf(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k, in := range set {
		if in {
			keys = append(keys, k)
		}
	}
	return keys
}

// Needed reports why a full backup must not be deleted on request: retention keeps it under every policy, it belongs
// to another cluster, or there are revisions that can be restored only from it. Without such a reason, deleting it
// loses only its own state. A key that is not in the catalog belongs to another cluster.
//
// l is the lineage of the cluster that requests the deletion, as in Retain.
func (c Catalog) Needed(l Lineage, key string, e Evidence) (reason Reason, needed bool) {
	c = c.sorted()
	r := retention{c: c, sound: c.without(keysOf(e.Broken)), e: e, why: map[string]Reason{key: ReasonOther}}
	at := slices.IndexFunc(c.Histories, func(h History) bool {
		return slices.ContainsFunc(h.Fulls, func(f Full) bool { return f.Key == key })
	})
	if at >= 0 && c.lineageFamily(l)[c.Histories[at].Lineage] {
		delete(r.why, key)
	}
	r.keepAlways()
	if !e.Broken[key] {
		r.keepNeeded(c, key)
		r.keepNeeded(r.sound, key)
	}
	reason, needed = r.why[key]
	return reason, needed
}

// keepNeeded keeps a full backup that delta backups continue, unless an older one leads to the same revision. A newer
// one is not enough: it may hold more than its name says.
func (r *retention) keepNeeded(c Catalog, key string) {
	for _, h := range c.Histories {
		at := slices.IndexFunc(h.Fulls, func(f Full) bool { return f.Key == key })
		if at < 0 {
			continue
		}
		f := h.Fulls[at]
		reach := h.walk(f, f.At, unlimited).reach
		across := func(older Full) bool { return h.walk(older, older.At, unlimited).reach >= reach }
		if reach > f.Revision && !slices.ContainsFunc(h.Fulls[:at], across) {
			r.keep(key, ReasonNeeded)
		}
	}
}
