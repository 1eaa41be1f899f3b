package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestClaimIsDecidedForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, claims, func(f claimFacts, d rules.Decision[claim]) string {
		switch claim := d.Verdict; {
		case claim == claimWrite && f.holding == heldByAnother && (f.elapsed == rules.No || f.leading == rules.Yes):
			return "another's Lease is taken before it ran out, or by one who leads"
		case claim == claimWrite && (f.holding == heldUnknown || f.holding == heldAbsent):
			return "a Lease is written that was not read"
		case claim == claimLose && (f.holding == heldUnknown || f.holding == heldByUs || f.leading == rules.No):
			return "nothing says that it is lost"
		case f.leading == rules.Yes && claim != claimLose && f.holding != heldUnknown && f.holding != heldByUs:
			return "we lead with a Lease that is not ours"
		}
		return ""
	})
	rulestest.Section(t, "../docs/reference/decisions.md", "claims", "Leader election of druid: leases.claims",
		"Asked by each replica of druid, and before and after each of its writes.", claims, cases)
}

func TestLeaderIsElectedOnceAndHandsOver(t *testing.T) {
	election(t, func(t *testing.T, s *leaseServer) {
		a := newCandidate(t, s, "a").campaign(t)
		after(time.Second)
		b := newCandidate(t, s, "b").campaign(t)
		after(10 * time.Minute)
		if !a.leads.Load() || b.leads.Load() || s.holder() != "a" {
			t.Errorf("a leads %t, b leads %t, held by %q; want a alone", a.leads.Load(), b.leads.Load(), s.holder())
		}
		if n := *s.spec().LeaseTransitions; n != 1 || s.writes < 38 || s.writes > 42 {
			t.Errorf("%d transitions, %d writes in ten minutes, want 1 and about 40", n, s.writes)
		}
		acquired := *s.spec().AcquireTime
		// Duties that take two minutes to end hold the Lease meanwhile.
		a.leaves = 2 * time.Minute
		ended := make(chan struct{})
		go func() { a.end(); close(ended) }()
		after(119 * time.Second)
		if !a.leads.Load() || s.holder() != "a" || b.leads.Load() || !acquired.Equal(s.spec().AcquireTime) {
			t.Errorf("while the duties of a end the Lease is held by %q since %v, b leads %t", s.holder(), s.spec().AcquireTime, b.leads.Load())
		}
		<-ended
		if !errors.Is(a.cause, context.Canceled) || s.holder() == "a" {
			t.Errorf("a ended with cause %v, and the Lease is held by %q; want it given back", a.cause, s.holder())
		}
		after(2*leaderRetryPeriod + time.Duration(campaignJitter*float64(leaderRetryPeriod)))
		if !b.leads.Load() || *s.spec().LeaseTransitions != 2 {
			t.Error("b does not lead one pause after the release")
		}
		if s.spec().AcquireTime.Equal(&acquired) || *s.spec().LeaseDurationSeconds != 60 {
			t.Errorf("the Lease of the second leader is %+v", s.spec())
		}
	})
}

// TestLeaderEndsBeforeSuccessor: the leader gives up well before another may follow.
func TestLeaderEndsBeforeSuccessor(t *testing.T) {
	election(t, func(t *testing.T, s *leaseServer) {
		a := newCandidate(t, s, "a").campaign(t)
		after(time.Second)
		b := newCandidate(t, s, "b").campaign(t)
		after(5 * time.Minute)
		renewed := s.spec().RenewTime.Time
		a.away.Store(true)
		for a.leads.Load() {
			after(100 * time.Millisecond)
		}
		if gone := time.Since(renewed); gone < 39*time.Second || gone > 41*time.Second || !errors.Is(a.cause, ErrNotLeader) {
			t.Errorf("cut off, it leads for %s after its last renewal and ends with %v, want 40 s and ErrNotLeader", gone, a.cause)
		}
		for !b.leads.Load() {
			after(100 * time.Millisecond)
		}
		// One pause passes until the last renewal is seen, and one after the Lease has expired.
		pause := leaderRetryPeriod + time.Duration(campaignJitter*float64(leaderRetryPeriod))
		if gone := time.Since(renewed); gone < leaderDuration || gone > leaderDuration+2*pause+time.Second {
			t.Errorf("another leads %s after the last renewal, want 60 s and two pauses of %s at most", gone, pause)
		}
		a.away.Store(false)
		after(5 * time.Minute)
		if a.leads.Load() || !b.leads.Load() || s.holder() != "b" {
			t.Errorf("back again, a leads %t, b leads %t, held by %q; want b", a.leads.Load(), b.leads.Load(), s.holder())
		}
	})
}

