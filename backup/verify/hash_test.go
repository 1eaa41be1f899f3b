package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/test/member"
)

// lazily returns flags with which a compaction takes one record an hour. etcd 3.5 and 3.7 each know one of the names.
func lazily(minor string) []string {
	name := "--compaction-"
	if minor == "3.5" {
		name = "--experimental-compaction-"
	}
	return []string{name + "batch-limit=1", name + "sleep-interval=1h"}
}

// traffic makes n changes of all kinds, and returns the last revision and that of the last effective deletion.
func traffic(tb testing.TB, c *clientv3.Client, random *rand.Rand, n int) (revision, deleted int64) {
	tb.Helper()
	key := func() string { return fmt.Sprintf("key-%d", random.IntN(25)) }
	put := func() clientv3.Op { return clientv3.OpPut(key(), fmt.Sprint(random.Int64())) }
	in := func(ops ...clientv3.Op) clientv3.Op { return clientv3.OpTxn(nil, ops, nil) }
	for range n {
		var op clientv3.Op
		switch random.IntN(7) {
		case 0:
			op = clientv3.OpDelete(key())
		case 1:
			op = clientv3.OpDelete("key-1", clientv3.WithPrefix())
		case 2:
			op = in(put(), clientv3.OpPut("other", "x"), clientv3.OpDelete("another"))
		case 3: // one key twice in one revision
			k := key()
			op = in(in(clientv3.OpPut(k, "v")), in(clientv3.OpDelete(k)))
		default:
			op = put()
		}
		got, err := c.Do(tb.Context(), op)
		if err != nil {
			tb.Fatal(err)
		}
		switch {
		case got.Del() != nil:
			revision = got.Del().Header.Revision
			if got.Del().Deleted > 0 {
				deleted = revision
			}
		case got.Put() != nil:
			revision = got.Put().Header.Revision
		default:
			revision = got.Txn().Header.Revision
		}
	}
	return revision, deleted
}

