package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// Place is where a cluster's backups are.
type Place struct {
	Store   store.Store
	Prefix  string
	Lineage catalog.Lineage
	// CheckpointEvery is how often a delta gets a checkpoint; 0: never.
	CheckpointEvery time.Duration
}

// Formation puts the record of the lineage's bootstrap, of the EtcdCluster with that UID.
func (p Place) Formation(tb testing.TB, uid string) {
	tb.Helper()
	formation := catalog.Formation{Lineage: p.Lineage, Reason: "Bootstrap", ClusterID: "c", ClusterUID: uid, Created: time.Now()}
	must(tb, catalog.WriteBootstrap(tb.Context(), p.Store, p.Prefix, formation))
}

// Full takes a snapshot of the one member that the client is of.
func (p Place) Full(tb testing.TB, client *clientv3.Client) snapshot.Result {
	tb.Helper()
	full, err := snapshot.Take(tb.Context(), snapshot.Config{
		Client: client, Store: p.Store, Lineage: string(p.Lineage),
		Key: func(revision int64, at time.Time) string { return catalog.FullKey(p.Prefix, p.Lineage, revision, at) },
	})
	must(tb, err)
	return full
}

// Delta saves what follows revision after, and returns the last revision that is saved.
func (p Place) Delta(tb testing.TB, client *clientv3.Client, after int64) int64 {
	tb.Helper()
	save, end := p.record(tb, client, after)
	last := save()
	end()
	return last
}

// Record saves what follows revision after, until the test ends: as a delta whenever save is called, which returns the last revision
// that is saved, and when one is full.
func (p Place) Record(tb testing.TB, client *clientv3.Client, after int64) (save func() int64) {
	tb.Helper()
	save, end := p.record(tb, client, after)
	tb.Cleanup(end)
	return save
}

func (p Place) record(tb testing.TB, client *clientv3.Client, after int64) (save func() int64, end func()) {
	tb.Helper()
	status, err := client.Status(tb.Context(), client.Endpoints()[0])
	must(tb, err)
	recorder, err := delta.NewRecorder(delta.Config{
		Conn: client.ActiveConnection(), Store: p.Store, Lineage: string(p.Lineage), ClusterID: status.Header.ClusterId,
		From: after + 1, CheckpointEvery: p.CheckpointEvery, Period: time.Hour, // only a save closes a delta
		Key: func(from, to int64, at time.Time) string { return catalog.DeltaKey(p.Prefix, p.Lineage, from, to, at) },
	})
	must(tb, err)
	ctx, cancel := context.WithCancel(tb.Context())
	var running errgroup.Group
	running.Go(func() error { return recorder.Run(ctx) })
	save = func() int64 {
		tb.Helper()
		now, err := client.Status(ctx, client.Endpoints()[0])
		must(tb, err)
		last, err := recorder.Flush(ctx)
		must(tb, err)
		if last < now.Header.Revision {
			tb.Fatalf("saved up to revision %d, want %d", last, now.Header.Revision)
		}
		return last
	}
	end = func() {
		cancel()
		if err := running.Wait(); err != nil {
			tb.Errorf("record a history: %v", err)
		}
	}
	return save, end
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(fmt.Errorf("save a history: %w", err))
	}
}
