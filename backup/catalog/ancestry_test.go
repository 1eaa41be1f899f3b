package catalog

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPlanFollowsLineages(t *testing.T) {
	// The first history reached revision 70. The second forked at revision 40 and bumped its revisions.
	child := history(second, 80, first, 40, full(1040, 81), delta(1041, 1050, 90))
	unsaved := func(l Lineage, parent Lineage, fork int64) History { return history(l, 100, parent, fork) }
	orphan := history(third, 100, "", 0)
	orphan.Formation = nil
	orphan.Deltas = []Delta{{Lineage: third, Key: DeltaKey(prefix, third, 5, 9, at(100)), From: 5, To: 9, At: at(100)}}
	looped := history(second, 80, third, 1060)
	tests := map[string]struct {
		histories []History
		target    Target
		lineage   Lineage
		want      []int64
		revision  int64
		reach     int64
		err       error
		says      string // in the error, or in the notes
	}{
		"the newest lineage is the cluster's": {histories: []History{plain(), child}, lineage: second, want: []int64{1040, 1041, 1050}, reach: 1050},
		"an explicit lineage wins": {histories: []History{plain(), child}, target: Target{Lineage: first}, lineage: first,
			want: []int64{60, 61, 70}, reach: 70},
		"a revision from before the fork is the parent's": {histories: []History{plain(), child}, target: Target{Revision: 35}, lineage: first,
			want: []int64{1, 2, 10, 11, 20, 21, 30, 31, 40}, revision: 35, reach: 35, says: "older than lineage 00000002-bb"},
		"the fork's own revision is the parent's": {histories: []History{plain(), child}, target: Target{Revision: 40}, lineage: first,
			want: []int64{30, 31, 40}, revision: 40, reach: 40},
		"a revision of the parent that was left behind": {histories: []History{plain(), child}, target: Target{Revision: 45}, err: ErrOutside,
			says: "specify the lineage"},
		"and is there in the parent": {histories: []History{plain(), child}, target: Target{Lineage: first, Revision: 45},
			lineage: first, want: []int64{30, 31, 40, 41, 50}, revision: 45, reach: 45},
		"a moment before the bootstrap is the parent's": {histories: []History{plain(), child}, target: Target{Time: at(65)}, lineage: first,
			want: []int64{60, 61, 70}, reach: 70},
		"a moment after the bootstrap is the child's": {histories: []History{plain(), child}, target: Target{Time: at(85)}, lineage: second,
			want: []int64{1040, 1041, 1050}, reach: 1050},
		"a moment between the bootstrap and the first full": {histories: []History{plain(), child}, target: Target{Time: at(80)}, err: ErrOutside,
			says: "revisions 1 to 70"},
		"the history of a child before its bootstrap is cut": {histories: []History{plain(), child}, target: Target{Lineage: second, Time: at(65)},
			lineage: first, want: []int64{30, 31, 40}, revision: 40, reach: 40},

		"a child without a full is its parent up to the fork": {histories: []History{plain(), unsaved(second, first, 40)}, lineage: first,
			want: []int64{30, 31, 40}, revision: 40, reach: 40, says: "no full backup yet"},
		"where the fork was not saved the note reports": {histories: []History{plain(), unsaved(second, first, 75)}, lineage: first,
			want: []int64{60, 61, 70}, revision: 75, reach: 70, says: "revisions 71 to 75"},
		"a grandchild without a full is cut at both forks": {histories: []History{plain(), unsaved(second, first, 40), unsaved(third, second, 38)},
			lineage: first, want: []int64{1, 2, 10, 11, 20, 21, 30, 31, 40}, revision: 38, reach: 38},
		"a newer lineage that began with nothing": {histories: []History{plain(), unsaved(second, "", 0)}, lineage: first,
			want: []int64{60, 61, 70}, reach: 70, says: "started without data"},
		"a newer lineage whose bootstrap is not known": {histories: []History{plain(), orphan}, lineage: first, want: []int64{60, 61, 70},
			reach: 70, says: "not known"},
		"a newer lineage whose parent is gone": {histories: []History{plain(), unsaved(third, second, 40)}, lineage: first,
			want: []int64{60, 61, 70}, reach: 70, says: "not known"},
		"an explicit lineage without a full is its parent": {histories: []History{plain(), unsaved(second, first, 40)},
			target: Target{Lineage: second}, lineage: first, want: []int64{30, 31, 40}, revision: 40, reach: 40},
		"an explicit lineage without anything": {histories: []History{plain(), unsaved(second, "", 0)}, target: Target{Lineage: second},
			err: ErrEmpty},
		"bootstraps that name each other end": {histories: []History{looped, history(third, 90, second, 1070)}, err: ErrEmpty},
		"a full that holds more than the fork is not taken": {histories: []History{history(first, 0, "", 0, full(50, 0)), unsaved(second, first, 40)},
			target: Target{Lineage: second}, err: ErrEmpty},

		"of two histories with one epoch none is guessed": {histories: []History{plain(), child, history(twin, 82, first, 60, full(2000, 83))},
			err: ErrAmbiguous, says: "00000002-bb and 00000002-dd"},
		"the one with a full is taken": {histories: []History{plain(), child, unsaved(twin, first, 60)}, lineage: second,
			want: []int64{1040, 1041, 1050}, reach: 1050, says: "00000002-dd has the same epoch"},
		"or the one that is named": {histories: []History{plain(), child, history(twin, 82, first, 60, full(2000, 83))},
			target: Target{Lineage: twin}, lineage: twin, want: []int64{2000}, reach: 2000},
		"two that forked in two places and have no full": {histories: []History{plain(), unsaved(second, first, 40), unsaved(twin, first, 50)}, err: ErrAmbiguous},
		"two that forked in one place and have no full": {histories: []History{plain(), unsaved(second, first, 40), unsaved(twin, first, 40)},
			lineage: first, want: []int64{30, 31, 40}, revision: 40, reach: 40},
		"what both share needs no guess": {histories: []History{plain(), child, history(twin, 82, first, 40, full(2000, 83))},
			target: Target{Revision: 35}, lineage: first, want: []int64{1, 2, 10, 11, 20, 21, 30, 31, 40}, revision: 35, reach: 35},
		"a moment when only one lived needs no guess": {histories: []History{plain(), child, history(twin, 95, first, 60, full(2000, 96))},
			target: Target{Time: at(89)}, lineage: second, want: []int64{1040, 1041, 1050}, reach: 1050},
		"a moment when both lived does": {histories: []History{plain(), child, history(twin, 95, first, 60, full(2000, 96))},
			target: Target{Time: at(97)}, err: ErrAmbiguous},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := checkPlan(t, catalog(test.histories...), test.target, test.want, test.revision, test.reach, test.err, test.says)
			if test.err != nil {
				return
			}
			if p.Full.Lineage != test.lineage {
				t.Errorf("got lineage %s, want %s", p.Full.Lineage, test.lineage)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, test.says) {
				t.Errorf("got notes %q, want %q in them", notes, test.says)
			}
		})
	}
}

