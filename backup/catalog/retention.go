package catalog

import (
	"cmp"
	"slices"
	"time"
)

// Evidence is what verification found out about objects, by their keys. What is in neither set is unknown.
type Evidence struct {
	// IsVerified fulls were restored, with what led on from them, and compared equal.
	IsVerified map[string]bool
	// Broken objects cannot be read as what they claim to be.
	Broken map[string]bool
}

// Verdict is what retention says of one object.
type Verdict struct {
	Lineage Lineage   `json:"lineage"`
	Key     string    `json:"key"`
	At      time.Time `json:"at"`
	Size    int64     `json:"size"`
	Keep    bool      `json:"keep"`
	Reason  Reason    `json:"reason"`
}

// Retain says of each full and delta of c whether it is kept, oldest first: in that order objects may be deleted, and
// wherever that ends, what is kept leads as far as it will in the end. Bootstraps and unknown objects are never among them.
//
// It lets go of the objects of l's line of descent alone, and counts those alone: l and what it descends from, and where
// l's bootstrap names an EtcdCluster, that one's other lineages. Everything else is another cluster's, and stays. Without l each
// line of descent is retained by itself; what one of them keeps is kept.
//
// Whatever the policy: the newest full of each lineage, the two newest ones there that are not broken, the newest proven
// one, and what leads from them to the latest state stay, and each final full. One bad full more than is known costs no revision.
//
// now is the caller's clock, and no later than c.Newest where that is known: a clock that is ahead deletes nothing early,
// and where nothing is saved any more nothing gets old.
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
	for _, h := range c.Histories {
		r.keepLatest(h)
		r.keepFinals(h)
	}
	for _, h := range r.sound.Histories {
		r.keepSpare(h)
		r.keepVerified(h)
	}
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
	// sound is c without what is broken.
	sound Catalog
	e     Evidence
	why   map[string]Reason
}

// keep notes a reason, unless one that comes earlier is noted.
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

// keepLatest keeps what the latest state of a lineage needs, with what is broken and without it: also what a lineage
// without a full has from its parent.
func (r *retention) keepLatest(h History) {
	if len(h.Fulls) == 0 {
		r.keepHistory(h, ReasonNoFull)
	} else {
		newest := h.Fulls[len(h.Fulls)-1]
		r.keep(newest.Key, ReasonNewest)
		if sound, _ := r.sound.History(h.Lineage); len(sound.Fulls) > 0 {
			newest = sound.Fulls[len(sound.Fulls)-1]
			r.keep(newest.Key, ReasonSound)
		}
		r.keepAfter(h, newest.Revision, ReasonLatest)
	}
	for _, c := range []Catalog{r.c, r.sound} {
		// What cannot be planned now needs nothing more than is kept above.
		if p, err := c.Plan(Target{Lineage: h.Lineage}); err == nil {
			r.keepPlan(p, ReasonLatest)
		}
	}
}

// keepFinals keeps the final fulls, also one that is known to be broken: of what a person asked to be kept, a person decides.
func (r *retention) keepFinals(h History) {
	for _, f := range h.Fulls {
		if f.Final {
			r.keep(f.Key, ReasonFinal)
		}
	}
}

// keepAfter keeps all deltas that hold something beyond a revision, also those that others make superfluous: one of the
// others may turn out to be broken.
func (r *retention) keepAfter(h History, revision int64, reason Reason) {
	for _, d := range h.Deltas {
		if d.To > revision {
			r.keep(d.Key, reason)
		}
	}
}

// keepSpare keeps the second-newest full of a sound history, and what leads on from it: no one knows that the newest full
// can be restored before it was.
func (r *retention) keepSpare(h History) {
	if n := len(h.Fulls); n > 1 {
		r.keepFrom(h.Fulls[n-2], ReasonSpare)
	}
}

func (r *retention) keepVerified(h History) {
	for _, f := range slices.Backward(h.Fulls) {
		if r.e.IsVerified[f.Key] {
			r.keepFrom(f, ReasonVerified)
			return
		}
	}
}

// keepFrom keeps a full, and the deltas after it: also those that are known to be broken, as after the newest full.
func (r *retention) keepFrom(f Full, reason Reason) {
	r.keep(f.Key, reason)
	h, _ := r.c.History(f.Lineage)
	r.keepAfter(h, f.Revision, reason)
}

// keepWindow keeps what is younger than start, and what leads into it.
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

// keepWay keeps the full that the plan for start begins with, and all that follows it. Where nothing leads to start, what
// is older leads to nothing younger either.
func (r *retention) keepWay(h History, start time.Time) {
	p, err := r.c.planIn(h, limit{revision: unlimited.revision, until: start}, false)
	// Of a lineage that ended before start nothing is in the window.
	if last, _ := h.ended(); err != nil || last.Before(start) {
		return
	}
	r.keep(p.Full.Key, ReasonWindow)
	r.keepAfter(h, p.Full.Revision, ReasonWindow)
}

// ended is the time of a lineage's last object.
func (h History) ended() (at time.Time, ok bool) {
	for _, f := range h.Fulls {
		at, ok = later(at, f.At), true
	}
	for _, d := range h.Deltas {
		at, ok = later(at, d.At), true
	}
	return at, ok
}

// keepOthers keeps the histories that are in none of the lines.
func (r *retention) keepOthers(lines []lineageFamily) {
	for _, h := range r.c.Histories {
		if !slices.ContainsFunc(lines, func(line lineageFamily) bool { return line[h.Lineage] }) {
			r.keepHistory(h, ReasonOther)
		}
	}
}

// keepFulls keeps what the policy counts: fulls that are not known to be broken, the newest first, over all lineages of a
// line. With those that Count keeps go the deltas after them.
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

// Needed says why a full is not to be deleted although someone asks for that: it is what retention keeps whatever its policy
// is, another cluster's, or deltas lead to what they hold from no other full. Without such a reason nothing but the full's own
// state is lost with it. A key that is no taken full's is another cluster's.
//
// l is the lineage of the cluster that asks, as in Retain.
func (c Catalog) Needed(l Lineage, key string, e Evidence) (reason Reason, needed bool) {
	c = c.sorted()
	r := retention{c: c, sound: c.without(keysOf(e.Broken)), e: e, why: map[string]Reason{key: ReasonOther}}
	at := slices.IndexFunc(c.Histories, func(h History) bool {
		return slices.ContainsFunc(h.Fulls, func(f Full) bool { return f.Key == key })
	})
	if at >= 0 && c.lineageFamily(l)[c.Histories[at].Lineage] {
		delete(r.why, key)
	}
	for _, h := range c.Histories {
		r.keepLatest(h)
		r.keepFinals(h)
	}
	for _, h := range r.sound.Histories {
		r.keepSpare(h)
		r.keepVerified(h)
	}
	if !e.Broken[key] {
		r.keepNeeded(c, key)
		r.keepNeeded(r.sound, key)
	}
	reason, needed = r.why[key]
	return reason, needed
}

// keepNeeded keeps a full that deltas lead on from, unless an older one leads across it. A newer one would not do: it may hold
// more than its name reports.
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
