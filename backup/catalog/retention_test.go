package catalog

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestReasonsHaveWords(t *testing.T) {
	for i, r := range reasons {
		if r.words == "" || r.reason.Words() != r.words || rank(r.reason) != i {
			t.Errorf("%s: %q, rank %d", r.reason, r.reason.Words(), rank(r.reason))
		}
	}
	if Reason("new").Words() != "new" {
		t.Error("want a reason that is not known as it is")
	}
}

func TestPolicyRefusesWhatIsNegative(t *testing.T) {
	if err := (Policy{KeepAll: time.Hour, Hourly: 1, Daily: 1, Weekly: 1, Monthly: 1, Count: 1}).Validate(); err != nil {
		t.Error(err)
	}
	for _, p := range []Policy{{KeepAll: -1}, {Hourly: -1}, {Daily: -1}, {Weekly: -1}, {Monthly: -1}, {Count: -1}} {
		if p.Validate() == nil {
			t.Errorf("%+v is taken", p)
		}
	}
}

func TestRetain(t *testing.T) {
	name := func(minute int) string { return FullKey(prefix, first, int64(max(minute, 1)), at(minute)) }
	set := func(keys ...string) map[string]bool {
		s := map[string]bool{}
		for _, k := range keys {
			s[k] = true
		}
		return s
	}
	// days has a full backup every 12 hours, six in all, and a delta backup after each.
	const half = 12 * 60
	var objects []any
	for i := range 6 {
		m := i * half
		objects = append(objects, full(int64(max(m, 1)), m), delta(int64(m+1), int64(m+half), m+half))
	}
	days := history(first, 0, "", 0, objects...)
	child := history(second, 6*half, first, 3*half)
	tests := map[string]struct {
		histories []History
		policy    Policy
		evidence  Evidence
		want      []string // the reason of each object, oldest first
	}{
		"an empty policy keeps everything": {[]History{days}, Policy{}, Evidence{},
			[]string{"no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy",
				"no-policy", "no-policy"}},
		"count": {[]History{days}, Policy{Count: 2}, Evidence{},
			[]string{"old", "unused", "old", "unused", "old", "unused", "old", "unused", "count", "count", "newest", "latest"}},
		"count keeps the deltas after the oldest it counts": {[]History{days}, Policy{Count: 4}, Evidence{},
			[]string{"old", "unused", "old", "unused", "count", "count", "count", "count", "count", "count", "newest", "latest"}},
		"a day each, the last of it": {[]History{days}, Policy{Daily: 9}, Evidence{},
			[]string{"daily", "unused", "old", "unused", "daily", "unused", "old", "unused", "daily", "second-newest", "newest", "latest"}},
		"the last days that have one": {[]History{days}, Policy{Daily: 3}, Evidence{},
			[]string{"old", "unused", "old", "unused", "daily", "unused", "old", "unused", "daily", "second-newest", "newest", "latest"}},
		"a week": {[]History{days}, Policy{Weekly: 2}, Evidence{},
			[]string{"old", "unused", "old", "unused", "weekly", "unused", "old", "unused", "second-newest", "second-newest", "newest", "latest"}},
		"a month": {[]History{days}, Policy{Monthly: 9}, Evidence{},
			[]string{"old", "unused", "old", "unused", "old", "unused", "old", "unused", "second-newest", "second-newest", "newest", "latest"}},
		"hours": {[]History{days}, Policy{Hourly: 3}, Evidence{},
			[]string{"old", "unused", "old", "unused", "old", "unused", "hourly", "unused", "hourly", "second-newest", "newest", "latest"}},
		"a window keeps what leads into it": {[]History{days}, Policy{KeepAll: 30 * time.Hour}, Evidence{},
			[]string{"old", "unused", "old", "unused", "old", "unused", "window", "keep-all", "keep-all", "keep-all", "newest", "latest"}},
		"the newest verified full keeps what follows": {[]History{days}, Policy{Count: 1}, Evidence{Verified: set(name(2*half), name(3*half))},
			[]string{"old", "unused", "old", "unused", "old", "unused", "newest-verified", "newest-verified", "second-newest", "newest-verified",
				"newest", "newest-verified"}},
		"a broken newest full keeps the one before": {[]History{days}, Policy{Count: 1}, Evidence{Broken: set(name(5*half), name(2*half))},
			[]string{"old", "unused", "old", "unused", "broken", "unused", "second-newest", "second-newest", "newest-intact", "latest", "newest", "latest"}},
		"what was verified and broke since is broken": {[]History{days}, Policy{Count: 1},
			Evidence{Broken: set(name(2 * half)), Verified: set(name(2*half), name(half))},
			[]string{"old", "unused", "newest-verified", "newest-verified", "broken", "newest-verified", "old", "newest-verified", "second-newest",
				"newest-verified", "newest", "newest-verified"}},
		"broken fulls do not count": {[]History{days}, Policy{Count: 2}, Evidence{Broken: set(name(4 * half))},
			[]string{"old", "unused", "old", "unused", "old", "unused", "count", "count", "broken", "count", "newest", "latest"}},
		"what overlaps after the newest full stays": {
			[]History{history(first, 0, "", 0, full(1, 0), delta(2, 5, 1), full(5, 1), delta(6, 8, 2), delta(6, 9, 2), delta(4, 7, 3))}, Policy{Count: 1}, Evidence{},
			[]string{"second-newest", "second-newest", "newest", "latest", "latest", "latest"}},
		"a final full stays, and nothing for its sake": {[]History{history(first, 0, "", 0, final(1, 0), delta(2, 5, 1), full(5, 5), full(9, 9), full(12, 12))},
			Policy{Count: 1}, Evidence{},
			[]string{"final", "unused", "old", "second-newest", "newest"}},
		"a final full that broke stays": {[]History{history(first, 0, "", 0, final(1, 0), full(5, 5), full(9, 9), full(12, 12))}, Policy{Count: 1},
			Evidence{Broken: set(FinalKey(prefix, first, 1, at(0)))}, []string{"final", "old", "second-newest", "newest"}},
		"a final full counts, and is the newest": {[]History{history(first, 0, "", 0, full(1, 0), full(5, 5), final(9, 9))}, Policy{Count: 2}, Evidence{},
			[]string{"old", "count", "final"}},
		"another lineage's final full stays": {[]History{history(first, 0, "", 0, final(1, 0), full(3, 3), full(5, 5)),
			history(second, 6, first, 5, full(6, 7), full(9, 9))}, Policy{Count: 1}, Evidence{},
			[]string{"final", "second-newest", "newest", "second-newest", "newest"}},
		"a child without a full needs its parent at the fork": {[]History{days, child}, Policy{Count: 1}, Evidence{},
			[]string{"old", "unused", "old", "unused", "latest", "latest", "old", "unused", "second-newest", "second-newest", "newest", "latest"}},
		"a lineage without a full keeps its deltas": {[]History{history(first, 0, "", 0, delta(2, 5, 1))}, Policy{Count: 1}, Evidence{}, []string{"no-full"}},
		"each lineage keeps its newest full": {[]History{history(first, 0, "", 0, full(1, 0), full(5, 5)), history(second, 6, first, 5, full(6, 7), full(9, 9))},
			Policy{Count: 1}, Evidence{},
			[]string{"second-newest", "newest", "second-newest", "newest"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The last delta backup ends at six halves.
			verdicts := catalog(test.histories...).Retain("", test.policy, test.evidence, at(6*half))
			var got []string
			for _, v := range verdicts {
				got = append(got, string(v.Reason))
				i := slices.IndexFunc(reasons, func(k knownReason) bool { return k.reason == v.Reason })
				if i < 0 || reasons[i].keep != v.Keep {
					t.Errorf("%s is kept: %t, for %s", v.Key, v.Keep, v.Reason)
				}
			}
			diff(t, got, test.want)
		})
	}
}