// of returns h with a cluster UID.
func of(uid string, h History) History {
	h.Formation.ClusterUID = uid
	return h
}

func TestDescents(t *testing.T) {
	const fourth, fifth = Lineage("00000004-ee"), Lineage("00000005-ff")
	unread := history(fifth, 0, "", 0)
	unread.Formation = nil
	// Our cluster was formed a second time, and a third time from the backup of that restore. A twin was restored from
	// the same backup.
	c := catalog(of("old", history(first, 0, "", 0)), of("us", history(second, 1, "", 0)), of("them", history(twin, 1, first, 5)),
		of("us", history(third, 2, first, 5)), of("", history(fourth, 3, "", 0)), unread)
	for l, want := range map[Lineage][]lineageFamily{
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

// Two Kubernetes clusters have an EtcdCluster of the same name and use the same bucket.
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

// TestRetentionKeepsForkPoint: retention keeps what another cluster forked from.
// A cluster that was restored from ours and has no full backup yet needs the history from which it forked.
func TestRetentionKeepsForkPoint(t *testing.T) {
	ours := of("us", history(first, 0, "", 0, full(1, 0), delta(2, 9, 1), full(10, 2), delta(11, 19, 3), full(20, 4), full(30, 5), full(40, 6)))
	theirs := of("them", history(second, 7, first, 15))
	for n, want := range map[int][]string{1: {"old", "unused", "old", "unused", "old", "second-newest", "newest"},
		2: {"old", "unused", "latest", "latest", "old", "second-newest", "newest"}} {
		var got []string
		for _, v := range catalog([]History{ours, theirs}[:n]...).Retain(first, Policy{Daily: 1}, Evidence{}, at(9)) {
			got = append(got, string(v.Reason))
		}
		diff(t, got, want)
	}
}
