package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/boltpage"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// A database that was damaged on the disk of its etcd has checksums that hold. bbolt would end the process at it.
func TestADatabaseThatWasDamagedWhenItWasSavedIsNamed(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 13)
	s.traffic(100)
	taken := s.full()
	good := s.saved()
	meta, ok := boltpage.ParseMeta(good)
	if !ok {
		t.Fatal("the file does not begin with a meta page")
	}
	named := 0
	for page := uint64(2); page < meta.End && named < 20; page++ {
		at := int(page * meta.PageSize)
		if boltpage.ID(good[at:]) != page { // it goes on with a value of the page before
			continue
		}
		file := s.fileOf("damaged.db", summed(flip(unsummed(good), at)))
		g := newTarget(t)
		_, err := Run(t.Context(), g.ofFile(s, file, "3.6"))
		switch {
		case err == nil: // nothing refers to that page
		case !isFileError(err) || !strings.Contains(err.Error(), fmt.Sprint("page ", page)):
			t.Errorf("page %d: %v", page, err)
		default:
			named++
			untouched(t, g)
		}
	}
	if named < 8 {
		t.Errorf("only %d pages of %d were named", named, meta.End)
	}
	p := chain.Plan{Full: s.named(taken.Key)}
	p.Full.Key = "damaged"
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, flip(unsummed(good), int(meta.Root*meta.PageSize)), 0o600); err != nil {
		t.Fatal(err)
	}
	put, err := snapshot.Synthesize(t.Context(), snapshot.Synthesized{Store: s.store, Key: p.Full.Key, Path: path, Trailer: taken.Trailer})
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.Find(t.Context(), s.store, put.Key)
	if err != nil {
		t.Fatal(err)
	}
	p.Full.Size = o.Size
	g := newTarget(t)
	_, err = Run(t.Context(), g.config(s, p, "3.6"))
	if found, ok := errors.AsType[*snapshot.DamagedError](err); !ok || found.Object != put.Key || !strings.Contains(err.Error(), "calls itself") {
		t.Errorf("a full: %v", err)
	}
	untouched(t, g)
}
