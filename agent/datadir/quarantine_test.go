package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

func testIdentityFile() IdentityFile {
	return IdentityFile{
		Version: identityFileVersion, Cluster: "9d7c", ClusterID: 0xcdf818194e3a8c32, MemberID: 0x8e9e05c52164694d, Member: "demo-abcde",
		Epoch: 1, Lineage: "00000001-n0nce", Token: "default-demo-9d7c-1-n0nce", LeaseUID: "l", VolumeUID: "v",
	}
}

func TestIdentityFileIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadIdentityFile(dir); !errors.Is(err, ErrNoIdentityFile) {
		t.Errorf("read without an identity file: %v, want ErrNoIdentityFile", err)
	}
	must(t, WriteIdentityFile(dir, testIdentityFile()))
	got, err := ReadIdentityFile(dir)
	if diff := cmp.Diff(testIdentityFile(), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	raw, err := os.ReadFile(filepath.Join(dir, volume.IdentityFileName))
	if err != nil || !strings.Contains(string(raw), `"memberID": "8e9e05c52164694d"`) {
		t.Errorf("identity file %s, %v; want IDs in hex", raw, err)
	}
	info, err := os.Stat(volume.DataPath(dir))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory %v, %v; want 0700", info.Mode(), err)
	}
}

func TestIdentityFileIsNeverHalfUnderstood(t *testing.T) {
	tests := map[string]string{
		"no JSON":         "{",
		"empty":           "",
		"a later version": `{"version":3,"cluster":"9d7c"}`,
		"a version that an older agent would read, with an order": `{"version":1,"cluster":"9d7c","prepared":2}`,
		"no cluster":  `{"version":1}`,
		"a broken ID": `{"version":1,"cluster":"9d7c","memberID":"12xy"}`,
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, volume.IdentityFileName), []byte(content), 0o600))
			if got, err := ReadIdentityFile(dir); !errors.Is(err, ErrBadIdentityFile) || got != (IdentityFile{}) {
				t.Errorf("%+v, %v; want ErrBadIdentityFile and nothing else", got, err)
			}
		})
	}
	if err := WriteIdentityFile(t.TempDir(), IdentityFile{}); err == nil {
		t.Error("an identity file without a cluster was written")
	}
}

// TestOrderChangesIdentityVersion: an order changes the version of the identity file.
// An older agent reads only version 1, so it refuses a volume that acknowledges an order.
func TestOrderChangesIdentityVersion(t *testing.T) {
	dir, want := t.TempDir(), testIdentityFile()
	for version, prepared := range map[int]uint32{1: 0, 2: 7} {
		want.Prepared = prepared
		must(t, WriteIdentityFile(dir, want))
		want.Version = version
		if got, err := ReadIdentityFile(dir); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

func TestDirectoryOfAVolumeWithFSGroupIsOurs(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o770|os.ModeSetgid))
	must(t, os.Mkdir(volume.DataPath(dir), 0o770))
	must(t, os.Chmod(volume.DataPath(dir), 0o770|os.ModeSetgid))
	must(t, WriteIdentityFile(dir, testIdentityFile()))
	if info, err := os.Stat(volume.DataPath(dir)); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("data directory %v, %v; want 0700 alone", info.Mode(), err)
	}
}

func TestDataIsQuarantinedWithItsIdentityFile(t *testing.T) {
	dir := servedVolume(t)
	must(t, WriteIdentityFile(dir, testIdentityFile()))
	before, err := os.ReadFile(dbPath(dir))
	must(t, err)
	content := Content{
		Reason: "torn-wal", ClusterID: 0xcd, MemberID: 0x8e, Last: Position{Term: 3, Index: 77},
		Report: "corrupt (torn-wal)", Moved: time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC),
	}
	name, err := Quarantine(dir, content)
	if err != nil || name != "data.quarantine-0001-torn-wal" {
		t.Fatalf("%q, %v", name, err)
	}
	after, err := os.ReadFile(filepath.Join(dir, name, "member", "snap", "db"))
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("the db did not move along: %v", err)
	}
	if _, err := os.Stat(volume.DataPath(dir)); !os.IsNotExist(err) {
		t.Errorf("data directory: %v, want none", err)
	}
	if _, err := ReadIdentityFile(dir); !errors.Is(err, ErrNoIdentityFile) {
		t.Errorf("identity file: %v, want none", err)
	}
	if got, err := ReadIdentityFile(filepath.Join(dir, name)); err != nil || got != testIdentityFile() {
		t.Errorf("identity file of what was moved: %+v, %v", got, err)
	}
	got, err := AllQuarantined(dir)
	want := []Quarantined{{Name: name, Seq: 1, Content: content, Known: true}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if name, err := Quarantine(dir, content); name != "" || err != nil {
		t.Errorf("a second move: %q, %v; want nothing to do", name, err)
	}
}

