package membership

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

// brokenDefrag names the invariant that a decision violates, or returns the empty string.
func brokenDefrag(f DefragFacts, d DefragDecision) string {
	acts := d.Verdict == Defrag || d.Verdict == DefragMove
	sound := f.Authoritative == rules.Yes && f.Leads == rules.Yes && f.Stable == rules.Yes && f.Healthy == rules.Yes && f.Room == rules.Yes
	wanted := f.Enabled == rules.Yes && f.Window == rules.Yes && f.Turn&(FollowerFragmented|LeaderFragmented) != 0
	switch {
	case acts && !wanted:
		return "acts although it is off, or no member is fragmented, or out of its window"
	case acts && !sound:
		return "acts without leadership, next to another change, on an ailing cluster, or without room"
	case acts && f.Alone != rules.No && f.Scheduled != rules.Yes:
		return "stalls the only member outside of its window"
	case d.Verdict == Defrag && f.Turn == LeaderFragmented && f.Alone != rules.Yes:
		return "stalls the leader"
	case d.Verdict == DefragMove && (f.Turn != LeaderFragmented || f.Alone == rules.Yes || f.Moved != rules.No):
		return "moves leadership although a follower is due, or there is no other member, or again"
	// The table must act whenever it is allowed to.
	case wanted && sound && !acts && (f.Alone == rules.No || f.Scheduled == rules.Yes) && (f.Turn == FollowerFragmented || f.Moved == rules.No):
		return "a member that may be defragmented is not"
	}
	return ""
}

func TestDefragsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, defrags, "defrags", "A fragmented database: membership.defrags",
		"Asked by the leader's agent once a minute. At most one member is defragmented, and nothing else changed, each time.", brokenDefrag)
}

// TestFragmentedAtBothThresholds: fragmented is what reaches both thresholds.
func TestFragmentedAtBothThresholds(t *testing.T) {
	const mib = 1 << 20
	defaults := Thresholds{FreePercent: 45, FreeBytes: 100 * mib}
	for name, tc := range map[string]struct {
		space Space
		want  bool
	}{
		"half of much":                         {Space{Size: 400 * mib, InUse: 200 * mib}, true},
		"exactly both":                         {Space{Size: 200 * mib, InUse: 100 * mib}, true},
		"most of little":                       {Space{Size: 90 * mib, InUse: 10 * mib}, false},
		"a little of much":                     {Space{Size: 4000 * mib, InUse: 3000 * mib}, false},
		"a byte less than the bytes":           {Space{Size: 200 * mib, InUse: 100*mib + 1}, false},
		"more in use than there is":            {Space{Size: 10 * mib, InUse: 20 * mib}, false},
		"a size that is not known":             {Space{}, false},
		"an empty one, whatever the threshold": {Space{Size: 10 * mib, InUse: 10 * mib}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := defaults.Fragmented(tc.space); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if (Thresholds{}).Fragmented(Space{Size: 5, InUse: 5}) {
		t.Error("thresholds of zero call a full database fragmented")
	}
}

func TestFollowersComeFirstByName(t *testing.T) {
	view := View{Members: []Member{{ID: 1, Name: "c"}, {ID: 2, Name: "b"}, {ID: 3, Name: "a"}, {ID: 9, Name: "l", Learner: true}}}
	full, half := Space{Size: 100, InUse: 100}, Space{Size: 100, InUse: 50}
	due := func(_ Member, s Space) bool { return Thresholds{FreePercent: 45}.Fragmented(s) }
	for name, tc := range map[string]struct {
		leader uint64
		spaces map[uint64]Space
		who    string
		want   Fragments
	}{
		"no-one":                             {1, map[uint64]Space{1: full, 2: full, 3: full}, "", NoOneFragmented},
		"the first follower":                 {1, map[uint64]Space{1: half, 2: half, 3: half}, "a", FollowerFragmented},
		"the second, when the first is done": {1, map[uint64]Space{1: half, 2: half, 3: full}, "b", FollowerFragmented},
		"a follower behind the leader":       {3, map[uint64]Space{1: half, 2: full, 3: half}, "c", FollowerFragmented},
		"the leader, when all are done":      {3, map[uint64]Space{1: full, 2: full, 3: half}, "a", LeaderFragmented},
		"one is not known":                   {3, map[uint64]Space{1: half, 3: half}, "", FragmentsUnknown},
		"one has no size":                    {3, map[uint64]Space{1: half, 2: {}, 3: half}, "", FragmentsUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if m, got := MostFragmented(view, tc.leader, tc.spaces, due); m.Name != tc.who || got != tc.want {
				t.Errorf("got %q, %s; want %q, %s", m.Name, got, tc.who, tc.want)
			}
		})
	}
}

// TestNoRepeatedUselessDefrag: no defragmentation is repeated for nothing.
func TestNoRepeatedUselessDefrag(t *testing.T) {
	after := Space{Size: 1000, InUse: 400}
	for name, tc := range map[string]struct {
		last DefragAttempt
		now  Space
		ago  time.Duration
		want bool
	}{
		"it helped, a moment ago":               {DefragAttempt{Helped: true, After: after}, after, time.Minute, false},
		"it helped, an hour ago":                {DefragAttempt{Helped: true, After: after}, after, time.Hour, true},
		"it gained nothing":                     {DefragAttempt{After: after}, after, 30 * 24 * time.Hour, false},
		"it gained nothing, hardly a change":    {DefragAttempt{After: after}, Space{Size: 1100, InUse: 440}, 2 * time.Hour, false},
		"it gained nothing, the file grew":      {DefragAttempt{After: after}, Space{Size: 1101, InUse: 400}, time.Hour, true},
		"it gained nothing, less is in use":     {DefragAttempt{After: after}, Space{Size: 1000, InUse: 359}, time.Hour, true},
		"it gained nothing, a moment ago":       {DefragAttempt{After: after}, Space{Size: 9000, InUse: 400}, time.Minute, false},
		"it failed once, an hour ago":           {DefragAttempt{Failures: 1, After: after}, after, time.Hour, true},
		"it failed three times, an hour ago":    {DefragAttempt{Failures: 3, After: after}, after, time.Hour, false},
		"it failed three times, long ago":       {DefragAttempt{Failures: 3, After: after}, after, 4 * time.Hour, true},
		"it failed a thousand times, yesterday": {DefragAttempt{Failures: 1000, After: after}, after, 24 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.last.Again(tc.now, tc.ago); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestStableIsExactlyTheDesiredVoters(t *testing.T) {
	a, b := Member{ID: 1, Name: "a"}, Member{ID: 2, Name: "b"}
	names := []string{"a", "b"}
	for name, tc := range map[string]struct {
		members []Member
		want    rules.Answer
	}{
		"all of them":          {[]Member{a, b}, rules.Yes},
		"one is missing":       {[]Member{a}, rules.No},
		"a stray in its place": {[]Member{a, {ID: 3, Name: "x"}}, rules.No},
		"a stray next to them": {[]Member{a, b, {ID: 3, Name: "x"}}, rules.No},
		"one still learns":     {[]Member{a, {ID: 2, Name: "b", Learner: true}}, rules.No},
		"one never started":    {[]Member{a, {ID: 2}}, rules.No},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Stable(View{Members: tc.members}, names); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
