package start

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/history"
	single "github.com/etcd-druid/druid/test/member"
)

// TestNothingFormedFromPartialBackup: nothing is formed of what is not there or not whole.
func TestNothingFormedFromPartialBackup(t *testing.T) {
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
		// spoil damages the copy of the store.
		spoil func(t *testing.T, path string)
		rule  string
		says  string
	}{
		"nothing was saved": {config.Restore{Prefix: "ns/other"}, nil, "nothing-to-restore", `no full backup below "ns/other"`},
		"not yet that much": {config.Restore{Prefix: "ns/c", Revision: last + 9}, nil, "nothing-to-restore",
			fmt.Sprintf("does not hold revision %d", last+9)},
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

// flip inverts a bit in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	content[len(content)/2] ^= 1
	must(t, os.WriteFile(path, content, 0o600))
}

// TestBackedUpClusterFormedOnlyOnce: a cluster with backups is formed only if it never existed.
func TestBackedUpClusterFormedOnlyOnce(t *testing.T) {
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
		"it is unknown which cluster was saved": {func(t *testing.T, place history.Place) {
			key := catalog.FullKey(place.Prefix, place.Lineage, 7, time.Now())
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
			if reported := seed.last(); !strings.Contains(reported.Reason, tc.says) {
				t.Errorf("it says %q, want %q in it", reported.Reason, tc.says)
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

// savedOften is a store with a full backup, a delta backup and a full backup at the end of that delta. It also has a
// full backup with key 4 that no delta reaches.
func savedOften(t *testing.T, path string) (covered, alone string, last int64) {
	t.Helper()
	place := placeAt(t, path, "ns/c")
	source := single.Start(t, "3.6", single.Options{Token: "old"})
	put := func(key string) {
		_, err := source.Client.Put(t.Context(), key, "value of "+key)
		must(t, err)
	}
	place.Formation(t, "uid-old")
	put("1")
	put("2")
	first := place.Full(t, source.Client)
	put("3")
	_, err := source.Client.Delete(t.Context(), "2")
	must(t, err)
	last = place.Delta(t, source.Client, first.Revision)
	covered = place.Full(t, source.Client).Key
	put("4")
	return covered, place.Full(t, source.Client).Key, last
}

// TestDamagedFullSkippedIfNothingLost: a damaged full is restored around unless that loses something.
func TestDamagedFullSkippedIfNothingLost(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	covered, alone, last := savedOften(t, path)
	place := func(t *testing.T, damaged string) (string, *cluster) {
		t.Helper()
		copied := filepath.Join(t.TempDir(), "store")
		must(t, os.CopyFS(copied, os.DirFS(path)))
		flip(t, filepath.Join(copied, damaged))
		c := newCluster(t, "3.6.16", "c-a")
		c.members["c-a"].savedAt(copied)
		c.members["c-a"].restores(config.Restore{Prefix: "ns/c"})
		return copied, c
	}
	t.Run("older ones hold all of it", func(t *testing.T) {
		t.Parallel()
		copied, c := place(t, covered)
		must(t, os.Remove(filepath.Join(copied, alone)))
		seed := c.members["c-a"]
		seed.start()
		c.voters("c-a")
		c.holdsWhatWasSaved("c-a", last)
		if reported := seed.reported(func(p Published) bool {
			return p.Mode == ModeRestore && strings.HasPrefix(p.Reason, "restoring ") && strings.HasSuffix(p.Reason, "damaged: "+covered)
		}); len(reported) == 0 {
			t.Errorf("it did not report what it left out: %+v", seed.reported(func(Published) bool { return true }))
		}
		if log := seed.log(); !strings.Contains(log, `msg="damaged backups skipped" objects=[`+covered+`]`) {
			t.Error("the log does not name what it did without")
		}
		c.eventually("the store has the record of the lineage", func() error {
			record, _ := c.record()
			bootstrap, err := catalog.ReadBootstrap(t.Context(), placeAt(t, copied, "ns/c").Store, "ns/c", catalog.Lineage(record.Lineage))
			if err == nil && (bootstrap.Parent != oldLineage || bootstrap.Fork != last) {
				err = fmt.Errorf("it is %+v", bootstrap)
			}
			return err
		})
	})
	t.Run("it alone holds the end", func(t *testing.T) {
		t.Parallel()
		_, c := place(t, alone)
		seed := c.members["c-a"]
		seed.start()
		c.beginsNothing("c-a", "backup-unusable", "--without "+alone)
		if reported := seed.last().Reason; !strings.Contains(reported, "full backup "+alone+" is damaged") ||
			!strings.Contains(reported, "spec.bootstrap.restore.to") {
			t.Errorf("it says %q", reported)
		}
		if left, err := datadir.Leftovers(seed.cfg.VolumePath); len(left) > 0 || err != nil {
			t.Errorf("what was begun is left: %q, %v", left, err)
		}
	})
}

// versions are the versions of etcd that the tests run.
var versions = []string{"3.5.35", "3.6.16", "3.7.3"}

func TestThreeMembersFormOneCluster(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run("etcd "+version[:3], func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, version, "c-a", "c-b", "c-c")
			began := time.Now()
			for _, m := range c.members {
				m.start()
			}
			ids := c.voters("c-a", "c-b", "c-c")
			t.Logf("three voters after %s", time.Since(began))
			record, _ := c.record()
			if record.Phase != leases.PhaseFormed || record.FormedEpoch != 1 {
				t.Errorf("the record says %+v", record)
			}
			memberID, clusterID, err := membership.ExpectedIDs("c-a", "http://"+c.members["c-a"].cfg.ListenHost+":2380",
				record.Token(c.ns, "c", "uid-c"))
			if err != nil || ids["c-a"] != memberID || record.ClusterID != clusterID {
				t.Errorf("etcd gave %x, expected %x in cluster %x, err %v; the record says %x", ids["c-a"], memberID, clusterID, err, record.ClusterID)
			}
			if deeds := slices.Compact(c.members["c-a"].deeds()); !slices.Equal(deeds, []string{"first-boot"}) {
				t.Errorf("the seed decided by %v", deeds)
			}
			for _, name := range []string{"c-b", "c-c"} {
				if rules := c.members[name].rules(); slices.Contains(rules, "first-boot") || !slices.Contains(rules, "join") {
					t.Errorf("%s decided by %v", name, rules)
				}
			}
			if limit := record.MaxLearners; (version[:3] == "3.5") != (limit == leases.MaxLearners35) {
				t.Errorf("max-learners is %d", limit)
			}
		})
	}
}

func (c *cluster) put(name, key, value string) {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	c.eventually("write "+key, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 15*time.Second)
		defer cancel()
		_, err := client.Put(ctx, key, value)
		return err
	})
}

func (c *cluster) get(name, key string) string {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	var value string
	c.eventually("read "+key, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 15*time.Second)
		defer cancel()
		resp, err := client.Get(ctx, key, clientv3.WithSerializable())
		if err != nil || len(resp.Kvs) == 0 {
			return fmt.Errorf("%v, err %w", resp, err)
		}
		value = string(resp.Kvs[0].Value)
		return nil
	})
	return value
}

// stable waits until a replacement is complete.
func (c *cluster) stable(name string) {
	c.t.Helper()
	c.eventually(name+" gives the slot back", func() error {
		if record, _ := c.record(); record.Replacing != nil {
			return fmt.Errorf("the slot holds %+v", record.Replacing)
		}
		return nil
	})
}
