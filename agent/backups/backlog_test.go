package backups

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
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

// What is written while a listing takes its time counts as well.
func TestWhatAListingFallsBehindCounts(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	before := savedBefore(t, agentOf(g, 0), c, client)
	a := agentOf(g, 0)
	a.backlog = 9
	var once sync.Once
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return whileListed{s, func() { once.Do(func() { put(t, client, 20) }) }}, err
	}
	a.Configure(c)
	stop := a.start()
	savedUpTo(t, s, put(t, client, 5))
	stop()
	if n := len(history(t, s).Fulls); n != before+1 || a.fired("behind") == 0 {
		t.Errorf("there are %d fulls, want %d; rule behind fired %v times", n, before+1, a.fired("behind"))
	}
}

// whileListed is a store that something happens next to while it is listed.
type whileListed struct {
	store.Store
	happens func()
}

func (w whileListed) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	w.happens()
	return w.Store.List(ctx, prefix)
}

func TestAListingEndsWhenTheConfigurationChanges(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	wrong, right := t.TempDir(), directory(t.TempDir())
	client, s := g.client(0), opened(t, right)
	a := agentOf(g, 0)
	began, ended := make(chan struct{}), make(chan error, 1)
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		if c.Directory.Path == wrong {
			return endless{s, began, ended}, err
		}
		return s, err
	}
	a.Configure(directory(wrong))
	a.start()
	<-began
	a.Configure(right)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the listing of the wrong place ends by %v", err)
	}
	savedUpTo(t, s, put(t, client, 5))
}

// endless is a store whose first listing goes on until its context ends.
type endless struct {
	store.Store
	began chan<- struct{}
	ended chan<- error
}

func (e endless) List(ctx context.Context, _ string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		close(e.began)
		<-ctx.Done()
		e.ended <- context.Cause(ctx)
		yield(store.Object{}, ctx.Err())
	}
}
