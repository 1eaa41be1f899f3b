package catalog

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// timelines is the number of random catalogs in the property tests.
const timelines = 120

// random makes a catalog as real clusters leave one: leaders that race, batches that overlap, lost delta backups, full
// backups that hold more than their name says, clocks that differ, and forks anywhere.
func random(r *rand.Rand) Catalog {
	c := Catalog{Prefix: prefix}
	minute, epoch := 0, uint32(1)
	for range 1 + r.IntN(3) {
		l := Lineage([]string{"", "00000001-aa", "00000002-bb", "00000003-cc"}[epoch])
		var parent Lineage
		var fork, revision int64 = 0, 1
		if n := len(c.Histories); n > 0 {
			parent = c.Histories[r.IntN(n)].Lineage
			h, _ := c.History(parent)
			fork = 1 + r.Int64N(max(h.end(), 1))
			revision = fork + 1 + r.Int64N(2)*1000
		}
		h := history(l, minute, parent, fork, randomObjects(r, revision, &minute)...)
		if r.IntN(8) == 0 {
			h.Formation = nil
		} else if uid := r.IntN(3); uid > 0 {
			h.Formation.ClusterUID = []string{"", "ours", "theirs"}[uid]
		}
		c.Histories = append(c.Histories, h)
		epoch++
	}
	return c
}

// end returns the last revision of h.
func (h History) end() int64 {
	var end int64
	for _, f := range h.Fulls {
		end = max(end, f.Revision)
	}
	for _, d := range h.Deltas {
		end = max(end, d.To)
	}
	return end
}

func randomObjects(r *rand.Rand, revision int64, minute *int) []any {
	var objects []any
	if r.IntN(6) > 0 {
		objects = append(objects, full(revision, *minute))
	}
	lost := []int{0, 20, 5}[r.IntN(3)]
	for range r.IntN(60) {
		*minute += r.IntN(60)
		skew := r.IntN(7) - 3
		switch n := 1 + r.Int64N(20); {
		case r.IntN(8) == 0:
			f := full(revision, *minute+skew)
			f.Final = *minute%4 == 0
			objects = append(objects, f)
		case r.IntN(5) == 0: // a second leader, somewhere around
			from := max(2, revision-r.Int64N(15))
			objects = append(objects, delta(from, from+n, *minute+skew))
			revision = max(revision, from+n)
		default:
			if lost == 0 || r.IntN(lost) > 0 {
				objects = append(objects, delta(revision+1, revision+n, *minute+skew))
			}
			revision += n
		}
	}
	return unique(objects)
}

// unique drops objects with the same name.
func unique(objects []any) []any {
	var kept []any
	for _, o := range objects {
		if !slices.Contains(kept, o) {
			kept = append(kept, o)
		}
	}
	return kept
}

func randomPolicy(r *rand.Rand) Policy {
	return Policy{KeepAll: time.Duration(r.IntN(30)) * time.Hour, Hourly: r.IntN(5), Daily: r.IntN(3), Weekly: r.IntN(2), Monthly: r.IntN(2), Count: r.IntN(4)}
}

// targets are all states that a user can request.
func targets(r *rand.Rand, c Catalog) []Target {
	all := []Target{{}}
	for _, h := range c.Histories {
		all = append(all, Target{Lineage: h.Lineage})
		for _, f := range h.Fulls {
			all = append(all, Target{Name: f.Key}, Target{Revision: f.Revision, Lineage: h.Lineage})
		}
		for range 10 {
			revision := 1 + r.Int64N(h.end()+5)
			moment := at(r.IntN(4000))
			all = append(all, Target{Revision: revision}, Target{Revision: revision, Lineage: h.Lineage}, Target{Time: moment}, Target{Time: moment, Lineage: h.Lineage})
		}
	}
	return all
}

