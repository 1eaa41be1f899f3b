package backups

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/store"
)

// hanging is a store whose List heeds no context: a directory whose mount is gone.
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
			Dial: func(ctx context.Context, _ ...string) (*clientv3.Client, error) {
				c := clientv3.NewCtxClient(ctx)
				c.Maintenance = leading{}
				return c, nil
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
		if after := lead(time.Hour); after != hangPatience || s.lists.Load() != 1 {
			t.Errorf("leadership ended, and the pass was left after %s, %d listings, want %s and 1", after, s.lists.Load(), hangPatience)
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
