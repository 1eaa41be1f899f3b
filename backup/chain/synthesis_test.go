package chain

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestPlansAreShortenedByWhatWasSynthesized(t *testing.T) {
	made := []any{full(1, 0), delta(2, 10, 10), delta(11, 20, 20), delta(21, 30, 30), synthesis(10, 1, 10), synthesis(20, 1, 20)}
	long := history(first, 0, "", 0, made...)
	taken := history(first, 0, "", 0, append(made, full(15, 16), full(28, 28))...)
	tests := map[string]struct {
		h        History
		target   Target
		want     []int64
		revision int64
		reach    int64
		err      error
		says     string
	}{
		"the latest state":                         {h: long, want: []int64{20, 21, 30}, reach: 30},
		"a revision, by the one before":            {h: long, target: Target{Revision: 18}, want: []int64{10, 11, 20}, revision: 18, reach: 18},
		"the revision that it ends with":           {h: long, target: Target{Revision: 20}, want: []int64{20}, revision: 20, reach: 20},
		"the moment that it ends with":             {h: long, target: Target{Time: at(20)}, want: []int64{20}, reach: 20},
		"a moment before that":                     {h: long, target: Target{Time: at(20).Add(-time.Millisecond)}, want: []int64{10, 11, 20}, reach: 20},
		"a revision that is older than all":        {h: long, target: Target{Revision: 9}, want: []int64{1, 2, 10}, revision: 9, reach: 9},
		"by its name, as it is":                    {h: long, target: Target{Name: SynthesisKey(prefix, first, 20, 1, at(20))}, want: []int64{20}, reach: 20},
		"without it":                               {h: long, target: Target{Without: []string{SynthesisKey(prefix, first, 20, 1, at(20))}}, want: []int64{10, 11, 20, 21, 30}, reach: 30},
		"a full that was taken since":              {h: taken, want: []int64{28, 21, 30}, reach: 30},
		"a full that was taken below its end":      {h: taken, target: Target{Revision: 25}, want: []int64{15, 11, 20, 21, 30}, revision: 25, reach: 25},
		"what that one is no reason against":       {h: taken, target: Target{Revision: 14}, want: []int64{10, 11, 20}, revision: 14, reach: 14},
		"without all that were taken since it is":  {h: taken, target: Target{Without: []string{FullKey(prefix, first, 15, at(16)), FullKey(prefix, first, 28, at(28))}}, want: []int64{20, 21, 30}, reach: 30},
		"a gap behind it is no end":                {h: history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), synthesis(10, 1, 10), delta(12, 20, 20)), err: ErrGap, says: "revisions 11 to 11"},
		"it closes the gap that its deltas left":   {h: history(first, 0, "", 0, full(1, 0), synthesis(10, 1, 10), delta(11, 20, 20)), want: []int64{10, 11, 20}, reach: 20},
		"alone it is nothing that was ever saved":  {h: history(first, 0, "", 0, synthesis(10, 1, 10)), err: ErrEmpty},
		"an origin that is gone takes nothing off": {h: history(first, 0, "", 0, full(1, 0), synthesis(10, 5, 10), delta(11, 20, 20)), want: []int64{10, 11, 20}, reach: 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, catalog(test.h), test.target, test.want, test.revision, test.reach, test.err, test.says)
		})
	}
}

// Whoever saves must not rely on it: what follows is not saved by that.
func TestWhatIsSavedIsToldWithoutWhatWasSynthesized(t *testing.T) {
	h := history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), synthesis(20, 1, 20), delta(21, 30, 30))
	diff(t, h.LastSaved(), int64(10))
	diff(t, len(h.Ranges()), 1)
}

func TestAPlanTellsItsOriginAndItsTail(t *testing.T) {
	h := history(first, 0, "", 0, full(1, 0), full(5, 5), delta(6, 20, 20), synthesis(20, 5, 20), delta(21, 30, 31), delta(31, 40, 30))
	for i := range h.Deltas {
		h.Deltas[i].Size = int64(100 + i)
	}
	c := catalog(h)
	p, err := c.Plan(Target{})
	if err != nil {
		t.Fatal(err)
	}
	if revisions, bytes := p.Tail(); revisions != 20 || bytes != 101+102 {
		t.Errorf("the tail is %d revisions and %d bytes", revisions, bytes)
	}
	diff(t, p.Ends(), at(31))
	diff(t, c.Origin(p.Full.Key), h.Fulls[1].Key)
	gone := SynthesisKey(prefix, first, 20, 4, at(20))
	for _, key := range []string{h.Fulls[0].Key, h.Deltas[0].Key, gone, ""} {
		diff(t, c.Origin(key), key)
	}
}

