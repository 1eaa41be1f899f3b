package chain

import (
	"slices"
	"testing"
	"time"
)

// of says whose a history is.
func of(uid string, h History) History {
	h.Formation.ClusterUID = uid
	return h
}

func TestDescents(t *testing.T) {
	const fourth, fifth = Lineage("00000004-ee"), Lineage("00000005-ff")
	unread := history(fifth, 0, "", 0)
	unread.Formation = nil
	// Ours began again once, and another time from what it was restored from; a twin was restored from that, too.
	c := catalog(of("old", history(first, 0, "", 0)), of("us", history(second, 1, "", 0)), of("them", history(twin, 1, first, 5)),
		of("us", history(third, 2, first, 5)), of("", history(fourth, 3, "", 0)), unread)
	for l, want := range map[Lineage][]descent{
		first:         {{first: true}},
		second:        {{first: true, second: true, third: true}},
		third:         {{first: true, second: true, third: true}},
		twin:          {{first: true, twin: true}},
		fourth:        {{fourth: true}},
		fifth:         {{fifth: true}},
		"00000009-aa": {{}},
		"":            {{first: true, second: true, third: true}, {first: true, twin: true}, {fourth: true}, {fifth: true}},
	} {
		diff(t, c.descents(l), want)
	}
}

// Two Kubernetes clusters have a cluster of one name, and one bucket.
func TestAnotherClusterUsesUpNoQuota(t *testing.T) {
	days := func(l Lineage, uid string, minute int) History {
		var fulls []any
		for i := range 30 {
			fulls = append(fulls, full(int64(100+i), i*24*60+minute))
		}
		return of(uid, history(l, 0, "", 0, fulls...))
	}
	ours, theirs := days(first, "us", 0), days(second, "them", 60)
	now, policy := at(30*24*60), Policy{KeepAll: 7 * 24 * time.Hour, Daily: 20, Count: 10}
	alone := catalog(ours).Retain(first, policy, Evidence{}, now)
	kept := func(verdicts []Verdict) (n int) {
		for _, v := range verdicts {
			if v.Keep {
				n++
			}
		}
		return n
	}
	if n := kept(alone); n != 20 {
		t.Errorf("alone %d fulls are kept, want 20", n)
	}
	both := catalog(ours, theirs).Retain(first, policy, Evidence{}, now)
	diff(t, both[:30], alone)
	if slices.ContainsFunc(both[30:], func(v Verdict) bool { return !v.Keep || v.Reason != ReasonOther }) {
		t.Errorf("want all of another cluster's kept as such: %+v", both[30:])
	}
	each := catalog(ours, theirs).Retain("", policy, Evidence{}, now)
	diff(t, each[:30], alone)
	diff(t, each[30:], catalog(theirs).Retain(second, policy, Evidence{}, now))
}

// A cluster that was restored from ours, and has no full yet, needs what it forked from.
func TestRetentionKeepsWhatAnotherClusterForkedFrom(t *testing.T) {
	ours := of("us", history(first, 0, "", 0, full(1, 0), delta(2, 9, 1), full(10, 2), delta(11, 19, 3), full(20, 4), full(30, 5), full(40, 6)))
	theirs := of("them", history(second, 7, first, 15))
	for n, want := range map[int][]string{1: {"old", "unused", "old", "unused", "old", "second-newest", "newest"}, 2: {"old", "unused", "latest", "latest", "old", "second-newest", "newest"}} {
		var got []string
		for _, v := range catalog([]History{ours, theirs}[:n]...).Retain(first, Policy{Daily: 1}, Evidence{}, at(9)) {
			got = append(got, string(v.Reason))
		}
		diff(t, got, want)
	}
}
