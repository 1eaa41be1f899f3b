package bootstrap

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/chain"
	single "github.com/etcd-druid/druid/test/member"
)

// savedOften is a store with a full, a delta, a full of where that ends, and, with key 4 in it, a full that no delta leads to.
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

func TestADamagedFullIsRestoredAroundUnlessThatLosesSomething(t *testing.T) {
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
		if notified := seed.notified(func(p Published) bool {
			return p.Mode == ModeRestore && strings.HasPrefix(p.Reason, "restoring ") && strings.HasSuffix(p.Reason, "damaged: "+covered)
		}); len(notified) == 0 {
			t.Errorf("it informed of nothing that it did without: %+v", seed.notified(func(Published) bool { return true }))
		}
		if log := seed.log(); !strings.Contains(log, `msg="damaged backups left out" objects=[`+covered+`]`) {
			t.Error("the log does not name what it did without")
		}
		c.eventually("the store has the record of the lineage", func() error {
			record, _ := c.record()
			bootstrap, err := chain.ReadBootstrap(t.Context(), placeAt(t, copied, "ns/c").Store, "ns/c", chain.Lineage(record.Lineage))
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
		if notified := seed.last().Reason; !strings.Contains(notified, "full "+alone+" is damaged") || !strings.Contains(notified, "spec.bootstrap.restore.to") {
			t.Errorf("it says %q", notified)
		}
		if left, err := datadir.PruneBegun(seed.cfg.VolumePath); left || err != nil {
			t.Errorf("what was begun is left: %t, %v", left, err)
		}
	})
}
