package backups

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

// A Secret may come late, and its keys may change: nothing is saved in plain meanwhile, and no one restarts anything.
func TestBackupsWaitForTheirKeysAndFollowThem(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	path, keys := t.TempDir(), t.TempDir()
	set := func(name, content string) {
		if err := os.WriteFile(filepath.Join(keys, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: path}, Sealing: &store.Sealing{KeysDir: keys}})
	if err != nil {
		t.Fatal(err)
	}
	c := directory(path)
	c.Store = raw
	g := newGroup(t, 1)
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	a.Configure(c)
	a.start()
	put(t, client, 5)
	notified := func(says string) {
		eventually(t, "what stands in the way is reported", func() error {
			b, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo"))
			if err != nil || !strings.Contains(b.Error, says) || says == "" && b.Error != "" {
				return fmt.Errorf("the Lease says %+v, %w", b, err)
			}
			return nil
		})
	}
	notified("has no entry current")
	if h := history(t, s); len(h.Fulls)+len(h.Deltas) > 0 {
		t.Errorf("saved without a key: %+v", h)
	}
	set("a", strings.Repeat("a", 32))
	set("current", "a")
	savedUpTo(t, s, put(t, client, 5))
	notified("")
	set("b", strings.Repeat("b", 32))
	set("current", "b")
	last := put(t, client, 5)
	savedUpTo(t, s, last)
	proven(t, s, client, last)
	if used := keysUsed(t, path); used["a"] == 0 || used["b"] == 0 || used[""] > 0 {
		t.Errorf("objects by key: %v, want some of a, some of b and none in plain", used)
	}
}

// keysUsed counts the backups below path by the key that they are sealed with.
func keysUsed(t *testing.T, path string) map[string]int {
	t.Helper()
	used := map[string]int{}
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		// What has a dot in front is an upload under way, which has another name a moment later.
		if err != nil || e.IsDir() || filepath.Base(name) == "lineage.json" || strings.HasPrefix(filepath.Base(name), ".") {
			return err
		}
		content, err := os.ReadFile(name)
		_, id, _ := strings.Cut(string(content), "-> etcd-druid 1 ")
		id, _, _ = strings.Cut(id, "=")
		used[id]++
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return used
}

// The two sides of a name: what the API calls a level, and what zstd does.
func TestEachCompressionIsALevelOfItsOwn(t *testing.T) {
	seen := map[zstd.EncoderLevel]string{}
	for _, name := range config.CompressionLevels() {
		level := levelOf(config.Compression{Level: name})
		if other, twice := seen[level]; twice {
			t.Errorf("%s and %s are both %v", name, other, level)
		}
		if seen[level] = name; level.String() != strings.ToLower(name) {
			t.Errorf("%s is %v", name, level)
		}
	}
	if level := levelOf(config.Compression{}); level != zstd.SpeedFastest {
		t.Errorf("without a name it is %v, want the fastest", level)
	}
}
