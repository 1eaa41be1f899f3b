package duties

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// raft replaces the observer: it reports each change to all waiters.
type raft struct {
	mu      sync.Mutex
	leads   bool
	changed chan struct{}
}

func (r *raft) set(leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads = leads
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *raft) gate(ctx context.Context, wanted bool) error {
	for {
		r.mu.Lock()
		leads, changed := r.leads, r.changed
		r.mu.Unlock()
		if leads == wanted {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func TestLeadershipIsAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		member := &raft{changed: make(chan struct{})}
		var lose context.CancelCauseFunc
		var campaigns, released atomic.Int32
		campaign := func(ctx context.Context, lead func(context.Context)) error { //nolint:unparam // the type says so
			campaigns.Add(1)
			held, cancel := context.WithCancelCause(ctx)
			lose = cancel
			lead(held)
			released.Add(1)
			<-ctx.Done()
			return nil
		}
		var leading atomic.Bool
		var cause error
		fn := func(ctx context.Context) {
			leading.Store(true)
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(time.Second) // a duty that takes a moment to end
			leading.Store(false)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- WhileLeader(ctx, member.gate, campaign, fn) }()

		synctest.Wait()
		if campaigns.Load() != 0 {
			t.Error("the agent campaigns next to a follower")
		}
		member.set(true)
		synctest.Wait()
		if !leading.Load() {
			t.Error("the duties do not run while the member leads")
		}
		member.set(false)
		synctest.Wait()
		if !errors.Is(cause, ErrNotLeader) || released.Load() != 0 {
			t.Errorf("raft leadership lost: cause %v, want ErrNotLeader; released %d times before the duties ended", cause, released.Load())
		}
		time.Sleep(2 * time.Second)
		member.set(true)
		synctest.Wait()
		if campaigns.Load() != 2 || released.Load() != 1 {
			t.Errorf("%d campaigns, %d releases, want 2 and 1", campaigns.Load(), released.Load())
		}
		lose(ErrNotLeader)
		synctest.Wait()
		if !errors.Is(cause, ErrNotLeader) {
			t.Errorf("Lease lost: cause %v, want ErrNotLeader", cause)
		}
		// The member still leads when the agent ends.
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v, want none", err)
		}
	})
}
