package backups

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/member"
)

// puts before each object.
const puts = 5

// Make starts an etcd, and puts the bootstrap of a lineage, a full, two deltas, a full and a delta of it below prefix. The fulls
// hold no more than their names say, and the values differ with the bootstrap's ClusterID. It returns what the store has then.
func Make(tb testing.TB, s store.Store, prefix string, formation catalog.Formation) catalog.Catalog {
	tb.Helper()
	m := member.Start(tb, member.Minors[len(member.Minors)-1], member.Options{Token: string(formation.Lineage)})
	defer m.Stop(tb)
	if err := catalog.WriteBootstrap(tb.Context(), s, prefix, formation); err != nil {
		tb.Fatal(err)
	}
	w := writer{m: m, s: s, prefix: prefix, lineage: formation.Lineage, value: formation.ClusterID}
	w.full(tb)
	w.record(tb, 2)
	w.full(tb)
	w.record(tb, 1)
	c, err := catalog.Read(tb.Context(), s, prefix)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

type writer struct {
	m       *member.Member
	s       store.Store
	prefix  string
	lineage catalog.Lineage
	value   string
	at      int64
	n       int
}

// put writes a few keys, and returns the revision.
func (w *writer) put(tb testing.TB) int64 {
	tb.Helper()
	for range puts {
		w.n++
		r, err := w.m.Client.Put(tb.Context(), fmt.Sprintf("key-%d", w.n%7), fmt.Sprintf("%s-%d", w.value, w.n))
		if err != nil {
			tb.Fatal(err)
		}
		w.at = r.Header.Revision
	}
	return w.at
}

func (w *writer) full(tb testing.TB) {
	tb.Helper()
	if w.at == 0 {
		w.put(tb)
	}
	_, err := snapshot.Take(tb.Context(), snapshot.Config{
		Client: w.m.Client, Store: w.s, Lineage: string(w.lineage),
		Key: func(revision int64, at time.Time) string { return catalog.FullKey(w.prefix, w.lineage, revision, at) },
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// record saves some deltas.
func (w *writer) record(tb testing.TB, deltas int) {
	tb.Helper()
	status, err := w.m.Client.Status(tb.Context(), w.m.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := delta.NewRecorder(delta.Config{
		Conn: w.m.Client.ActiveConnection(), Store: w.s, Lineage: string(w.lineage), ClusterID: status.Header.ClusterId, From: w.at + 1,
		// Only a flush closes a delta, and each of them has a checkpoint.
		Period: time.Hour, CheckpointEvery: time.Nanosecond,
		Key: func(from, to int64, at time.Time) string {
			return catalog.DeltaKey(w.prefix, w.lineage, from, to, at)
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	var running errgroup.Group
	running.Go(func() error { return r.Run(ctx) })
	for range deltas {
		revision := w.put(tb)
		if saved, err := r.Flush(ctx); err != nil || saved < revision {
			tb.Errorf("saved revision %d, %v; want %d", saved, err, revision)
		}
	}
	cancel()
	if err := running.Wait(); err != nil {
		tb.Fatal(err)
	}
}