func TestAClockThatIsAheadDeletesNothing(t *testing.T) {
	s := newStore(t)
	for m := range 10 {
		put(t, s, FullKey(prefix, first, int64(m+1), time.Now().Add(time.Duration(m-10)*time.Hour)), "full")
	}
	c, err := Read(t.Context(), s, prefix)
	if err != nil {
		t.Fatal(err)
	}
	policy := Policy{KeepAll: 330 * time.Minute}
	want := c.Retain("", policy, Evidence{}, time.Now())
	if gone := slices.IndexFunc(want, func(v Verdict) bool { return v.Keep }); gone < 3 {
		t.Fatalf("%d objects go: want some", gone)
	}
	diff(t, c.Retain("", policy, Evidence{}, time.Now().AddDate(0, 1, 0)), want)
	diff(t, c.Retain("", policy, Evidence{}, c.Newest.Add(-time.Hour))[4].Reason, ReasonKeepAll)
}

func TestNeededFullsAreReportedFromOthers(t *testing.T) {
	chained := history(first, 0, "", 0, full(1, 0), delta(2, 10, 1), full(10, 2), delta(11, 20, 3), full(20, 4), delta(21, 30, 5), full(30, 6), full(31, 7))
	apart := history(first, 0, "", 0, full(1, 0), full(10, 2), delta(11, 20, 3), full(40, 4), full(50, 5), full(60, 6))
	child := history(second, 8, first, 31)
	foreign := history(third, 9, "", 0, full(1, 9))
	key := func(h History, i int) string { return h.Fulls[i].Key }
	for name, test := range map[string]struct {
		histories []History
		key       string
		evidence  Evidence
		want      Reason // empty: it may go
	}{
		"deltas lead to it and on":           {[]History{chained}, key(chained, 1), Evidence{}, ""},
		"the oldest, with deltas after it":   {[]History{chained}, key(chained, 0), Evidence{}, ReasonNeeded},
		"the newest":                         {[]History{chained}, key(chained, 4), Evidence{}, ReasonNewest},
		"the one before the newest":          {[]History{chained}, key(chained, 3), Evidence{}, ReasonSpare},
		"the newest sound one":               {[]History{chained}, key(chained, 3), Evidence{Broken: map[string]bool{key(chained, 4): true}}, ReasonNewestIntact},
		"the one before the newest sound":    {[]History{chained}, key(chained, 2), Evidence{Broken: map[string]bool{key(chained, 4): true}}, ReasonSpare},
		"the newest proven one":              {[]History{chained}, key(chained, 1), Evidence{Verified: map[string]bool{key(chained, 1): true}}, ReasonVerified},
		"the one before it is broken":        {[]History{chained}, key(chained, 1), Evidence{Broken: map[string]bool{key(chained, 0): true}}, ReasonNeeded},
		"the delta that leads to it is":      {[]History{chained}, key(chained, 1), Evidence{Broken: map[string]bool{chained.Deltas[0].Key: true}}, ReasonNeeded},
		"it is broken itself":                {[]History{chained}, key(chained, 0), Evidence{Broken: map[string]bool{key(chained, 0): true}}, ""},
		"nothing but its own state":          {[]History{apart}, key(apart, 2), Evidence{}, ""},
		"the oldest, and nothing after it":   {[]History{apart}, key(apart, 0), Evidence{}, ""},
		"no delta leads to it, but from it":  {[]History{apart}, key(apart, 1), Evidence{}, ReasonNeeded},
		"a child without a full begins here": {[]History{chained, child}, key(chained, 4), Evidence{}, ReasonNewest},
		"another cluster's":                  {[]History{chained, foreign}, key(foreign, 0), Evidence{}, ReasonOther},
		"none that is there":                 {[]History{chained}, FullKey(prefix, first, 5, at(5)), Evidence{}, ReasonOther},
		"a delta":                            {[]History{chained}, chained.Deltas[0].Key, Evidence{}, ReasonOther},
		"a final one": {[]History{history(first, 0, "", 0, final(1, 0), full(5, 5), full(6, 6))}, FinalKey(prefix, first, 1, at(0)),
			Evidence{}, ReasonFinal},
	} {
		t.Run(name, func(t *testing.T) {
			got, needed := catalog(test.histories...).Needed(first, test.key, test.evidence)
			if got != test.want || needed != (test.want != "") {
				t.Errorf("got %q, %t; want %q", got, needed, test.want)
			}
		})
	}
}

