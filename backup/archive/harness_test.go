package archive

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/backups"
)

const (
	prefix  = "ns/demo"
	lineage = catalog.Lineage("00000001-aa")
)

func newStore(t *testing.T) store.Store {
	t.Helper()
	s, err := dir.Open(store.Directory{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s store.Store, key string, content []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, bytes.NewReader(content), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s store.Store, key string) []byte {
	t.Helper()
	r, err := s.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func keys(t *testing.T, s store.Store) []string {
	t.Helper()
	var keys []string
	for o, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func read(t *testing.T, s store.Store, p string) catalog.Catalog {
	t.Helper()
	c, err := catalog.Read(t.Context(), s, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verify(t *testing.T, s store.Store) map[string]Finding {
	t.Helper()
	found := map[string]Finding{}
	err := Verify(t.Context(), s, read(t, s, prefix), func(f Finding) error {
		found[f.Key] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ofRealEtcd returns a store with the backups of a real etcd, and a function that copies it for each test that damages
// them.
func ofRealEtcd(t *testing.T) (fresh func(t *testing.T) store.Store, c catalog.Catalog) {
	t.Helper()
	s := newStore(t)
	c = backups.Make(t, s, prefix, catalog.Formation{Lineage: lineage, ClusterID: "c", Created: time.Now()})
	return func(t *testing.T) store.Store {
		t.Helper()
		into := newStore(t)
		for _, key := range keys(t, s) {
			write(t, into, key, get(t, s, key))
		}
		return into
	}, c
}
