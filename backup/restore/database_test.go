package restore

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/backup/chain"
)

// What a database that is restored alone says of members and of the log is the source's own, whatever deltas follow.
func TestADatabaseKeepsWhoTheClusterIs(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 3)
	s.traffic(30)
	taken := s.full()
	s.traffic(30)
	s.deltas(taken.Revision+1, s.revision())
	buckets := func(p chain.Plan) map[string]map[string]string {
		path := filepath.Join(t.TempDir(), "db")
		if _, err := Database(t.Context(), Config{Store: s.store, Plan: p, EtcdVersion: newest}, path); err != nil {
			t.Fatal(err)
		}
		all := bucketsOf(t, path)
		maps.DeleteFunc(all, func(name string, _ map[string]string) bool { return name == "key" || name == "lease" })
		return all
	}
	want := buckets(chain.Plan{Full: s.named(taken.Key)})
	if diff := cmp.Diff(want, buckets(s.plan(chain.Target{}))); diff != "" || len(want["members"]) != 1 || len(want["meta"]) == 0 {
		t.Errorf("the full (-) and what the deltas made of it (+), with %d members:\n%s", len(want["members"]), diff)
	}
}

func TestADatabaseReplacesNothing(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 4)
	s.traffic(10)
	s.full()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte("mine"), fileMode); err != nil {
		t.Fatal(err)
	}
	if _, err := Database(t.Context(), Config{Store: s.store, Plan: s.plan(chain.Target{}), EtcdVersion: newest}, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if mine, err := os.ReadFile(path); err != nil || string(mine) != "mine" {
		t.Errorf("the file is %q, %v", mine, err)
	}
}
