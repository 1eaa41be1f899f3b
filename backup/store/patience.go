package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience is for how long a listing may bring nothing: a connection that stalls is given up after a minute, and tried again. How
// long it takes in all is not bounded: a delta per second, kept for a week, is 600 requests of a thousand objects.
const Patience = 2 * time.Minute

// progressKey of a context has the func that is informed of progress under it.
type progressKey struct{}

// OnProgress returns a context under which a store calls moved whenever it got on with a listing: for each page of a bucket, for each
// file of a directory. What decorates a store hands the context on, and need not know of it.
func OnProgress(ctx context.Context, moved func()) context.Context {
	outer, _ := ctx.Value(progressKey{}).(func())
	return context.WithValue(ctx, progressKey{}, func() {
		moved()
		if outer != nil {
			outer()
		}
	})
}

// Progressed reports who wants to know of it that something came under ctx.
func Progressed(ctx context.Context) {
	if moved, ok := ctx.Value(progressKey{}).(func()); ok {
		moved()
	}
}

// Patient returns a context for listings, which ends when under it no progress was made for so long. However many objects there
// are, a listing that gets on is not given up: where it ended by the clock, backups would end with it, and for good. The context
// must be canceled, as any other.
func Patient(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { cancel(stalledError{patience}) })
	return OnProgress(ctx, func() { timer.Reset(patience) }), func() {
		timer.Stop()
		cancel(nil)
	}
}

// stalledError ends a Patient context.
type stalledError struct{ patience time.Duration }

func (e stalledError) Error() string {
	return fmt.Sprintf("nothing came from the store for %s; check that it answers, and what is on the way to it", e.patience)
}

// Because returns err with what ended the context of a Patient, if that is why it came: some clients of stores say only that they
// were canceled.
func Because(ctx context.Context, err error) error {
	stalled, is := errors.AsType[stalledError](context.Cause(ctx))
	if _, notified := errors.AsType[stalledError](err); err == nil || !is || notified {
		return err
	}
	return fmt.Errorf("%w: %w", err, stalled)
}
