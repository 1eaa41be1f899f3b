package backups

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
)

// rotten damages each full on its way into the store, as a member does whose database has a damaged page.
type rotten struct{ store.Store }

func (s rotten) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if strings.Contains(key, "/full/") {
		r = &flipped{r: r}
	}
	return s.Store.Put(ctx, key, r, o)
}

type flipped struct {
	r    io.Reader
	done bool
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if !f.done && n > 600 {
		p[500] ^= 1
		f.done = true
	}
	return n, err
}

// A member whose fulls are all broken takes two, and then hands on.
func TestFullsThatAreAllBrokenAreFew(t *testing.T) {
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	a := agentOf(g, 0)
	handed := make(chan struct{}, 10)
	a.HandOn = func(context.Context) { handed <- struct{}{} }
	a.Scratch, a.proofLook, a.proofReserve = t.TempDir(), 100*time.Millisecond, 0
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return rotten{s}, err
	}
	a.Configure(c)
	put(t, g.client(0), 20)
	background(t, a.Prove)
	a.start()
	s := opened(t, c)
	eventually(t, "leadership is handed on", func() error {
		if len(handed) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	eventually(t, "the leader rests", func() error {
		if a.fired("saved") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	if n := len(history(t, s).Fulls); n != 2 || a.fired("disproved") != 1 || len(handed) != 1 {
		t.Errorf("%d fulls, %v of them for a broken one, handed on %d times", n, a.fired("disproved"), len(handed))
	}
}
