package leases_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// shortTerm is the duration of a Lease in these tests. Its holder gives up after two thirds of it, eight seconds. This
// is four seconds before another candidate may follow, which covers the delays of a busy machine.
const shortTerm = 12 * time.Second

func TestMain(m *testing.M) {
	if as := os.Getenv(candidateVariable); as != "" {
		if err := campaignAs(as); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(env.Main(m))
}

// leaderServer is a server with a leader's Lease that also has content which is not the election's.
func leaderServer(t *testing.T) *server {
	s := newServer(t)
	s.make("demo-leader", func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"someone.else/key": "stays"} })
	t.Cleanup(func() { // the test's own context has ended
		lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(context.WithoutCancel(t.Context()), "demo-leader", metav1.GetOptions{})
		if err != nil || lease.Annotations["someone.else/key"] != "stays" {
			t.Errorf("%v: a foreign annotation was lost: %v", err, lease.Annotations)
		}
	})
	return s
}

func (s *server) holder() string {
	if h := s.get("demo-leader").Spec.HolderIdentity; h != nil {
		return *h
	}
	return ""
}

// campaigner is an agent that campaigns on a real server.
type campaigner struct {
	began, ended chan time.Time // each term
	stop         func()
}

func (s *server) campaign(config *rest.Config, identity string, ending func()) *campaigner {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	c := &campaigner{began: make(chan time.Time, 100), ended: make(chan time.Time, 100)}
	election := leases.NewElection(leases.NewStore(s.client(config), "demo"), identity, discard()).WithTimes(shortTerm)
	done := make(chan error, 1)
	go func() {
		done <- election.Run(ctx, func(ctx context.Context) {
			c.began <- time.Now()
			<-ctx.Done()
			ending()
			c.ended <- time.Now()
		})
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("election: %v", err)
		}
	})
	s.t.Cleanup(c.stop)
	return c
}

func (s *server) soon(what string, moment <-chan time.Time) time.Time {
	s.t.Helper()
	select {
	case at := <-moment:
		return at
	case <-time.After(maxWait):
		s.t.Fatalf("not within %s: %s", maxWait, what)
		return time.Time{}
	}
}

func TestElectionNeedsNoRightToCreate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.campaign(s.agent, "demo-a", func() {}).stop() // there is no Lease, and no right to make one: it must end all the same
	s.make("demo-leader", func(*coordinationv1.Lease) {})
	a := s.campaign(s.agent, "demo-a", func() {
		// Duties that take a moment to end still hold the Lease.
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
			if h := s.holder(); h != "demo-a" {
				t.Errorf("while the duties of demo-a end the Lease is held by %q", h)
				return
			}
		}
	})
	s.soon("demo-a leads", a.began)
	if s.holder() != "demo-a" {
		t.Errorf("held by %q, want demo-a", s.holder())
	}
	a.stop()
	if s.holder() != "" {
		t.Errorf("after the end held by %q, want no holder", s.holder())
	}
	b := s.campaign(s.agent, "demo-b", func() {})
	s.soon("demo-b leads", b.began)
	b.stop()
	if l := s.get("demo-leader"); *l.Spec.LeaseTransitions != 2 || s.holder() != "" {
		t.Errorf("at the end the Lease says %+v", l.Spec)
	}
}

func TestRacingCandidatesLeadOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := leaderServer(t)
	var leaders atomic.Int32
	var group sync.WaitGroup
	turns := make(chan string, 100)
	for i := range 4 {
		name := fmt.Sprintf("demo-%c", 'a'+i)
		store := leases.NewStore(s.client(s.agent), "demo")
		group.Go(func() {
			for range 5 { // hands over at once, so that the others race for it
				ctx, cancel := context.WithCancel(t.Context())
				_ = leases.NewElection(store, name, discard()).WithTimes(shortTerm).Run(ctx, func(held context.Context) {
					alongside := leaders.Add(1) > 1
					if h := s.holder(); held.Err() == nil && (alongside || h != name) {
						t.Errorf("%s leads, next to another: %t; the Lease is held by %q", name, alongside, h)
					}
					leaders.Add(-1)
					turns <- name
					cancel()
				})
			}
		})
	}
	group.Wait()
	if n := *s.get("demo-leader").Spec.LeaseTransitions; len(turns) != 20 || n < 20 {
		t.Errorf("%d terms and %d transitions, want 20, and one more for each whose answer came too late", len(turns), n)
	}
}

// severed drops the requests to the server while it is cut off.
type severed struct {
	cut  atomic.Bool
	next http.RoundTripper
}

func (s *severed) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.cut.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s.next.RoundTrip(r)
}

// TestCutOffLeaderEndsBeforeNext: the leader without the server has ended when another begins.
func TestCutOffLeaderEndsBeforeNext(t *testing.T) {
	t.Parallel()
	s := leaderServer(t)
	line := &severed{}
	behind := rest.CopyConfig(s.agent)
	behind.Wrap(func(next http.RoundTripper) http.RoundTripper { line.next = next; return line })
	a := s.campaign(behind, "demo-a", func() {})
	s.soon("demo-a leads", a.began)
	b := s.campaign(s.agent, "demo-b", func() {})
	line.cut.Store(true)
	ended, began := s.soon("demo-a has ended", a.ended), s.soon("demo-b leads", b.began)
	if !ended.Before(began) {
		t.Errorf("demo-a ended %s after demo-b began", ended.Sub(began))
	}
	line.cut.Store(false)
	b.stop()
	s.soon("demo-a leads again", a.began)
}

// An agent of an older release campaigns by client-go's election, on the same Lease.
func TestElectionAgreesWithThatOfClientGo(t *testing.T) {
	t.Parallel()
	s := leaderServer(t)
	older := func() (leads <-chan time.Time, stop func()) {
		began, done := make(chan time.Time, 1), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo-leader"},
				Client:    kubernetes.NewForConfigOrDie(s.agent).CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "demo-old"},
			},
			LeaseDuration: shortTerm, RenewDeadline: 2 * shortTerm / 3, RetryPeriod: shortTerm / 15, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { began <- time.Now() }, OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { defer close(done); elector.Run(ctx) }()
		return began, func() { cancel(); <-done }
	}
	leads, stop := older()
	s.soon("the older one leads", leads)
	a := s.campaign(s.agent, "demo-a", func() {})
	s.still("demo-old", a.began)
	stop()
	s.soon("ours leads after it", a.began)
	leads, stop = older()
	defer stop()
	s.still("demo-a", leads)
	a.stop()
	s.soon("the older one leads after ours", leads)
}

// still checks, for longer than the Lease's duration, that its holder keeps it.
func (s *server) still(holder string, other <-chan time.Time) {
	s.t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(shortTerm + shortTerm/2); time.Now().Before(end); <-ticker.C {
		if h := s.holder(); h != holder || len(other) > 0 {
			s.t.Fatalf("held by %q, and %d others began to lead; want %s alone", h, len(other), holder)
		}
	}
}