// TestLeaderSurvivesShortOutage: the leader outlives a short outage and a lost answer.
func TestLeaderSurvivesShortOutage(t *testing.T) {
	election(t, func(t *testing.T, s *leaseServer) {
		a := newCandidate(t, s, "a").campaign(t)
		after(20 * time.Second)
		s.mu.Lock()
		s.fault = apierrors.NewServiceUnavailable("down")
		s.mu.Unlock()
		after(30 * time.Second)
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		after(time.Minute)
		if !a.leads.Load() || a.cause != nil {
			t.Errorf("after half a minute without the API server: leads %t, cause %v; want it to lead on", a.leads.Load(), a.cause)
		}
		s.change(func() { s.lease.Labels = map[string]string{"druid": "restored"} })
		after(time.Minute)
		if !a.leads.Load() || a.cause != nil || s.lease.Labels["druid"] != "restored" {
			t.Errorf("after another's label: leads %t, cause %v, labels %v", a.leads.Load(), a.cause, s.lease.Labels)
		}
	})
}

func TestLeaderYieldsToWhatTheLeaseReports(t *testing.T) {
	for name, edit := range map[string]func(s *leaseServer){
		"another holds it":         func(s *leaseServer) { s.lease.Spec.HolderIdentity = new("another") },
		"no holder":                func(s *leaseServer) { s.lease.Spec.HolderIdentity = nil },
		"it is gone":               func(s *leaseServer) { s.lease = nil },
		"it was made again, empty": func(s *leaseServer) { s.lease = newLeaderLease(s.t).lease; s.lease.ResourceVersion = "1000" },
	} {
		t.Run(name, func(t *testing.T) {
			election(t, func(t *testing.T, s *leaseServer) {
				a := newCandidate(t, s, "a").campaign(t)
				after(20 * time.Second)
				a.leaves = 30 * time.Second
				s.change(func() { edit(s) })
				after(leaderRetryPeriod + time.Second)
				if !errors.Is(a.cause, ErrNotLeader) {
					t.Errorf("cause %v, want ErrNotLeader within a renewal", a.cause)
				}
				if holder := s.holder(); holder == "a" || !a.leads.Load() {
					t.Errorf("held by %q while its duties end, want it left alone", holder)
				}
				after(leaderDuration / 2)
				if name == "another holds it" && s.holder() != "another" {
					t.Errorf("held by %q, want it left to someone", s.holder())
				}
			})
		})
	}
}

func TestCandidateTakesOnlyWhatItSawUnchanged(t *testing.T) {
	election(t, func(t *testing.T, s *leaseServer) {
		// The holder's clock is a year behind, and its Lease has a duration of one second.
		old := metav1.NewMicroTime(time.Now().AddDate(-1, 0, 0))
		s.lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("gone"), RenewTime: &old, LeaseDurationSeconds: new(int32(1))}
		a := newCandidate(t, s, "a").campaign(t)
		after(59 * time.Second)
		if a.leads.Load() {
			t.Error("an old time of another clock is taken for the Lease's end")
		}
		s.change(func() { s.lease.Spec.RenewTime = new(metav1.NewMicroTime(old.Add(time.Microsecond))) })
		after(59 * time.Second)
		if a.leads.Load() {
			t.Error("a renewal was not seen")
		}
		for i := 0; i < 12 && !a.leads.Load(); i++ {
			s.change(func() { s.lease.Labels = map[string]string{"no": fmt.Sprint("renewal ", i)} })
			after(10 * time.Second) // more often than it looks
		}
		if !a.leads.Load() {
			t.Error("a label was taken for a renewal")
		}
	})
}