func each(t *testing.T, check func(t *testing.T, r *rand.Rand, c Catalog)) {
	t.Helper()
	for seed := range uint64(timelines) {
		r := rand.New(rand.NewPCG(seed, 4))
		if check(t, r, random(r)); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// holds reports whether applying the plan gives everything that the target requires.
func holds(p Plan, t Target) bool {
	reach := p.Full.Revision
	for _, d := range p.Deltas {
		if d.From > reach+1 || d.To <= reach || d.Lineage != p.Full.Lineage {
			return false
		}
		reach = d.To
	}
	return p.Full.Revision <= p.Reach && p.Reach <= reach && (t.Revision == 0 || p.Reach == t.Revision && p.Revision == t.Revision)
}

func TestPlansAreWholeAndStableUnderShuffling(t *testing.T) {
	plans, failures := 0, 0
	each(t, func(t *testing.T, r *rand.Rand, c Catalog) {
		shuffled := c.without([]string{""})
		for i := range shuffled.Histories {
			h := &shuffled.Histories[i]
			r.Shuffle(len(h.Fulls), func(i, j int) { h.Fulls[i], h.Fulls[j] = h.Fulls[j], h.Fulls[i] })
			r.Shuffle(len(h.Deltas), func(i, j int) { h.Deltas[i], h.Deltas[j] = h.Deltas[j], h.Deltas[i] })
		}
		r.Shuffle(len(shuffled.Histories), func(i, j int) {
			shuffled.Histories[i], shuffled.Histories[j] = shuffled.Histories[j], shuffled.Histories[i]
		})
		for _, target := range targets(r, c) {
			want, err := c.Plan(target)
			got, gotErr := shuffled.Plan(target)
			if !reflect.DeepEqual(got, want) || (err == nil) != (gotErr == nil) || err != nil && err.Error() != gotErr.Error() {
				t.Fatalf("%+v: shuffled %+v, %v; in order %+v, %v", target, got, gotErr, want, err)
			}
			if err != nil {
				failures++
				continue
			}
			plans++
			if !holds(want, target) {
				t.Fatalf("%+v: %+v does not hold it", target, want)
			}
			if target.Revision == 0 && target.Time.IsZero() && target.Name == "" && want.Revision == 0 {
				if h, _ := c.History(want.Full.Lineage); h.LastSaved() != want.Reach {
					t.Fatalf("%+v: reaches %d, saved are %d", target, want.Reach, h.LastSaved())
				}
			}
		}
	})
	if plans < 10*timelines || failures < timelines {
		t.Errorf("%d plans and %d failures: want many of both", plans, failures)
	}
}

// A revision is in a range if and only if a plan leads to it.
func TestRangesReportWhatCanBePlanned(t *testing.T) {
	each(t, func(t *testing.T, _ *rand.Rand, c Catalog) {
		for _, h := range c.Histories {
			if h.Formation != nil && h.Formation.Parent != "" {
				h.Formation = &Formation{Version: BootstrapVersion, Lineage: h.Lineage, Created: h.Formation.Created}
			}
			ranges := h.Ranges()
			for revision := int64(1); revision <= h.end()+2; revision += 1 + h.end()/100 {
				in := slices.ContainsFunc(ranges, func(r Range) bool { return r.From <= revision && revision <= r.To })
				if _, err := catalog(h).Plan(Target{Revision: revision}); in != (err == nil) {
					t.Fatalf("revision %d is in %v: %t; its plan: %v", revision, ranges, in, err)
				}
			}
		}
	})
}

func TestRetentionKeepsWhatItPromises(t *testing.T) {
	deleted := 0
	each(t, func(t *testing.T, r *rand.Rand, c Catalog) {
		policy, evidence, now := randomPolicy(r), Evidence{Verified: map[string]bool{}, Broken: map[string]bool{}}, at(r.IntN(4000))
		for _, h := range c.Histories {
			for _, f := range h.Fulls {
				evidence.Verified[f.Key], evidence.Broken[f.Key] = r.IntN(4) == 0, r.IntN(4) == 0
			}
			for _, d := range h.Deltas {
				evidence.Broken[d.Key] = r.IntN(20) == 0
			}
		}
		broken := keysOf(evidence.Broken)
		l := Lineage("")
		if r.IntN(2) == 0 {
			l = c.Histories[r.IntN(len(c.Histories))].Lineage
		}
		verdicts := c.Retain(l, policy, evidence, now)
		var gone []string
		for _, v := range verdicts {
			if !v.Keep {
				gone = append(gone, v.Key)
			}
		}
		deleted += len(gone)
		left := c.without(gone)
		for _, again := range left.Retain(l, policy, evidence, now) {
			if !again.Keep {
				t.Fatalf("%s goes only the second time, for %s", again.Key, again.Reason)
			}
		}
		if policy.KeepAll == 0 && policy == (Policy{}) && len(gone) > 0 {
			t.Fatalf("the empty policy deletes %v", gone)
		}
		for _, target := range targets(r, c) {
			kept := isPromised(c, target, policy, now, left)
			for _, without := range [][]string{nil, broken} {
				target.Without = without
				was, err := c.Plan(target)
				if err != nil || !kept {
					continue
				}
				is, err := left.Plan(target)
				if err != nil || is.Reach != was.Reach && target.Time.IsZero() || is.Reach < was.Reach {
					t.Fatalf("%+v of %+v at %v\nwas %+v\nis %+v, %v", target, policy, now, was, is, err)
				}
			}
		}
		checkSurvivors(t, c, left, evidence)
		checkSpare(t, c, left, broken)
		for _, line := range c.descents(l) {
			checkCount(t, c, left, broken, line, policy.Count)
		}
		checkOthers(t, c, left, l)
	})
	if deleted < 5*timelines {
		t.Errorf("%d objects went: want many", deleted)
	}
}

// isPromised reports whether a target must be reachable after retention: the latest state of each lineage, the
// remaining full backups, and each moment since KeepAll.
func isPromised(c Catalog, t Target, p Policy, now time.Time, left Catalog) bool {
	switch {
	case p == Policy{}:
		return true
	case t.Name != "":
		_, err := left.Plan(t)
		return !errors.Is(err, ErrUnknown)
	case !t.Time.IsZero() && t.Lineage == "":
		return p.KeepAll > 0 && !t.Time.Before(now.Add(-p.KeepAll))
	case t.Revision != 0 && t.Lineage != "":
		return p.KeepAll > 0 && writtenSince(c, t, now.Add(-p.KeepAll))
	}
	return t.Revision == 0 && t.Time.IsZero()
}

// writtenSince reports whether all objects that hold a revision are at least as new as a time, so that the revision
// certainly is.
func writtenSince(c Catalog, t Target, start time.Time) bool {
	h, _ := c.History(t.Lineage)
	found := false
	for _, d := range h.Deltas {
		if d.From <= t.Revision && t.Revision <= d.To {
			found = true
			if d.At.Before(start) {
				return false
			}
		}
	}
	return found && t.Revision > h.fork()
}
