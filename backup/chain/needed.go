package chain

import "slices"

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
	if at >= 0 && c.descent(l)[c.Histories[at].Lineage] {
		delete(r.why, key)
	}
	for _, h := range c.Histories {
		r.keepLatest(h)
		r.keepFinals(h)
	}
	for _, h := range r.sound.Histories {
		r.keepSpare(h)
		r.keepProven(h)
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