// Deleting a full backup that is not needed loses only its own state.
func TestOnlyOwnStateDeletedWithFull(t *testing.T) {
	gone := 0
	each(t, func(t *testing.T, r *rand.Rand, c Catalog) {
		e := Evidence{Verified: map[string]bool{}, Broken: map[string]bool{}}
		var fulls []Full
		for _, h := range c.Histories {
			fulls = append(fulls, h.Fulls...)
			for _, f := range h.Fulls {
				e.Verified[f.Key], e.Broken[f.Key] = r.IntN(4) == 0, r.IntN(6) == 0
			}
			for _, d := range h.Deltas {
				e.Broken[d.Key] = r.IntN(20) == 0
			}
		}
		l := c.Histories[len(c.Histories)-1].Lineage
		for _, f := range fulls {
			if _, needed := c.Needed(l, f.Key, e); needed {
				continue
			}
			gone++
			left := c.without([]string{f.Key})
			checkSurvivors(t, c, left, e)
			for _, target := range targets(r, c) {
				if !target.Time.IsZero() || target.Name == f.Key || target.Revision == f.Revision {
					continue
				}
				for _, without := range [][]string{nil, keysOf(e.Broken)} {
					if e.Broken[f.Key] && without == nil {
						continue // what is broken leads nowhere
					}
					target.Without = without
					was, err := c.Plan(target)
					if err != nil {
						continue
					}
					if is, err := left.Plan(target); err != nil || is.Reach != was.Reach {
						t.Fatalf("%+v without %s\nwas %+v\nis %+v, %v", target, f.Key, was, is, err)
					}
				}
			}
			c = left
			if !slices.ContainsFunc(c.Histories, func(h History) bool { return h.Lineage == f.Lineage && len(h.Fulls) > 0 }) {
				t.Fatalf("%s was the only full of its lineage", f.Key)
			}
		}
	})
	if gone < 20 {
		t.Errorf("%d fulls went: want many", gone)
	}
}

