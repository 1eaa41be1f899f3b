package chain

import (
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
	// days has a full each 12 hours, six in all, and a delta after each.
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
			[]string{"no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy", "no-policy"}},
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
		"the newest proven full keeps what follows": {[]History{days}, Policy{Count: 1}, Evidence{Proven: set(name(2*half), name(3*half))},
			[]string{"old", "unused", "old", "unused", "old", "unused", "newest-proven", "newest-proven", "second-newest", "newest-proven", "newest", "newest-proven"}},
		"a broken newest full keeps the one before": {[]History{days}, Policy{Count: 1}, Evidence{Broken: set(name(5*half), name(2*half))},
			[]string{"old", "unused", "old", "unused", "broken", "unused", "second-newest", "second-newest", "newest-sound", "latest", "newest", "latest"}},
		"what was proven and broke since is broken": {[]History{days}, Policy{Count: 1}, Evidence{Broken: set(name(2 * half)), Proven: set(name(2*half), name(half))},
			[]string{"old", "unused", "newest-proven", "newest-proven", "broken", "newest-proven", "old", "newest-proven", "second-newest", "newest-proven", "newest", "newest-proven"}},
		"broken fulls do not count": {[]History{days}, Policy{Count: 2}, Evidence{Broken: set(name(4 * half))},
			[]string{"old", "unused", "old", "unused", "old", "unused", "count", "count", "broken", "count", "newest", "latest"}},
		"what overlaps after the newest full stays": {[]History{history(first, 0, "", 0, full(1, 0), delta(2, 5, 1), full(5, 1), delta(6, 8, 2), delta(6, 9, 2), delta(4, 7, 3))}, Policy{Count: 1}, Evidence{},
			[]string{"second-newest", "second-newest", "newest", "latest", "latest", "latest"}},
		"a final full stays, and nothing for its sake": {[]History{history(first, 0, "", 0, final(1, 0), delta(2, 5, 1), full(5, 5), full(9, 9), full(12, 12))}, Policy{Count: 1}, Evidence{},
			[]string{"final", "unused", "old", "second-newest", "newest"}},
		"a final full that broke stays": {[]History{history(first, 0, "", 0, final(1, 0), full(5, 5), full(9, 9), full(12, 12))}, Policy{Count: 1},
			Evidence{Broken: set(FinalKey(prefix, first, 1, at(0)))}, []string{"final", "old", "second-newest", "newest"}},
		"a final full counts, and is the newest": {[]History{history(first, 0, "", 0, full(1, 0), full(5, 5), final(9, 9))}, Policy{Count: 2}, Evidence{},
			[]string{"old", "count", "final"}},
		"another lineage's final full stays": {[]History{history(first, 0, "", 0, final(1, 0), full(3, 3), full(5, 5)), history(second, 6, first, 5, full(6, 7), full(9, 9))}, Policy{Count: 1}, Evidence{},
			[]string{"final", "second-newest", "newest", "second-newest", "newest"}},
		"a child without a full needs its parent at the fork": {[]History{days, child}, Policy{Count: 1}, Evidence{},
			[]string{"old", "unused", "old", "unused", "latest", "latest", "old", "unused", "second-newest", "second-newest", "newest", "latest"}},
		"a lineage without a full keeps its deltas": {[]History{history(first, 0, "", 0, delta(2, 5, 1))}, Policy{Count: 1}, Evidence{}, []string{"no-full"}},
		"each lineage keeps its newest full": {[]History{history(first, 0, "", 0, full(1, 0), full(5, 5)), history(second, 6, first, 5, full(6, 7), full(9, 9))}, Policy{Count: 1}, Evidence{},
			[]string{"second-newest", "newest", "second-newest", "newest"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The last delta ends at six halves.
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
