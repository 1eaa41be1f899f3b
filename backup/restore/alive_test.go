package restore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/test/member"
)

// letters returns a value that compresses little.
func letters(seed uint64, n int) string {
	random, value := rand.New(rand.NewPCG(seed, 2)), make([]byte, n)
	for i := range value {
		value[i] = byte('a' + random.IntN(26))
	}
	return string(value)
}

// A source that is compacted never reaches its quota, however much it writes in a day. What is restored of it does not
// either.
func TestARestoreFitsWhereTheSourceDid(t *testing.T) {
	const quota, size, keys = 16 << 20, 32 << 10, 10
	limit := fmt.Sprintf("--quota-backend-bytes=%d", quota)
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, minor, 30, limit)
			s.put("k0", "x")
			full := s.full()
			for i, from := 0, full.Revision+1; i < 3*quota/size; i++ {
				s.put(fmt.Sprint("k", i%keys), letters(uint64(i), size))
				if i%100 == 99 || i == 3*quota/size-1 {
					rev := s.revision()
					s.delta(from, rev)
					from = rev + 1
					if _, err := s.m.Client.Compact(t.Context(), rev-10, clientv3.WithCompactPhysical()); err != nil {
						t.Fatal(err)
					}
				}
			}
			g := newTarget(t)
			cfg := g.config(s, s.plan(catalog.Target{}), minor)
			cfg.Quota, cfg.Bump, cfg.ClearAlarms, cfg.Auth = quota, DefaultBump, true, RefuseAuth // as package bootstrap does
			got, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			soundPages(t, filepath.Join(g.dir, "member", "snap", "db"), got.Size)
			if alive := int64(keys * size); got.Size > 2*alive {
				t.Errorf("the database has %d KiB, of which %d KiB are alive", got.Size>>10, alive>>10)
			}
			m := g.start(minor, member.Options{Args: []string{limit}})
			if _, err := m.Client.Put(t.Context(), "after", "x"); err != nil {
				t.Errorf("the first put after the restore: %v", err)
			}
		})
	}
}

// A bumped restore has, record by record, what the source has when it is compacted at the same revision. The hash of
// etcd, continued with the mark of the bumped revision, which is the only additional record, confirms that.
func TestBumpedRestoreIsCompactedSource(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s, _ := history(t, minor)
			h := s.catalog().Histories[0]
			first, from := h.Fulls[0].Revision, h.LastSaved()+1 // a lease may have run out since
			s.put("short-lived", "x")
			s.do(clientv3.OpDelete("short-lived"))
			last := s.revision()
			s.deltas(from, last)
			for _, revision := range []int64{first, first + 1, (first + last) / 2, last - 1, last} {
				t.Run(fmt.Sprint("revision ", revision), func(t *testing.T) {
					g := newTarget(t)
					cfg := g.config(s, s.plan(catalog.Target{Revision: revision}), minor)
					cfg.Bump = DefaultBump
					got, err := Run(t.Context(), cfg)
					if err != nil || got.Revision != revision {
						t.Fatalf("restored %+v, err %v", got, err)
					}
					soundPages(t, filepath.Join(g.dir, "member", "snap", "db"), got.Size)
					checkRecords(t, s, got, filepath.Join(g.dir, "member", "snap", "db"))
					m := g.start(minor, member.Options{})
					if now, want := stateOf(t, m, got.Bumped), s.state(revision); now != want {
						t.Errorf("it holds %s, want %s", now, want)
					}
					checkLeases(t, s, m, revision)
					ours, err := m.Client.HashKV(t.Context(), m.Endpoint, got.Bumped)
					if err != nil || ours.CompactRevision != got.Bumped {
						t.Fatalf("hash %+v, err %v", ours, err)
					}
					if want, known := compactedHash(t, s, revision); known {
						mark := delta.AppendKey(nil, got.Bumped, 0, false)
						if want = crc32.Update(want, crc32.MakeTable(crc32.Castagnoli), mark); ours.Hash != want {
							t.Errorf("HashKV is %d, want %d", ours.Hash, want)
						}
					}
				})
			}
		})
	}
}

// compactedHash returns the hash of the source's etcd after a compaction at a revision. It is unknown if etcd was
// compacted later. etcd is restarted in between, because the hash that it computed while it compacted covers the
// history since the compaction before, and it returns that hash until it ends.
func compactedHash(t *testing.T, s *source, revision int64) (uint32, bool) {
	t.Helper()
	if _, err := s.m.Client.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); errors.Is(err, rpctypes.ErrCompacted) {
		return 0, false
	} else if err != nil {
		t.Fatal(err)
	}
	s.m.Stop(t)
	s.m.Restart(t)
	s.await("the source to serve", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.m.Client.Get(ctx, "key")
		return err == nil
	})
	got, err := s.m.Client.HashKV(t.Context(), s.m.Endpoint, revision)
	if err != nil || got.CompactRevision != revision {
		t.Fatalf("want it compacted at %d, it is %+v, err %v", revision, got, err)
	}
	return got.Hash, true
}

// checkRecords checks that the database has exactly the last record of each key that is alive, as the source recorded
// it, and the mark of the bumped revision.
func checkRecords(t *testing.T, s *source, got Result, path string) {
	t.Helper()
	alive := map[string]delta.Record{}
	for _, r := range s.between(1, got.Revision) {
		key, _, err := keyAndLease(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if delete(alive, string(key)); !r.IsDelete() {
			alive[string(key)] = r
		}
	}
	want := map[string]string{string(delta.AppendKey(nil, got.Bumped, 0, false)): ""}
	for _, r := range alive {
		want[string(r.Key)] = string(r.Value)
	}
	if is := bucketsOf(t, path)["key"]; !maps.Equal(is, want) {
		t.Errorf("%d records are restored, want these %d", len(is), len(want))
	}
}

// checkLeases checks that the keys that are alive have their leases.
func checkLeases(t *testing.T, s *source, m *member.Member, revision int64) {
	t.Helper()
	under := map[int64][]string{}
	of := map[string]int64{}
	for _, r := range s.between(1, revision) {
		key, lease, err := keyAndLease(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if delete(of, string(key)); !r.IsDelete() && lease != 0 {
			of[string(key)] = lease
		}
	}
	for key, lease := range of {
		under[lease] = append(under[lease], key)
	}
	for lease, keys := range under {
		reported, err := m.Client.TimeToLive(t.Context(), clientv3.LeaseID(lease), clientv3.WithAttachedKeys())
		if err != nil {
			t.Fatal(err)
		}
		if reported.TTL < 0 && slices.Contains(s.dying, clientv3.LeaseID(lease)) {
			continue // it ran out since
		}
		var attached []string
		for _, key := range reported.Keys {
			attached = append(attached, string(key))
		}
		slices.Sort(keys)
		slices.Sort(attached)
		if !slices.Equal(keys, attached) {
			t.Errorf("under lease %x are %q, want %q (time to live %d)", lease, attached, keys, reported.TTL)
		}
	}
}