// TestCutOffCampaignReleasesLease: a campaign that is cut off gives the Lease back.
// The answer to the write that takes the Lease arrives after the campaign ended.
func TestCutOffCampaignReleasesLease(t *testing.T) {
	for _, cut := range []int{5, 15, 25, 35, 45} { // of 10 ms each on their way: a read, its answer, a write, its answer
		election(t, func(t *testing.T, s *leaseServer) {
			a := newCandidate(t, s, "a").campaign(t)
			after(time.Duration(cut) * time.Millisecond)
			a.end()
			if s.holder() != "" {
				t.Errorf("called off after %d ms, the Lease is held by %q, want no holder", cut, s.holder())
			}
			if led := a.cause != nil; led != (cut > 40) {
				t.Errorf("called off after %d ms, it led: %t", cut, led)
			}
		})
	}
}

// The Lease names the same agent from before its restart, so no other agent acts.
func TestRestartedLeaderGoesOn(t *testing.T) {
	election(t, func(t *testing.T, s *leaseServer) {
		s.lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("a"), LeaseTransitions: new(int32(7))}
		a := newCandidate(t, s, "a").campaign(t)
		after(time.Second)
		if !a.leads.Load() || *s.spec().LeaseTransitions != 7 || s.spec().AcquireTime != nil {
			t.Errorf("leads %t with %+v, want it to go on at once, as the same term", a.leads.Load(), s.spec())
		}
	})
}

// TestEndedDutiesKeepLease: duties that end by themselves keep the Lease.
func TestEndedDutiesKeepLease(t *testing.T) {
	election(t, func(t *testing.T, s *leaseServer) {
		c, calls := newCandidate(t, s, "a"), 0
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		go func() {
			after := time.NewTimer(4 * time.Minute)
			<-after.C
			if s.holder() != "a" {
				t.Errorf("held by %q, want a", s.holder())
			}
		}()
		if err := c.Run(ctx, func(context.Context) { calls++ }); err != nil || calls != 1 || s.holder() != "" {
			t.Errorf("%v, led %d times, held by %q at the end; want one term and the Lease given back", err, calls, s.holder())
		}
	})
}

// Whatever the network does, two agents never lead at once, and when it works again, one leads.
func TestNeverTwoLeaders(t *testing.T) {
	var terms, lost atomic.Int32
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			election(t, func(t *testing.T, s *leaseServer) {
				var draw sync.Mutex
				lots := rand.New(rand.NewPCG(seed, 1))
				odds := func(n int) int { draw.Lock(); defer draw.Unlock(); return lots.IntN(n) }
				var leaders atomic.Int32
				story, over := context.WithCancel(t.Context())
				var group sync.WaitGroup
				remotes := map[string]*remote{}
				for _, name := range []string{"a", "b", "c"} {
					r := &remote{leaseServer: s, away: &atomic.Bool{}, faulty: true, odds: odds}
					remotes[name] = r
					group.Go(func() {
						for story.Err() == nil { // raft leadership comes and goes
							e := NewElection(NewStore(r, "demo"), name, slog.New(slog.DiscardHandler))
							campaign, cancel := context.WithTimeout(story, time.Duration(odds(600))*time.Second)
							_ = e.Run(campaign, func(held context.Context) {
								terms.Add(1)
								if n := leaders.Add(1); n > 1 {
									t.Errorf("%s leads next to another", name)
								}
								<-held.Done()
								if errors.Is(context.Cause(held), ErrNotLeader) {
									lost.Add(1)
								}
								loop.Sleep(t.Context(), time.Duration(odds(19))*time.Second) // within the margin of 20 s
								leaders.Add(-1)
							})
							cancel()
							loop.Sleep(story, time.Duration(odds(30))*time.Second)
						}
					})
				}
				for range 60 {
					after(time.Minute)
					for _, name := range []string{"a", "b", "c"} {
						remotes[name].away.Store(odds(4) == 0)
					}
				}
				for _, r := range remotes {
					r.away.Store(false)
				}
				before := terms.Load()
				after(30 * time.Minute)
				if terms.Load() == before {
					t.Error("there was no leader in half an hour without an outage")
				}
				over()
				group.Wait()
			})
		})
	}
	if terms.Load() < 1000 || lost.Load() < 100 {
		t.Errorf("%d terms, %d of them lost, want many: the test shows nothing", terms.Load(), lost.Load())
	}
}
