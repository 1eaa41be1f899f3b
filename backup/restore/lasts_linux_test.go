package restore

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

// TestKeyTableWithoutSpaceReported: a table of keys that does not fit the disk is reported.
// The table is mapped into memory. If the disk had no space for a page of it, the process would end; therefore, the
// space is allocated first.
func TestKeyTableWithoutSpaceReported(t *testing.T) {
	dir := t.TempDir()
	machine.SmallDisk(t, dir, 1<<20)
	l, err := newLasts(dir)
	if err != nil {
		t.Fatal(err)
	}
	var main int64
	for err == nil && main < 100_000 {
		main++
		err = l.note(fmt.Append(nil, "key-", main), place{main: main}, 1)
	}
	if !errors.Is(err, ErrSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("after %d keys: %v, want ErrSpace", main, err)
	}
	if !l.isAlive(fmt.Append(nil, "key-", main-1), place{main: main - 1}) {
		t.Error("the table that there is was lost")
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	// A table that could not be created leaves nothing behind, so that its space is free again.
	if l, err = newLasts(dir); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

// TestRestoreFitsNearlyFullVolume: a restore fits a volume that the database mostly fills.
// What is alive in a database that takes more than half of a volume does not fit next to it. Because the volume held
// the database before, it is restored in place, unless the changes do not fit either.
func TestRestoreFitsNearlyFullVolume(t *testing.T) {
	const value, keys = 64 << 10, 200
	minor := member.Minors[len(member.Minors)-1]
	s := newSource(t, minor, 0)
	for i := range keys {
		s.put(fmt.Sprint("k", i), letters(uint64(i), value))
	}
	full := s.full()
	for i := range keys / 5 {
		s.put(fmt.Sprint("k", i), letters(uint64(keys+i), value))
	}
	s.put("k0", "changed")
	s.delta(full.Revision+1, s.revision())
	plan := s.plan(catalog.Target{})
	for name, test := range map[string]struct {
		more int64 // than the full and etcd's log
		want error
	}{
		"all fits":                {full.Size + keys*value + 16<<20, nil},
		"what is alive does not":  {11 << 20, nil},
		"not even the changes do": {1 << 20, ErrSpaceAlongside},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTarget(t)
			size, err := Need(t.Context(), s.store, catalog.Plan{Full: plan.Full})
			if err != nil {
				t.Fatal(err)
			}
			disk := t.TempDir()
			machine.SmallDisk(t, disk, size+logSpace+test.more)
			g.dir = filepath.Join(disk, "data")
			cfg := g.config(s, plan, minor)
			cfg.Bump, cfg.Quota = DefaultBump, 1<<30
			got, err := Run(t.Context(), cfg)
			if !errors.Is(err, test.want) {
				t.Fatalf("restored with %v, want %v", err, test.want)
			}
			if test.want != nil {
				return
			}
			soundPages(t, filepath.Join(g.dir, "member", "snap", "db"), got.Size)
			m := g.start(minor, member.Options{})
			if answer, err := m.Client.Get(t.Context(), "k0"); err != nil || len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != "changed" {
				t.Errorf("the last change is %v, %v", answer, err)
			}
			if answer, err := m.Client.Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || answer.Count != keys {
				t.Errorf("%v keys, %v, want %d", answer, err, keys)
			}
			m.Stop(t)
		})
	}
}
