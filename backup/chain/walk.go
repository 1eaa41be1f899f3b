package chain

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// limit is where a walk may stop: at a revision, or at the first delta that was closed at or after a time.
type limit struct {
	revision int64
	until    time.Time
}

// unlimited walks as far as there are deltas.
var unlimited = limit{revision: math.MaxInt64}

func (l limit) reached(revision int64, at time.Time) bool {
	return revision >= l.revision || !l.until.IsZero() && !at.Before(l.until)
}

func (l limit) bounded() bool { return l.revision != math.MaxInt64 || !l.until.IsZero() }

// walked is a chain: a full and the deltas that follow it without a gap.
type walked struct {
	full   Full
	deltas []Delta
	// reach is the last revision of the chain, and at when it was written at the latest.
	reach int64
	at    time.Time
}

// walk follows the deltas from full: at p it takes, among those with from ≤ p+1 ≤ to, the one with the largest to. No
// other choice reaches further. at is the full's time.
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

// times are those of h.Fulls, which stand in their order, made monotonic by revision: nothing is older than what stands
// before it, whatever the clocks of those who wrote it said.
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

// beyond is the first object that holds what is beyond reach and begins at or before last, with the first revision that
// it holds by itself; a full's is its own.
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
