package loop

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Sleep waits for d and returns true, or returns false as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Backoff is the pause after consecutive failures. It starts with First and doubles up to Last.
type Backoff struct {
	First, Last time.Duration
	next        time.Duration
}

// Next returns the pause after one more failure.
func (b *Backoff) Next() time.Duration {
	pause := max(b.next, b.First)
	b.next = min(2*pause, b.Last)
	return pause
}

// Reset makes the next pause the first one again.
func (b *Backoff) Reset() { b.next = 0 }

// Signal wakes all goroutines that wait for a change. The zero value is ready to use.
type Signal struct {
	mu      sync.Mutex
	changed chan struct{}
}

// Wait returns a channel that the next Send closes. Call Wait first and then read what may have changed, or hold its
// lock for both.
func (s *Signal) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Send wakes all goroutines that wait.
func (s *Signal) Send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Change reports whether a value differs from the one before, so that a lasting state is reported once. The zero value
// has seen the zero value of T. It is not safe for concurrent use.
type Change[T comparable] struct{ last T }

// To remembers v and returns whether it differs from the value before.
func (c *Change[T]) To(v T) bool {
	changed := c.last != v
	c.last = v
	return changed
}

// Last returns the value that To remembered last.
func (c *Change[T]) Last() T { return c.last }

// Recover returns a panic of work as an error with the stack.
func Recover(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return work()
}

// RecoverFault is Recover for work on mapped memory: it also recovers from a fault of a page that is not there. The error
// is what asError makes of the panic.
func RecoverFault(work func() error, asError func(panicked any) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = asError(p)
		}
	}()
	return work()
}

// Recovered returns work with panics as errors, for errgroup.Group.Go.
func Recovered(work func() error) func() error {
	return func() error { return Recover(work) }
}