func TestQuarantineNamesAreNeverUsedTwice(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for _, reason := range []string{"stale", "Foreign: other/../cluster", "", strings.Repeat("x", 99)} {
		must(t, os.Mkdir(volume.DataPath(dir), 0o700))
		name, err := Quarantine(dir, Content{Reason: reason})
		must(t, err)
		names = append(names, name)
	}
	want := []string{
		"data.quarantine-0001-stale", "data.quarantine-0002-foreign--other----cluster", "data.quarantine-0003-unknown",
		"data.quarantine-0004-" + strings.Repeat("x", 40),
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPruneIsDecidedOverAllFacts(t *testing.T) {
	cases := rulestest.Check(t, pruneRules, func(f PruneFacts, d rules.Decision[PruneVerdict]) string {
		current := f.Current == rules.Yes && f.Undecided == rules.No
		want := KeepQuarantined
		switch {
		case current && f.Full == rules.Yes:
			want = DeleteExpired
		case current && f.Voter == rules.Yes && f.Quorum == rules.Yes:
			want = DeleteQuarantined
		}
		if d.Verdict != want {
			return "old data goes although it may be needed, or stays for nothing"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "prune", "Quarantined data: agent/datadir.pruneRules",
		"Each agent uses this table after its etcd has started, and then every hour. Before a start it uses the table only for a volume that is full.",
		pruneRules, cases)
	if d := DecidePrune(PruneFacts{}); d.Verdict != KeepQuarantined {
		t.Errorf("no facts: %+v, want to keep", d)
	}
}

func TestBestQuarantinedDataIsPrunedLast(t *testing.T) {
	const ours, other = 0xcd, 0xef
	quarantined := func(seq int, cluster ID, term, index uint64) Quarantined {
		return Quarantined{Name: "n", Seq: seq, Known: true, Content: Content{ClusterID: cluster, Last: Position{Term: term, Index: index}}}
	}
	order := PruneOrder([]Quarantined{
		quarantined(1, ours, 4, 10), {Name: "n", Seq: 2}, quarantined(3, ours, 3, 999), quarantined(4, other, 9, 9999), quarantined(5, ours, 4, 9),
		quarantined(6, ours, 4, 10), quarantined(7, 0, 0, 0),
	}, ours)
	var seqs []int
	for _, a := range order {
		seqs = append(seqs, a.Seq)
	}
	if diff := cmp.Diff([]int{7, 4, 3, 5, 1, 6, 2}, seqs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPruneDeletesOnlyQuarantinedData(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		must(t, os.MkdirAll(filepath.Join(dir, "data", "member", "wal"), 0o700))
		_, err := Quarantine(dir, Content{Reason: "stale"})
		must(t, err)
	}
	must(t, os.Mkdir(volume.DataPath(dir), 0o700))
	must(t, os.Mkdir(filepath.Join(dir, "data.quarantine-of-a-person"), 0o700))
	// A former prune that was cut short.
	must(t, os.Rename(filepath.Join(dir, "data.quarantine-0003-stale"), filepath.Join(dir, prunedPrefix+"data.quarantine-0003-stale")))
	if left, err := Leftovers(dir); err != nil || len(left) != 1 {
		t.Errorf("a prune was begun, and %q is left: %v", left, err)
	}
	for _, name := range []string{"data", "../data.quarantine-0001-stale", "data.quarantine-0001-stale/..", ""} {
		if err := Prune(dir, name); err == nil {
			t.Errorf("prune of %q was done", name)
		}
	}
	must(t, Prune(dir, "data.quarantine-0001-stale"))
	if left, err := Leftovers(dir); err != nil || len(left) != 0 {
		t.Errorf("the prune is over, and %q is left: %v", left, err)
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"data", "data.quarantine-0002-stale", "data.quarantine-of-a-person"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRestoredDataTakesOnlyEmptyPlace: what was restored takes an empty place alone.
func TestRestoredDataTakesOnlyEmptyPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		before []string // directories
		fails  bool
	}{
		"the identity file made the place": {[]string{volume.DataDir}, false},
		"there is no place yet":            {nil, false},
		"something is in it":               {[]string{filepath.Join(volume.DataDir, "member")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, path := range append(tc.before, filepath.Join(volume.RestoredDir, "member", "wal")) {
				if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := PlaceRestored(dir); (err != nil) != tc.fails {
				t.Fatal(err)
			}
			_, err := os.Stat(filepath.Join(volume.DataPath(dir), "member", "wal"))
			if placed := err == nil; placed == tc.fails {
				t.Errorf("placed: %t, %v", placed, err)
			}
			if _, err := os.Stat(volume.RestoredPath(dir)); (err == nil) != tc.fails {
				t.Errorf("what was restored: %v", err)
			}
		})
	}
}

func TestPruneDropsWhatARestoreLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{volume.DataDir, volume.RestoredDir, volume.RestoredDir + ".restoring", volume.QuarantinePrefix + "0001-stale"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "member"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := Leftovers(dir); len(left) == 0 || err != nil {
		t.Errorf("left: %q, %v", left, err)
	}
	// Before etcd runs, it can be the only data of a raft group that a recovery formed.
	if err := Prune(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(volume.RestoredPath(dir)); err != nil {
		t.Errorf("Prune deleted the restored data: %v", err)
	}
	if err := DropLeftovers(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != volume.DataDir {
		t.Errorf("left are %v, %v", entries, err)
	}
}
