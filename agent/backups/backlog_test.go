package backups

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
)

// More than a watch may catch up with is left to a full.
func TestWhatIsFarBehindIsFollowedByAFull(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	before := savedBefore(t, agentOf(g, 0), c, client)
	put(t, client, 20)
	for _, test := range []struct {
		backlog int64
		fires   string
		fulls   int
	}{{1000, "go-on", before}, {9, "behind", before + 1}} {
		if test.fires == "behind" {
			put(t, client, 10)
		}
		a := agentOf(g, 0)
		a.backlog = test.backlog
		a.Configure(c)
		stop := a.start()
		last := put(t, client, 5)
		savedUpTo(t, s, last)
		stop()
		if n := len(history(t, s).Fulls); n != test.fulls || a.fired(test.fires) == 0 {
			t.Errorf("with a backlog of %d there are %d fulls, want %d; rule %s fired %v times", test.backlog, n, test.fulls, test.fires, a.fired(test.fires))
		}
		proven(t, s, client, last)
	}
}

// So is what a recorder could not read because the store took nothing.
func TestARecorderThatFallsFarBehindIsFollowedByAFull(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Delta.MaxBytes = 1
	client, s := g.client(0), opened(t, c)
	put(t, client, 5)
	a := agentOf(g, 0)
	a.backlog, a.relook = 50, 50*time.Millisecond
	let := make(chan struct{})
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return jammed{s, let}, err
	}
	a.Configure(c)
	a.start()
	eventually(t, "the recorder is ended", func() error {
		put(t, client, 20)
		if a.fired("behind") == 0 {
			return errWaiting
		}
		return nil
	})
	close(let)
	last := put(t, client, 5)
	savedUpTo(t, s, last)
	proven(t, s, client, last)
}

// jammed takes no delta before it is let.
type jammed struct {
	store.Store
	let <-chan struct{}
}

func (j jammed) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if _, delta := chain.ParseDelta(prefix, key); delta {
		select {
		case <-j.let:
		case <-ctx.Done():
			return store.Object{}, ctx.Err()
		}
	}
	return j.Store.Put(ctx, key, r, o)
}
