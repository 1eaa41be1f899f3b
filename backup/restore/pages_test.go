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
func TestAFileThatWasDamagedWhenItWasSavedIsNamed(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 13)
	s.traffic(100)
	good := s.saved()
	meta := metaOf(t, good)
	named := 0
	for page := uint64(2); page < meta.End && named < 20; page++ {
		at := int(page * meta.PageSize)
		if boltpage.ID(good[at:]) != page { // it goes on with a value of the page before
			continue
		}
		t.Run(fmt.Sprint("page ", page), func(t *testing.T) {
			file := s.fileOf("damaged.db", summed(flip(unsummed(good), at)))
			g := newTarget(t)
			_, err := Run(t.Context(), g.ofFile(s, file, "3.6"))
			switch {
			case err == nil: // nothing refers to that page
			case !isFileError(err) || !strings.Contains(err.Error(), fmt.Sprint("page ", page)):
				t.Error(err)
			default:
				named++
				untouched(t, g)
			}
		})
	}
	if named < 8 {
		t.Errorf("only %d pages of %d were named", named, meta.End)
	}
}

func TestAFullThatWasDamagedWhenItWasTakenIsNamed(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 14)
	s.settled(50)
	taken, good := s.full(), s.saved()
	meta := metaOf(t, good)
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, flip(unsummed(good), int(meta.Root*meta.PageSize)), 0o600); err != nil {
		t.Fatal(err)
	}
	put, err := snapshot.Synthesize(t.Context(), snapshot.Synthesized{Store: s.store, Key: "damaged", Path: path, Trailer: taken.Trailer})
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.Find(t.Context(), s.store, put.Key)
	if err != nil {
		t.Fatal(err)
	}
	p := chain.Plan{Full: s.named(taken.Key)}
	p.Full.Key, p.Full.Size = o.Key, o.Size
	g := newTarget(t)
	_, err = Run(t.Context(), g.config(s, p, "3.6"))
	if found, ok := errors.AsType[*snapshot.DamagedError](err); !ok || found.Object != put.Key || !strings.Contains(err.Error(), "calls itself") {
		t.Errorf("it ends with %v", err)
	}
	untouched(t, g)
}

func metaOf(t *testing.T, database []byte) boltpage.Meta {
	t.Helper()
	meta, ok := boltpage.ParseMeta(database)
	if !ok {
		t.Fatal("it does not begin with a meta page")
	}
	return meta
}
