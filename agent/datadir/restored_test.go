package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/etcd-druid/druid/agent/datadir/volume"
)

func TestWhatWasRestoredTakesAnEmptyPlaceAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		before []string // directories
		fails  bool
	}{
		"the stamp made the place": {[]string{volume.DataDir}, false},
		"there is no place yet":    {nil, false},
		"something is in it":       {[]string{filepath.Join(volume.DataDir, "member")}, true},
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
	for _, name := range []string{volume.DataDir, volume.RestoredDir, volume.RestoredDir + ".restoring", volume.AsidePrefix + "0001-stale"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "member"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if begun, err := PruneBegun(dir); !begun || err != nil {
		t.Errorf("begun: %t, %v", begun, err)
	}
	if err := Prune(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != volume.DataDir {
		t.Errorf("left are %v, %v", entries, err)
	}
}
