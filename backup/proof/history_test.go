package proof

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/test/member"
)

// A history with all that etcd's hash depends on is proven, as the real recorder saves it.
func TestARealHistoryIsProven(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			m, s, random := member.Start(t, minor, member.Options{}), newStore(t), rand.New(rand.NewPCG(5, 5))
			if err := chain.WriteBootstrap(t.Context(), s, prefix, chain.Formation{Lineage: lineage, ClusterID: "c", Created: time.Now()}); err != nil {
				t.Fatal(err)
			}
			traffic(t, m.Client, random, 60)
			full, err := snapshot.Take(t.Context(), snapshot.Config{
				Client: m.Client, Store: s, Lineage: string(lineage),
				Key: func(revision int64, at time.Time) string { return chain.FullKey(prefix, lineage, revision, at) },
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
				Key: func(from, to int64, at time.Time) string { return chain.DeltaKey(prefix, lineage, from, to, at) },
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
			r := prove(t, s, chain.Target{})
			if r.Verdict != Proven || r.Checkpoint.CompactRevision <= full.Revision || r.Checkpoint.Revision != r.Revision {
				t.Errorf("got %+v with %+v", r, r.Checkpoint)
			} else if !slices.Equal(r.Compared, all) {
				t.Errorf("compared are %q, and not %q", r.Compared, r.NotCompared)
			} else if deltas := catalog(t, s).Histories[0].Deltas; !slices.ContainsFunc(deltas, func(d chain.Delta) bool { return d.Key == r.Checkpoint.Object }) {
				t.Errorf("checkpoint of %q", r.Checkpoint.Object)
			}
		})
	}
}
