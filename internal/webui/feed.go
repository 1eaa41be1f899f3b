package webui

import (
	"context"
	"time"
)

const (
	// readTimeout bounds one read. A list of 500 EtcdClusters and their Leases takes about a second over a slow line.
	readTimeout = 20 * time.Second
	// fresh is how old data can be that a page shows without a read, so that several pages share one.
	fresh = time.Second
	// freshBackups is that of backups: to list them, an agent reads the store.
	freshBackups = 30 * time.Second
	// shareOfTime is how many times as long as a read the pause after it is at least, so that a slow API server is asked less often.
	shareOfTime = 10
	// maxPause bounds that pause, which is as long as the time between two renewals of a Lease.
	maxPause = 15 * time.Second
	// maxPauseAfterError bounds the pause after a read that failed, so that a page soon shows that the API server answers again.
	maxPauseAfterError = 5 * time.Second
)

// known is what a feed knows.
type known[T any] struct {
	data T
	// at is when data was read, zero for never.
	at time.Time
	// err is why the last read failed: data is old then.
	err error
}

// feed reads for all pages that show the same. It keeps the last data that it could read.
type feed[T any] struct {
	read     func(context.Context) (T, error)
	now      func() time.Time
	interval time.Duration
	fresh    time.Duration
	// turn holds one value while no read runs.
	turn  chan struct{}
	known known[T]
	tried time.Time
	took  time.Duration
}

func newFeed[T any](interval time.Duration, now func() time.Time, read func(context.Context) (T, error)) *feed[T] {
	f := &feed[T]{read: read, now: now, interval: interval, fresh: fresh, turn: make(chan struct{}, 1)}
	f.turn <- struct{}{}
	return f
}

// get returns what is known, and when to ask again. It reads if the last attempt is too old.
func (f *feed[T]) get(ctx context.Context) (known[T], time.Duration) {
	select {
	case <-f.turn:
	case <-ctx.Done():
		return known[T]{err: ctx.Err()}, f.interval
	}
	defer func() { f.turn <- struct{}{} }()
	if begun := time.Now(); f.tried.IsZero() || begun.Sub(f.tried) >= f.fresh {
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		data, err := f.read(limited)
		cancel()
		if ctx.Err() != nil { // the page was closed
			return known[T]{err: ctx.Err()}, f.interval
		}
		f.tried = time.Now()
		f.took = f.tried.Sub(begun)
		f.known.err = err
		if err == nil {
			f.known.data, f.known.at = data, f.now()
		}
	}
	limit := maxPause
	if f.known.err != nil {
		limit = maxPauseAfterError
	}
	return f.known, max(f.interval, min(limit, shareOfTime*f.took))
}
