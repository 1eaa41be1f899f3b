package storetest

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// Slow is a Store from which an object of a listing, or an object, comes only after a Pace. After Hangs of a listing, where that is not
// 0, nothing comes until the listing's context ends, as from a bucket behind a load balancer that is dead.
type Slow struct {
	store.Store
	Pace  time.Duration
	Hangs int
}

// List is that of the Store, slowly.
func (s Slow) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		listed := 0
		for o, err := range s.Store.List(ctx, prefix) {
			if listed++; s.Hangs > 0 && listed > s.Hangs {
				<-ctx.Done()
			}
			if waited := wait(ctx, s.Pace); waited != nil {
				yield(store.Object{}, waited)
				return
			}
			store.Progressed(ctx)
			if !yield(o, err) {
				return
			}
		}
	}
}

// Get is that of the Store, slowly.
func (s Slow) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := wait(ctx, s.Pace); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key, offset, length)
}

func wait(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
