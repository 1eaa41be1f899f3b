package backups

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
)

// seesAgain returns an agent that checks the store often while it saves.
func seesAgain(t *testing.T) (g *group, a *neighbour) {
	t.Helper()
	g = newGroup(t, 1)
	a = g.newAgent(0, nil, "default")
	a.revalidation = 200 * time.Millisecond
	return g, a
}

// TestVanishedBackupsNoticed: backups that vanish are missed while the recorder runs.
func TestVanishedBackupsNoticed(t *testing.T) {
	t.Parallel()
	g, a := seesAgain(t)
	c := directory(t.TempDir())
	a.Configure(c)
	a.start()
	client, files := g.client(0), opened(t, c)
	savedUpTo(t, files, put(t, client, 5))
	eventually(t, "the backups are complete", func() error {
		if s, _ := a.at(); !s.whole.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	for _, f := range history(t, files).Fulls {
		if err := files.Delete(t.Context(), f.Key); err != nil {
			t.Fatal(err)
		}
	}
	last := put(t, client, 5)
	savedUpTo(t, files, last)
	verifyAll(t, files, client, last)
	// A gap after the newest full backup.
	last = put(t, client, 5)
	savedUpTo(t, files, last)
	h := history(t, files)
	before := len(h.Fulls)
	newest := h.Fulls[before-1]
	for _, d := range h.Deltas {
		if d.To > newest.Revision {
			if err := files.Delete(t.Context(), d.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	savedUpTo(t, files, last)
	if h := history(t, files); len(h.Fulls) <= before || a.fired("broken") == 0 {
		t.Errorf("%d fulls, %d before; rule broken fired %v times", len(h.Fulls), before, a.fired("broken"))
	}
	last = put(t, client, 5)
	savedUpTo(t, files, last)
	verifyAll(t, files, client, last)
	restored(t, files, client, last)
}

// TestOtherClusterUnderPrefixReported: another cluster under the same prefix is reported and stops deletion.
func TestOtherClusterUnderPrefixReported(t *testing.T) {
	t.Parallel()
	g, a := seesAgain(t)
	c := directory(t.TempDir())
	a.Configure(c)
	a.start()
	client, files := g.client(0), opened(t, c)
	savedUpTo(t, files, put(t, client, 5))
	mustPut(t, files, catalog.FullKey(prefix, "00000002-beef", 9, time.Now()), "full")
	eventually(t, "it reports, and saves on", func() error {
		s, _ := a.at()
		s.orders.mu.Lock()
		recording := s.orders.recorder != nil
		s.orders.mu.Unlock()
		p, _ := s.reporter.fullPatch(time.Now())
		if !recording || s.sound.Load() || !strings.Contains(p.Backup.Error, "00000002-beef") {
			return fmt.Errorf("recording %t, sound %t, reported %q", recording, s.sound.Load(), p.Backup.Error)
		}
		return nil
	})
}

func TestWhatAReviewMakesOfTheCatalog(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, files := g.client(0), opened(t, c)
	last := put(t, client, 10)
	full := catalog.FullKey(prefix, lineage, last-5, time.Now())
	mustPut(t, files, full, "full")
	s, err := g.newAgent(0, nil, "default").begin(t.Context(), *c, g.self(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := look(t, s); err != nil || s.catalogState != CatalogComplete {
		t.Fatalf("%v; catalog %s", err, s.catalogState)
	}
	if _, err := client.Compact(t.Context(), last); err != nil { // the recorder has what follows
		t.Fatal(err)
	}
	review := func(saved int64, want CatalogState) {
		t.Helper()
		s.catalogState = CatalogComplete
		if err := s.review(t.Context(), saved); err != nil || s.catalogState != want {
			t.Errorf("up to %d was saved: %v; catalog %s, want %s", saved, err, s.catalogState, want)
		}
	}
	review(last-5, CatalogComplete)
	review(last-4, CatalogBroken)
	mustPut(t, files, catalog.FullKey(prefix, lineage, last+1000, time.Now()), "full")
	review(last-5, CatalogAhead)
	s.catalogState = CatalogBehind // a full is on its way, and no look makes the backups complete before it
	if err := s.review(t.Context(), 0); err != nil || s.catalogState != CatalogAhead {
		t.Errorf("far behind and ahead at once: %v; catalog %s", err, s.catalogState)
	}
	for _, f := range history(t, files).Fulls {
		if err := files.Delete(t.Context(), f.Key); err != nil {
			t.Fatal(err)
		}
	}
	review(last-5, CatalogEmpty)
}

// hanging is a store whose List ignores its context, like a directory whose mount hangs.
type hanging struct {
	store.Store
	release chan struct{}
	lists   atomic.Int64
}

func (h *hanging) List(context.Context, string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		h.lists.Add(1)
		<-h.release
		yield(store.Object{}, errors.New("stale file handle"))
	}
}

// leading is a member that leads.
type leading struct{ clientv3.Maintenance }

func (leading) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Leader: 1, Header: &etcdserverpb.ResponseHeader{MemberId: 1}}, nil
}

func TestAStoreThatHangsDoesNotHoldTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"})
		metrics, err := NewMetrics(prometheus.NewRegistry(), decisions)
		if err != nil {
			t.Fatal(err)
		}
		d := New(Options{
			Metrics: metrics, Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context, _ ...string) (*clientv3.Client, func(error), error) {
				c := clientv3.NewCtxClient(ctx)
				c.Maintenance = leading{}
				return c, func(error) { _ = c.Close() }, nil
			},
		})
		s := &hanging{release: make(chan struct{})}
		session := newSession(d, config.Backup{Prefix: prefix}, Identity{Lineage: lineage}, s)
		session.sound.Store(true)
		d.work(session)

		lead := func(term time.Duration) (after time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			var running errgroup.Group
			running.Go(func() error { return d.Prune(ctx) })
			time.Sleep(term)
			cancel()
			ended := time.Now()
			if err := running.Wait(); err != nil {
				t.Error(err)
			}
			return time.Since(ended)
		}
		if after := lead(time.Hour); after != hangTimeout || s.lists.Load() != 1 {
			t.Errorf("leadership ended, and the pass was left after %s, %d listings, want %s and 1", after, s.lists.Load(), hangTimeout)
		}
		if after := lead(time.Hour); after != 0 || s.lists.Load() != 1 {
			t.Errorf("next to a pass that hangs another was begun: it ended after %s, %d listings", after, s.lists.Load())
		}
		close(s.release)
		if lead(time.Hour); s.lists.Load() < 2 {
			t.Error("the store is back, and no pass was begun")
		}
	})
}