// database returns the present database of an etcd.
func database(tb testing.TB, m *member.Member) *bolt.DB {
	tb.Helper()
	stream, err := m.Client.Snapshot(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "db")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(f, stream); err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(stream.Close(), f.Close()); err != nil {
		tb.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// asEtcd asks etcd for its hash, and computes it from a database that was copied at or after the revision. It returns
// the compact revision when etcd made its hash: for the revision of a compaction, etcd remembers the one from before.
func asEtcd(tb testing.TB, m *member.Member, revision int64, dbs ...*bolt.DB) (compacted int64) {
	tb.Helper()
	theirs, err := m.Client.HashKV(tb.Context(), m.Endpoint, revision)
	if err != nil {
		tb.Fatal(err)
	}
	if theirs.HashRevision != 0 && theirs.HashRevision != revision {
		tb.Fatalf("etcd hashed revision %d instead of %d", theirs.HashRevision, revision)
	}
	compacted = theirs.CompactRevision
	keys, err := m.Client.Get(tb.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly(), clientv3.WithRev(revision))
	if err != nil {
		tb.Fatal(err)
	}
	for i, db := range dbs {
		for _, most := range []int{mostKeys, 4} {
			ours, err := stateAt(tb.Context(), db, revision, compacted, most)
			if late := compactedAtOf(tb, db); late > 0 && late > compacted {
				if !errors.Is(err, ErrCompacted) {
					tb.Errorf("a database that is compacted at %d gives what one compacted at %d has: %v", late, compacted, err)
				}
				continue
			}
			if want := (State{theirs.Hash, keys.Count}); err != nil || ours != want {
				tb.Errorf("revision %d, compacted at %d, database %d, %d keys at once: %+v, %v; want %+v", revision, compacted, i, most, ours, err, want)
			}
		}
	}
	return compacted
}

func compactedAtOf(tb testing.TB, db *bolt.DB) (at int64) {
	tb.Helper()
	err := db.View(func(tx *bolt.Tx) (err error) {
		at, err = compactedAt(tx)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

func TestTheHashIsEtcds(t *testing.T) {
	for _, minor := range member.Minors {
		for name, flags := range map[string][]string{"compacted": nil, "compaction that is not done": lazily(minor)} {
			t.Run(minor+" "+name, func(t *testing.T) {
				t.Parallel()
				m := member.Start(t, minor, member.Options{Args: flags})
				random := rand.New(rand.NewPCG(7, 7))
				_, deleted := traffic(t, m.Client, random, 150)
				last, _ := traffic(t, m.Client, random, 20)
				before := database(t, m)
				for range 5 {
					asEtcd(t, m, 2+random.Int64N(last-1), before)
				}
				for _, at := range []int64{deleted - 12, deleted} { // a tombstone is where the second one is
					var options []clientv3.CompactOption
					if flags == nil {
						options = append(options, clientv3.WithCompactPhysical())
					}
					if _, err := m.Client.Compact(t.Context(), at, options...); err != nil {
						t.Fatal(err)
					}
					after := database(t, m)
					if got := asEtcd(t, m, at, before, after); flags != nil && got != at {
						t.Errorf("etcd hashed revision %d as compacted at %d", at, got)
					}
					for _, revision := range []int64{last, at + 1, at + 1 + random.Int64N(last-at), at + 1 + random.Int64N(last-at)} {
						if got := asEtcd(t, m, revision, before, after); got != at {
							t.Errorf("etcd is compacted at %d, want %d", got, at)
						}
					}
				}
				// The full backup is older than the compaction, and many changes followed it.
				further, _ := traffic(t, m.Client, random, 60)
				all := database(t, m)
				for range 5 {
					asEtcd(t, m, deleted+1+random.Int64N(further-deleted), all)
				}
			})
		}
	}
}

func TestTheHashIsUnknownWhereNoKeyIsAlive(t *testing.T) {
	m := member.Start(t, member.Minors[0], member.Options{})
	for range 3 {
		for _, op := range []clientv3.Op{clientv3.OpPut("a", "b"), clientv3.OpDelete("a")} {
			if _, err := m.Client.Do(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
	}
	asEtcd(t, m, 7, database(t, m))
	if _, err := m.Client.Compact(t.Context(), 5, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if s, err := StateAt(t.Context(), database(t, m), 7, 5); !errors.Is(err, ErrEmpty) || s.Keys != 0 {
		t.Errorf("%+v, %v; want none", s, err)
	}
	asEtcd(t, m, 6, database(t, m))
}

// A history with everything that etcd's hash depends on is verified, as the real recorder saves it.
func TestARealHistoryIsVerified(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			m, s, random := member.Start(t, minor, member.Options{}), newStore(t), rand.New(rand.NewPCG(5, 5))
			if err := catalog.WriteBootstrap(t.Context(), s, prefix, catalog.Formation{Lineage: lineage, ClusterID: "c", Created: time.Now()}); err != nil {
				t.Fatal(err)
			}
			traffic(t, m.Client, random, 60)
			full, err := snapshot.Take(t.Context(), snapshot.Config{
				Client: m.Client, Store: s, Lineage: string(lineage),
				Key: func(revision int64, at time.Time) string { return catalog.FullKey(prefix, lineage, revision, at) },
			})
			if err != nil {
				t.Fatal(err)
			}
			status, err := m.Client.Status(t.Context(), m.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			recorder, err := delta.NewRecorder(delta.Config{
				Conn: m.Client.ActiveConnection(), Store: s, Lineage: string(lineage), From: full.Revision + 1, Period: time.Hour,
				ClusterID: status.Header.ClusterId, CheckpointEvery: time.Nanosecond,
				Key: func(from, to int64, at time.Time) string { return catalog.DeltaKey(prefix, lineage, from, to, at) },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running errgroup.Group
			running.Go(func() error { return recorder.Run(ctx) })
			for range 3 {
				_, deleted := traffic(t, m.Client, random, 60)
				if _, err := m.Client.Put(t.Context(), "lasts", "x"); err != nil {
					t.Fatal(err)
				}
				if _, err := recorder.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := m.Client.Compact(t.Context(), deleted); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			if err := running.Wait(); err != nil {
				t.Fatal(err)
			}
			r := verifyBackups(t, s, catalog.Target{})
			if r.Verdict != Verified || r.Checkpoint.CompactRevision <= full.Revision || r.Checkpoint.Revision != r.Revision {
				t.Errorf("got %+v with %+v", r, r.Checkpoint)
			} else if !slices.Equal(r.Compared, all) {
				t.Errorf("compared are %q, and not %q", r.Compared, r.NotCompared)
			} else if deltas := read(t, s).Histories[0].Deltas; !slices.ContainsFunc(deltas, func(d catalog.Delta) bool { return d.Key == r.Checkpoint.Object }) {
				t.Errorf("checkpoint of %q", r.Checkpoint.Object)
			}
		})
	}
}
