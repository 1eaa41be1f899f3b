package backups

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/backups"
)

// changed returns a configuration with another store.
func changed(t *testing.T, c *config.Backup, change func(*store.Config)) *config.Backup {
	t.Helper()
	parsed, err := store.ParseConfig(c.Store)
	if err != nil {
		t.Fatal(err)
	}
	change(&parsed)
	copied := *c
	if copied.Store, err = json.Marshal(parsed); err != nil {
		t.Fatal(err)
	}
	return &copied
}

// A Secret can be created late, and its keys can change. Meanwhile, nothing is saved unencrypted, and no restart is
// needed.
func TestBackupsWaitForTheirKeysAndFollowThem(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	path, keys := t.TempDir(), backups.Keys(t)
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: path}, ClientEncryption: &store.ClientEncryption{KeysDir: keys}})
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
	reported := func(says string, cause leases.BackupCause) {
		eventually(t, "what stands in the way is reported", func() error {
			b, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo"))
			if err != nil || !strings.Contains(b.Error, says) || says == "" && b.Error != "" || b.Cause != cause {
				return fmt.Errorf("the Lease says %+v, %w", b, err)
			}
			return nil
		})
	}
	reported("has no entry current", leases.BackupKeyMissing)
	if h := history(t, s); len(h.Fulls)+len(h.Deltas) > 0 {
		t.Errorf("saved without a key: %+v", h)
	}
	backups.AddKey(t, keys, "a")
	backups.UseKey(t, keys, "a")
	savedUpTo(t, s, put(t, client, 5))
	reported("", "")
	backups.AddKey(t, keys, "b")
	backups.UseKey(t, keys, "b")
	last := put(t, client, 5)
	savedUpTo(t, s, last)
	verifyAll(t, s, client, last)
	if used := keysUsed(t, path, keys); used["a"] == 0 || used["b"] == 0 || used[""] > 0 {
		t.Errorf("objects by key: %v, want some of a, some of b and none in plain", used)
	}
}

func TestCausesOfTheStoreAreThoseOfTheLease(t *testing.T) {
	var got []leases.BackupCause
	for _, cause := range store.Causes() {
		got = append(got, leases.BackupCause(cause))
	}
	if diff := cmp.Diff(leases.BackupCauses(), got); diff != "" {
		t.Errorf("(-Lease +store)\n%s", diff)
	}
}

// keysUsed counts the backups below path by their encryption key.
func keysUsed(t *testing.T, path, keys string) map[string]int {
	t.Helper()
	used := map[string]int{}
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		// A name that starts with a dot is an upload in progress, which is renamed a moment later.
		if err != nil || e.IsDir() || filepath.Base(name) == "lineage.json" || strings.HasPrefix(filepath.Base(name), ".") {
			return err
		}
		by := ""
		for _, key := range []string{"a", "b"} {
			if backups.Decrypts(t, keys, key, name) {
				by = key
			}
		}
		used[by]++
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return used
}

// A compression level has two sides: its name in the API, and what zstd does.
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
