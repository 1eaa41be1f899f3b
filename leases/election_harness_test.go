package leases

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remote is the API server behind a network that is slow, loses answers, and delivers late requests.
type remote struct {
	*leaseServer
	away   *atomic.Bool         // nothing comes through
	faulty bool                 // some calls take long or are lost
	odds   func(n int) (is int) // draws from [0,n)
}

// travel is how long a request or an answer takes.
func (r *remote) travel() time.Duration {
	switch {
	case !r.faulty || r.odds(4) > 0:
		return 10 * time.Millisecond
	case r.odds(8) > 0:
		return time.Duration(r.odds(8000)) * time.Millisecond
	default:
		return 40 * time.Second
	}
}

func through[T any](ctx context.Context, r *remote, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	if r.away.Load() {
		<-ctx.Done()
		return *new(T), ctx.Err()
	}
	there, back := r.travel(), r.travel()
	answers := make(chan answer, 1)
	go func() {
		time.Sleep(there)
		value, err := call()
		time.Sleep(back)
		answers <- answer{value, err}
	}()
	select {
	case <-ctx.Done():
		return *new(T), ctx.Err()
	case a := <-answers:
		if r.away.Load() {
			<-ctx.Done()
			return *new(T), ctx.Err()
		}
		return a.value, a.err
	}
}

func (r *remote) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return through(ctx, r, func() (*coordinationv1.Lease, error) { return r.leaseServer.Get(ctx, name, o) })
}

func (r *remote) Patch(ctx context.Context, name string, kind types.PatchType, raw []byte, o metav1.PatchOptions, _ ...string) (*coordinationv1.Lease, error) {
	return through(ctx, r, func() (*coordinationv1.Lease, error) { return r.leaseServer.Patch(ctx, name, kind, raw, o) })
}

func newLeaderLease(t *testing.T) *leaseServer {
	return &leaseServer{t: t, lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "demo-leader", ResourceVersion: "1", UID: "u"}}}
}

func (s *leaseServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

func (s *leaseServer) spec() coordinationv1.LeaseSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.lease.Spec.DeepCopy()
}

func (s *leaseServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.lease != nil {
		s.bump()
	}
}

// candidate is an agent that campaigns when the test starts it.
type candidate struct {
	*Election
	away   atomic.Bool
	leads  atomic.Bool
	leaves time.Duration // that its duties take to end
	cause  error
	end    func()
}

func newCandidate(t *testing.T, s *leaseServer, name string) *candidate {
	c := &candidate{}
	c.Election = NewElection(NewStore(&remote{leaseServer: s, away: &c.away}, "demo"), name, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if c.end != nil {
			c.end()
		}
	})
	return c
}

// campaign runs until end is called.
func (c *candidate) campaign(t *testing.T) *candidate {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Run(ctx, func(held context.Context) {
			c.leads.Store(true)
			<-held.Done()
			c.cause = context.Cause(held)
			time.Sleep(c.leaves)
			c.leads.Store(false)
		})
	}()
	c.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", c.identity, err)
		}
	})
	return c
}

// election runs a story in virtual time and ends its candidates.
func election(t *testing.T, story func(t *testing.T, s *leaseServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(5 * time.Minute) }) // what is still on its way arrives
		story(t, newLeaderLease(t))
	})
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