func TestRetentionOfWhatWasSynthesized(t *testing.T) {
	made := []any{full(1, 0), delta(2, 10, 100), synthesis(10, 1, 100), delta(11, 20, 200), synthesis(20, 1, 200), delta(21, 30, 300)}
	broken := Evidence{Broken: map[string]bool{SynthesisKey(prefix, first, 20, 1, at(200)): true}}
	tests := map[string]struct {
		h        History
		policy   Policy
		evidence Evidence
		now      int
		want     []string
	}{
		"the newest stays, and all that it was made of": {history(first, 0, "", 0, made...), Policy{Count: 1}, Evidence{}, 320,
			[]string{"newest", "latest", "old", "latest", "shortcut", "latest"}},
		"the one before for two hours more, however old it is": {history(first, 0, "", 0, made...), Policy{Count: 1}, Evidence{}, 319,
			[]string{"newest", "latest", "shortcut", "latest", "shortcut", "latest"}},
		"one that is broken goes": {history(first, 0, "", 0, made...), Policy{Count: 1}, broken, 300,
			[]string{"newest", "latest", "shortcut", "latest", "broken", "latest"}},
		"one that a full supersedes goes": {history(first, 0, "", 0, append(made, full(15, 150))...), Policy{Count: 1}, Evidence{}, 320,
			[]string{"second-newest", "second-newest", "old", "newest", "latest", "old", "latest"}},
		"and not before those who read it are done": {history(first, 0, "", 0, append(made, full(15, 250))...), Policy{Count: 1}, Evidence{}, 319,
			[]string{"second-newest", "second-newest", "shortcut", "newest", "latest", "shortcut", "latest"}},
		"it is none of the fulls that are counted": {history(first, 0, "", 0, append(made, full(30, 300))...), Policy{Count: 2}, Evidence{}, 420,
			[]string{"count", "count", "old", "count", "old", "count", "newest"}},
		"a full takes the place of the newest, which may be read": {history(first, 0, "", 0, append(made, full(30, 300))...), Policy{Count: 2}, Evidence{}, 419,
			[]string{"count", "count", "old", "count", "shortcut", "count", "newest"}},
		"an empty policy keeps everything": {history(first, 0, "", 0, made...), Policy{}, broken, 300,
			[]string{"no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range catalog(test.h).Retain("", test.policy, test.evidence, at(test.now)) {
				got = append(got, string(v.Reason))
			}
			diff(t, got, test.want)
		})
	}
	other := history(second, 0, "", 0, full(1, 0), synthesis(20, 1, 20), synthesis(10, 1, 10))
	for _, v := range catalog(history(first, 0, "", 0, made...), other).Retain(first, Policy{Count: 1}, Evidence{}, at(5000)) {
		if v.Lineage == second && !v.Keep {
			t.Errorf("another cluster's %s is let go: %s", v.Key, v.Reason)
		}
	}
}

// Whatever is synthesised, retention keeps of all else exactly what it would keep without, and every target that can be
// planned without can be planned with it.
func TestWhatIsSynthesizedReplacesNothing(t *testing.T) {
	shortened := 0
	each(t, func(t *testing.T, r *rand.Rand, c Catalog) {
		with := c.without([]string{""})
		for i := range with.Histories {
			h := &with.Histories[i]
			for _, d := range h.Deltas {
				if len(h.Fulls) == 0 || r.IntN(4) > 0 {
					continue
				}
				origin := h.Fulls[r.IntN(len(h.Fulls))].Revision
				if f := (Full{Lineage: h.Lineage, Revision: d.To, Origin: origin, At: d.At}); origin < d.To {
					f.Key = SynthesisKey(prefix, h.Lineage, f.Revision, f.Origin, f.At)
					h.Synthesized = append(h.Synthesized, f)
				}
			}
		}
		for _, target := range targets(r, c) {
			without, err := c.Plan(target)
			if err != nil {
				continue
			}
			p, err := with.Plan(target)
			if err != nil || !holds(p, target) {
				t.Fatalf("%+v: %+v, %v; without what was synthesised %+v", target, p, err, without)
			}
			if p.Full.Origin != 0 {
				shortened++
			}
		}
		policy, now := randomPolicy(r), at(r.IntN(4000))
		got := slices.DeleteFunc(with.Retain("", policy, Evidence{}, now), func(v Verdict) bool { _, ok := ParseSynthesis(prefix, v.Key); return ok })
		byKey := func(verdicts []Verdict) map[string]Verdict {
			m := map[string]Verdict{}
			for _, v := range verdicts {
				m[v.Key] = v
			}
			return m
		}
		if want := c.Retain("", policy, Evidence{}, now); !reflect.DeepEqual(byKey(got), byKey(want)) {
			t.Fatalf("retention gives %+v, without what was synthesised %+v", got, want)
		}
	})
	if shortened < timelines {
		t.Errorf("%d plans begin with what was synthesised: want many", shortened)
	}
}