// checkSurvivors checks the objects that every policy keeps.
func checkSurvivors(t *testing.T, c, left Catalog, e Evidence) {
	t.Helper()
	found := false
	for _, h := range slices.Backward(c.sorted().Histories) {
		l, _ := left.History(h.Lineage)
		for i, f := range slices.Backward(h.Fulls) {
			sound := !e.Broken[f.Key] && !slices.ContainsFunc(h.Fulls[i+1:], func(g Full) bool { return !e.Broken[g.Key] })
			newestVerified := e.Verified[f.Key] && !e.Broken[f.Key] && !found
			found = found || newestVerified
			if (i == len(h.Fulls)-1 || sound || newestVerified || f.Final) && !slices.Contains(l.Fulls, f) {
				t.Fatalf("%s is gone: newest %t, sound %t, proven %t, final %t", f.Key, i == len(h.Fulls)-1, sound, newestVerified, f.Final)
			}
		}
	}
}

// checkSpare plans without the newest full backup that is not known to be broken: nothing after the full backup before
// it may be lost.
func checkSpare(t *testing.T, c, left Catalog, broken []string) {
	t.Helper()
	for _, h := range c.without(broken).Histories {
		if len(h.Fulls) < 2 {
			continue
		}
		fulls := inOrder(h.Fulls, compareFulls)
		without := append(slices.Clone(broken), fulls[len(fulls)-1].Key)
		checkReach(t, c, left, fulls[len(fulls)-2], without)
	}
}

// checkCount checks that all that follows the counted full backups of a family is kept.
func checkCount(t *testing.T, c, left Catalog, broken []string, line lineageFamily, count int) {
	t.Helper()
	for _, h := range slices.Backward(c.without(broken).sorted().Histories) {
		for _, f := range slices.Backward(h.Fulls) {
			if !line[h.Lineage] {
				continue
			}
			if count--; count >= 0 {
				checkReach(t, c, left, f, broken)
			}
		}
	}
}

// checkReach checks that as many revisions after a full backup can be restored as before.
func checkReach(t *testing.T, c, left Catalog, f Full, without []string) {
	t.Helper()
	was, _ := c.without(without).History(f.Lineage)
	is, _ := left.without(without).History(f.Lineage)
	want, got := was.walk(f, f.At, unlimited).reach, is.walk(f, f.At, unlimited).reach
	if !slices.Contains(is.Fulls, f) || got != want {
		t.Fatalf("%s leads to %d, led to %d", f.Key, got, want)
	}
}

// checkOthers checks that everything is kept that belongs to other clusters and from which l did not fork.
func checkOthers(t *testing.T, c, left Catalog, l Lineage) {
	t.Helper()
	line := c.lineageFamily(l)
	for _, h := range c.Histories {
		if is, _ := left.History(h.Lineage); l != "" && !line[h.Lineage] && !reflect.DeepEqual(is, h) {
			t.Fatalf("retention for %s leaves %+v of %+v", l, is, h)
		}
	}
}
