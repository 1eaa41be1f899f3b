package bootstrap

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/history"
)

func TestNothingIsFormedOfWhatIsNotThereOrNotWhole(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	place, last := saved(t, "3.6", path, "ns/c")
	var full, changes string
	for o, err := range place.Store.List(t.Context(), "ns/c/") {
		must(t, err)
		switch {
		case strings.Contains(o.Key, "/full/"):
			full = o.Key
		case strings.Contains(o.Key, "/delta/"):
			changes = o.Key
		}
	}
	ordered := config.Restore{Prefix: "ns/c"}
	for name, tc := range map[string]struct {
		order config.Restore
		// spoil the copy of the store.
		spoil func(t *testing.T, path string)
		rule  string
		says  string
	}{
		"nothing was saved":          {config.Restore{Prefix: "ns/other"}, nil, "nothing-to-restore", `there is no full below "ns/other"`},
		"not yet that much":          {config.Restore{Prefix: "ns/c", Revision: last + 9}, nil, "nothing-to-restore", fmt.Sprintf("does not hold revision %d", last+9)},
		"the directory is not there": {ordered, func(t *testing.T, path string) { must(t, os.RemoveAll(path)) }, "store-unreachable", "no such bucket"},
		"the full is damaged":        {ordered, func(t *testing.T, path string) { flip(t, filepath.Join(path, full)) }, "backup-unusable", full},
		"a delta is damaged":         {ordered, func(t *testing.T, path string) { flip(t, filepath.Join(path, changes)) }, "backup-unusable", changes},
		"two histories of one epoch": {ordered, func(t *testing.T, path string) {
			other := placeAt(t, path, "ns/c")
			other.Lineage = "00000004-02d"
			other.Formation(t, "uid-older")
			content, err := os.ReadFile(filepath.Join(path, full))
			must(t, err)
			key := strings.Replace(full, string(oldLineage), string(other.Lineage), 1)
			_, err = other.Store.Put(t.Context(), key, bytes.NewReader(content), store.PutOptions{})
			must(t, err)
		}, "backup-unusable", "00000004-02d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := filepath.Join(t.TempDir(), "store")
			must(t, os.CopyFS(copied, os.DirFS(path)))
			if tc.spoil != nil {
				tc.spoil(t, copied)
			}
			c := newCluster(t, "3.6.16", "c-a")
			seed := c.members["c-a"]
			seed.savedAt(copied)
			seed.restores(tc.order)
			seed.start()
			c.beginsNothing("c-a", tc.rule, tc.says)
		})
	}
}

// flip a bit in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	content[len(content)/2] ^= 1
	must(t, os.WriteFile(path, content, 0o600))
}

func TestAClusterWithBackupsIsFormedOnlyWhereItNeverWas(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, place history.Place)
		rule    string
		says    string
		epoch   uint32
	}{
		"nothing was saved":                       {func(*testing.T, history.Place) {}, "first-boot", "", 1},
		"a cluster of that name was saved before": {func(t *testing.T, place history.Place) { place.Formation(t, "uid-old") }, "first-boot", "", 5},
		"this cluster was saved before":           {func(t *testing.T, place history.Place) { place.Formation(t, "uid-c") }, "backup-present", string(oldLineage), 1},
		"no one knows which cluster was saved": {func(t *testing.T, place history.Place) {
			key := chain.FullKey(place.Prefix, place.Lineage, 7, time.Now())
			_, err := place.Store.Put(t.Context(), key, strings.NewReader("a full"), store.PutOptions{})
			must(t, err)
		}, "backup-present", string(oldLineage), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			tc.prepare(t, placeAt(t, path, "ns/c"))
			c := newCluster(t, "3.6.16", "c-a")
			seed := c.members["c-a"]
			seed.savedAt(path)
			seed.start()
			c.decides("c-a", tc.rule)
			if notified := seed.last(); !strings.Contains(notified.Reason, tc.says) {
				t.Errorf("it says %q, want %q in it", notified.Reason, tc.says)
			}
			if tc.rule == "first-boot" {
				c.voters("c-a")
			}
			if record, _ := c.record(); record.Epoch != tc.epoch {
				t.Errorf("the record says %+v, want epoch %d", record, tc.epoch)
			}
		})
	}
}
