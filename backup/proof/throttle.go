package proof

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// slow is a store that is read and written at a limited rate, in bytes per second, by all together.
func slow(s store.Store, rate int64) store.Store {
	return slowStore{s, &limiter{rate: rate}}
}

type slowStore struct {
	store.Store
	limit *limiter
}

func (s slowStore) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.Store.Get(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	return &slowReader{r, ctx, s.limit}, nil
}

func (s slowStore) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	return s.Store.Put(ctx, key, &slowReader{io.NopCloser(r), ctx, s.limit}, o)
}

// Connections are those of the store: the rate is of all of them together.
func (s slowStore) Connections() int { return store.Connections(s.Store) }

type slowReader struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // a Read has none, and must not outlast its Get's
	limit *limiter
}

// Version is that of what is read.
func (r *slowReader) Version() string {
	if v, ok := r.ReadCloser.(store.Versioned); ok {
		return v.Version()
	}
	return ""
}

func (r *slowReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if waited := r.limit.wait(r.ctx, n); waited != nil && err == nil {
		err = waited
	}
	return n, err
}

// limiter is the time until which what was read so far should have taken.
type limiter struct {
	rate int64
	mu   sync.Mutex
	free time.Time
}

func (l *limiter) wait(ctx context.Context, n int) error {
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(int64(n) * int64(time.Second) / l.rate))
	left := l.free.Sub(now)
	l.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
