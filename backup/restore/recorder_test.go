package restore

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/test/member"
)

// What two recorders saved at once, each cutting the history in its own way, restores to what the source was, whichever of
// their deltas a plan takes.
func TestWhatIsRecordedIsRestored(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, minor, *seed+100)
			s.traffic(*changes / 6)
			full := s.full()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var running errgroup.Group
			var recorders []*delta.Recorder
			for i, size := range []int{20_000, 70_000} {
				r, err := delta.NewRecorder(delta.Config{
					Conn: s.m.Client.ActiveConnection(), Store: s.store, Lineage: string(lineage), ClusterID: uint64(full.ClusterID),
					Key: func(from, to int64, at time.Time) string {
						return chain.DeltaKey(prefix, lineage, from, to, at.Add(time.Duration(i)*time.Hour))
					},
					From: full.Revision + 1, Period: delta.MinPeriod, MaxBytes: size,
				})
				if err != nil {
					t.Fatal(err)
				}
				recorders = append(recorders, r)
				running.Go(func() error { return r.Run(ctx) })
			}
			s.traffic(*changes / 3)
			if _, err := s.m.Client.Compact(ctx, s.revision(), clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			s.traffic(*changes / 3)
			var last int64
			for _, r := range recorders {
				var err error
				if last, err = r.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			if err := running.Wait(); err != nil {
				t.Fatal(err)
			}
			for range *points {
				revision := full.Revision + 1 + s.random.Int64N(last-full.Revision)
				got, m := restored(t, s, s.plan(chain.Target{Revision: revision}), minor)
				if got.Revision != revision {
					t.Errorf("restored to revision %d, want %d", got.Revision, revision)
				}
				same(t, s, m, revision)
			}
		})
	}
}

// A compaction may take records of the very last revision: what is left of it reports nothing.
func TestAFullThatWasCompactedAtItsEndIsContinued(t *testing.T) {
	for name, change := range map[string]func(*source) clientv3.Op{
		"put and deleted at once": func(s *source) clientv3.Op { return s.putAndDeleted("a") },
		"a deletion":              func(*source) clientv3.Op { return clientv3.OpDelete("b") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, newest, 11)
			s.put("a", "1")
			s.put("b", "1")
			s.do(change(s))
			base := s.revision()
			if _, err := s.m.Client.Compact(t.Context(), base, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			full := s.full()
			s.put("c", "3")
			s.revision() // until the watch informed of it
			d := s.delta(base, base+1)
			got, m := restored(t, s, chain.Plan{Full: s.named(full.Key), Deltas: []chain.Delta{d}}, newest)
			if got.Revision != base+1 || full.Revision != base {
				t.Errorf("restored to revision %d from a full at %d, want %d from %d", got.Revision, full.Revision, base+1, base)
			}
			same(t, s, m, base+1)
		})
	}
}
