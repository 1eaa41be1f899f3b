package chain

import (
	"math/rand/v2"
	"slices"
	"testing"
)

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
		"the newest sound one":               {[]History{chained}, key(chained, 3), Evidence{Broken: map[string]bool{key(chained, 4): true}}, ReasonSound},
		"the one before the newest sound":    {[]History{chained}, key(chained, 2), Evidence{Broken: map[string]bool{key(chained, 4): true}}, ReasonSpare},
		"the newest proven one":              {[]History{chained}, key(chained, 1), Evidence{Proven: map[string]bool{key(chained, 1): true}}, ReasonProven},
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

// With a full that is not needed goes its own state, and no other.
func TestOnlyItsOwnStateGoesWithAFullThatIsNotNeeded(t *testing.T) {
	gone := 0
	each(t, func(t *testing.T, r *rand.Rand, c Catalog) {
		e := Evidence{Proven: map[string]bool{}, Broken: map[string]bool{}}
		var fulls []Full
		for _, h := range c.Histories {
			fulls = append(fulls, h.Fulls...)
			for _, f := range h.Fulls {
				e.Proven[f.Key], e.Broken[f.Key] = r.IntN(4) == 0, r.IntN(6) == 0
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
