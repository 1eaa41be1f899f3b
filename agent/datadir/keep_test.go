package datadir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestExpiryIsDecidedOverAllFacts(t *testing.T) {
	cases := rulestest.Check(t, keepRules, func(f KeepFacts, d rules.Decision[KeepVerdict]) string {
		counted := f.Watched == WatchedAll || f.Over == rules.Yes && f.Server == rules.Yes && (f.Watched == WatchedDay || f.Full == rules.Yes)
		copied := f.Held == rules.Yes && f.Full == rules.No
		want := KeepCopy
		if f.Replaced == rules.No && f.Full == rules.No || f.Replaced == rules.Yes && (counted || copied) {
			want = DropCopy
		}
		if d.Verdict != want {
			return "data goes by one clock or one look, or stays for nothing"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "keep", "Time of quarantined data: agent/datadir.keepRules",
		"Each agent uses this table for each directory in quarantine, before the table of quarantined data.", keepRules, cases)
	if d := keepRules.Decide(KeepFacts{}); d.Verdict != KeepCopy {
		t.Errorf("no facts: %+v, want to keep", d)
	}
}

// droppable is what may go by two clocks that agree, for an agent that saw it for long enough.
func droppable(quarantined []Quarantined, now time.Time, room Room) []Quarantined {
	return Droppable(quarantined, Clocks{Node: now, Server: now}, room, func(Quarantined) Watched { return WatchedDay }, false)
}

// Data that was replaced expires after seven days by both clocks, or by the looks of one agent. Other data never does: only a quorum that
// has its content replaces it.
func TestOnlyReplacedDataExpires(t *testing.T) {
	now := time.Date(2026, 11, 27, 4, 0, 0, 0, time.UTC)
	var all []Quarantined
	for _, reason := range []string{ReasonSurvivor, ReasonSuperseded, ReasonDiffers, "stale", "torn-wal", ""} {
		for _, age := range []time.Duration{keepReplaced, keepReplaced - time.Second, -time.Hour} {
			all = append(all, Quarantined{Name: fmt.Sprint(reason, " ", age), Content: Content{Reason: reason, Moved: now.Add(-age)}})
		}
	}
	expired := []string{"survivor 168h0m0s", "superseded 168h0m0s", "differs 168h0m0s"}
	const year = 365 * 24 * time.Hour
	var watched []string // whatever the clocks say about it
	for _, a := range all {
		if a.replaced() {
			watched = append(watched, a.Name)
		}
	}
	for name, test := range map[string]struct {
		now  Clocks
		seen time.Duration
		full bool
		want []string
	}{
		"both clocks, watched":               {Clocks{now, now}, WatchTime, true, expired},
		"both clocks, before a start":        {Clocks{now, now}, 0, true, expired},
		"the clock of the node is behind":    {Clocks{now.Add(-time.Second), now}, WatchTime, true, nil},
		"the clock of the node is ahead":     {Clocks{now, now.Add(-time.Second)}, WatchTime, true, nil},
		"the clock of the node alone":        {Clocks{Node: now.Add(30 * 24 * time.Hour)}, WatchTime, true, nil},
		"both clocks, without a full disk":   {Clocks{now, now}, WatchTime - 1, false, nil},
		"both were a year ahead at the move": {Clocks{now.Add(-year), now.Add(-year)}, keepReplaced, false, watched},
		"the same, a moment before":          {Clocks{now.Add(-year), now.Add(-year)}, keepReplaced - 1, false, nil},
		"the same, without room to start":    {Clocks{now.Add(-year), now.Add(-year)}, keepReplaced, true, watched},
		"no clock but that of the looks":     {Clocks{}, keepReplaced, false, watched},
	} {
		var names []string
		for _, a := range Droppable(all, test.now, Room{}, func(Quarantined) Watched { return WatchedFor(test.seen, WatchTime) }, test.full) {
			if test.full || a.replaced() {
				names = append(names, a.Name)
			}
		}
		if diff := cmp.Diff(test.want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if c := (Clocks{Node: now, Server: now.Add(time.Hour)}); !c.Later().Equal(c.Server) || !(Clocks{Node: now}).Later().Equal(now) {
		t.Error("the time of a move is not that of the later clock")
	}
}

// A clock that is set while the agent runs starts the time again for which it saw the data. So does another directory of the same name.
func TestTheTimeOfALookIsMonotonic(t *testing.T) {
	start := time.Date(2026, 11, 27, 4, 0, 0, 0, time.UTC)
	a := Quarantined{Name: "data.quarantine-0001-survivor", Content: Content{Moved: start.In(time.FixedZone("", 3600))}}
	again := a
	again.Content.Moved = start.Add(time.Hour)
	type look struct {
		wall, running time.Duration
		data          Quarantined
		seen          time.Duration
	}
	for name, looks := range map[string][]look{
		"an even clock":       {{0, 0, a, 0}, {time.Hour, time.Hour, a, time.Hour}, {25 * time.Hour, 25 * time.Hour, a, 25 * time.Hour}},
		"a clock that drifts": {{0, 0, a, 0}, {time.Hour + maxStep, time.Hour, a, time.Hour}},
		"eight days ahead":    {{0, 0, a, 0}, {193 * time.Hour, time.Hour, a, 0}, {194 * time.Hour, 2 * time.Hour, a, time.Hour}},
		"and corrected":       {{192 * time.Hour, 0, a, 0}, {time.Hour, time.Hour, a, 0}},
		"a later directory":   {{0, 0, a, 0}, {time.Hour, time.Hour, again, 0}},
	} {
		var w Watch
		for i, l := range looks {
			l.data.Content.Moved = l.data.Content.Moved.In(time.FixedZone("", 3600)) // as each reading of the description has its own
			w.Look([]Quarantined{l.data}, start.Add(l.wall), l.running)
			if got := w.Seen(l.data); got != l.seen {
				t.Errorf("%s: look %d: seen for %s, want %s", name, i, got, l.seen)
			}
		}
		if got := w.Seen(Quarantined{Name: "other"}); got != 0 {
			t.Errorf("%s: what is not there was seen for %s", name, got)
		}
	}
}

// If one more database does not fit, only that is left of what was replaced which no later copy has. A later copy of the raft group that
// was formed from a disk has all of that disk. It is not known what a damaged copy has.
func TestReplacedDataIsKeptWithinItsBudget(t *testing.T) {
	now := time.Unix(10_000_000, 0)
	var quarantined []Quarantined
	for i, content := range []Content{
		{Reason: ReasonSurvivor, Lineage: "1", FormedInto: "2"}, {Reason: ReasonSuperseded, Lineage: "1"}, {Reason: ReasonSurvivor, Lineage: "2", FormedInto: "3"},
		{Reason: ReasonDiffers, Lineage: "3"}, {Reason: ReasonSurvivor, Lineage: "3", FormedInto: "4"},
	} {
		content.Moved, content.Intact = now, true
		quarantined = append(quarantined, Quarantined{Name: fmt.Sprintf("%d-%s", i+1, content.Reason), Seq: i + 1, Content: content, Known: true})
	}
	for name, test := range map[string]struct {
		room Room
		want []string
	}{
		"room for one more":      {Room{Free: 1<<30 + LogRoom, Database: 1 << 30}, nil},
		"one byte less":          {Room{Free: 1<<30 + LogRoom - 1, Database: 1 << 30}, []string{"1-survivor", "3-survivor"}},
		"a full volume":          {Room{Database: 1 << 30}, []string{"1-survivor", "3-survivor"}},
		"room that is not known": {Room{}, nil},
	} {
		var got []string
		for _, a := range droppable(quarantined, now, test.room) {
			got = append(got, a.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
	for name, test := range map[string]struct {
		later Content
		held  bool
	}{
		"the raft group that was formed from it": {Content{Reason: ReasonSurvivor, Lineage: "2", ClusterID: 2}, true},
		"the same, when it was replaced too":     {Content{Reason: ReasonSuperseded, Lineage: "2", ClusterID: 2}, true},
		"the same, which differed":               {Content{Reason: ReasonDiffers, Lineage: "2", ClusterID: 2}, false},
		"the same, which is damaged":             {Content{Reason: "torn-wal", Lineage: "2", ClusterID: 2}, false},
		"a raft group from a backup":             {Content{Reason: ReasonSurvivor, Lineage: "3", ClusterID: 3}, false},
		"more of the same raft group":            {Content{Reason: ReasonSuperseded, ClusterID: 1, Last: Position{Term: 2, Index: 9}}, true},
		"less of the same raft group":            {Content{Reason: ReasonSuperseded, ClusterID: 1, Last: Position{Term: 2, Index: 7}}, false},
		"another raft group":                     {Content{Reason: ReasonSuperseded, ClusterID: 2, Last: Position{Term: 2, Index: 9}}, false},
		"another reason":                         {Content{Reason: ReasonDiffers, ClusterID: 1, Last: Position{Term: 2, Index: 9}}, false},
	} {
		copies := []Quarantined{
			{Seq: 1, Content: Content{
				Reason: ReasonSuperseded, ClusterID: 1, Last: Position{Term: 2, Index: 8}, FormedInto: "2", Moved: now, Intact: true,
			}},
			{Seq: 2, Content: test.later},
		}
		copies[1].Content.Moved = now
		for _, damaged := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			copies[0].Content.Intact, copies[1].Content.Intact = !damaged[0], !damaged[1]
			got := droppable(copies, now, Room{Database: 1})
			held := slices.ContainsFunc(got, func(a Quarantined) bool { return a.Seq == 1 })
			if held != (test.held && damaged == [2]bool{}) {
				t.Errorf("%s, the first and the second damaged %v: %+v", name, damaged, got)
			}
		}
	}
	unknown := []Quarantined{{Seq: 1, Content: Content{Reason: ReasonSurvivor, Moved: now}}, {Seq: 2, Content: Content{Reason: ReasonSurvivor, Moved: now}}}
	if got := droppable(unknown, now, Room{Database: 1}); len(got) != 0 {
		t.Errorf("copies of which neither the raft group nor its source is known: %+v", got)
	}
	dir := t.TempDir()
	if room := RoomOf(dir); room != (Room{}) || room.short() {
		t.Errorf("a volume without data: %+v", room)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "data", "member", "snap"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "data", "member", "snap", "db"), make([]byte, 4096), 0o600))
	if room := RoomOf(dir); room.Database != 4096 || room.Free <= 0 {
		t.Errorf("a volume with data: %+v", room)
	}
}
