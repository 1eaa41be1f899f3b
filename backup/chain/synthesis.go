package chain

import (
	"slices"
	"time"
)

// grace is how long a full that was synthesised is kept after a newer one made it superfluous, for those who read it: twice
// the half hour that 8 GiB take at 5 MB/s. More is not recommended for etcd's database. The time of a full's name is from
// before its upload, which takes as long: hence as much again.
const grace = 2 * time.Hour

// superseded tells of a synthesised full that one was taken since its origin. Of users, roles, alarms and leases, of which
// no delta tells, that one knows more.
func (h History) superseded(f Full) bool {
	return slices.ContainsFunc(h.Fulls, func(taken Full) bool { return f.Origin < taken.Revision && taken.Revision <= f.Revision })
}

// shortened is h with those synthesised fulls among the others that a restore may begin with.
func (h History) shortened() History {
	fulls := slices.Clone(h.Fulls)
	for _, f := range h.Synthesized {
		if !h.superseded(f) {
			fulls = append(fulls, f)
		}
	}
	h.Fulls, h.Synthesized = inOrder(fulls, compareFulls), nil
	return h
}

// taken is a copy of c without what was synthesised.
func (c Catalog) taken() Catalog {
	c.Histories = slices.Clone(c.Histories)
	for i := range c.Histories {
		c.Histories[i].Synthesized = nil
	}
	return c
}

// keepShortcuts keeps the newest synthesised full that shortens a restore of the latest state and is not known to be broken,
// and for a while those that do no more.
func (r *retention) keepShortcuts(h History, now time.Time) {
	found := false
	for _, f := range slices.Backward(h.Synthesized) {
		if r.e.Broken[f.Key] {
			continue
		}
		newest := !found && !h.superseded(f) && !slices.ContainsFunc(h.Fulls, func(taken Full) bool { return taken.Revision >= f.Revision })
		if found = found || newest; newest || h.superfluous(f).After(now.Add(-grace)) {
			r.keep(f.Key, ReasonShortcut)
		}
	}
}

// superfluous is since when nothing begins with a synthesised full that is not the newest: the time of the first of those that
// came after it, which may be long after its own. Nobody who lists them before knows better than to read it.
func (h History) superfluous(f Full) time.Time {
	var since time.Time
	for _, other := range slices.Concat(h.Fulls, h.Synthesized) {
		if taken := other.Origin == 0; !taken && compareFulls(other, f) <= 0 || taken && other.Revision <= f.Origin {
			continue
		}
		if since.IsZero() || other.At.Before(since) {
			since = other.At
		}
	}
	return later(since, f.At)
}

// Origin finds the full that was taken and that a synthesised one descends from, by their keys. Every other key, and one
// whose origin is not there any more, is its own.
func (c Catalog) Origin(key string) string {
	made, ok := ParseSynthesis(c.Prefix, key)
	if !ok {
		return key
	}
	h, _ := c.History(made.Lineage)
	for _, f := range slices.Backward(inOrder(h.Fulls, compareFulls)) {
		if f.Revision == made.Origin {
			return f.Key
		}
	}
	return key
}

// Tail is how much of a plan has to be applied to its full: revisions, by the names of the objects, and bytes of deltas as
// they are stored.
func (p Plan) Tail() (revisions, bytes int64) {
	for _, d := range p.Deltas {
		bytes += d.Size
	}
	return max(p.Reach-p.Full.Revision, 0), bytes
}

// Ends is the time by which all that a plan leads to was written, by the clocks of those who saved it.
func (p Plan) Ends() time.Time {
	at := p.Full.At
	for _, d := range p.Deltas {
		at = later(at, d.At)
	}
	return at
}
