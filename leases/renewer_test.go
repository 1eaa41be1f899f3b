package leases

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// leaseServer replaces the API server in tests with virtual time and faults. server_harness_test.go has a real one.
type leaseServer struct {
	Client
	t            *testing.T
	mu           sync.Mutex
	lease        *coordinationv1.Lease
	fault        error
	gets, writes int
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func newLeaseServer(t *testing.T) *leaseServer {
	return &leaseServer{t: t, lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "demo-a", ResourceVersion: "1", Annotations: map[string]string{AnnotationPodUID: "mine"},
	}}}
}

func (s *leaseServer) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	switch {
	case s.fault != nil:
		return nil, s.fault
	case s.lease == nil:
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return s.lease.DeepCopy(), nil
}

func (s *leaseServer) Patch(_ context.Context, name string, _ types.PatchType, raw []byte, _ metav1.PatchOptions, _ ...string) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return nil, s.fault
	}
	if s.lease == nil {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	before := s.lease.ResourceVersion
	after := apply(s.t, s.lease, rawPatch(raw))
	if after.ResourceVersion != before {
		return nil, apierrors.NewConflict(leaseResource, name, errors.New("changed"))
	}
	s.lease = after
	s.bump()
	s.writes++
	return s.lease.DeepCopy(), nil
}

type rawPatch []byte

func (r rawPatch) MarshalJSON() ([]byte, error) { return r, nil }

func (s *leaseServer) bump() {
	n, err := strconv.Atoi(s.lease.ResourceVersion)
	if err != nil {
		s.t.Fatal(err)
	}
	s.lease.ResourceVersion = strconv.Itoa(n + 1)
}

func (s *leaseServer) member() Member {
	s.t.Helper()
	m, err := DecodeMember(s.lease)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// after lets time pass. What the test did before happens before what the Renewer does meanwhile, and that happens
// before what the test does next.
func (s *leaseServer) after(d time.Duration) {
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // the empty section orders memory, nothing else
	time.Sleep(d)
	synctest.Wait()
}

// oneInterval is the longest pause of a Renewer with an interval of 15 s, including the random jitter.
const oneInterval = 15*time.Second + 15*time.Second/10 + time.Millisecond

// renewing runs test with a Renewer in virtual time.
func renewing(t *testing.T, test func(t *testing.T, s *leaseServer, r *Renewer, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, log := newLeaseServer(t), &bytes.Buffer{}
		settings := func() Settings { return Settings{Interval: 15 * time.Second, Duration: 45 * time.Second} }
		r := NewRenewer(NewStore(s, "demo"), "demo-a", "mine", settings, slog.New(slog.NewJSONHandler(log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		test(t, s, r, log)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v, want none on a clean cancel", err)
		}
	})
}

func alive(change func(*Member)) Fact {
	m := Member{ID: 1, Role: RoleMember, ClusterID: 2, Raft: Raft{Term: 1, Committed: 10}}
	change(&m)
	return Fact{Member: m, Alive: true}
}

func TestRenewerCostsOneCallPerInterval(t *testing.T) {
	renewing(t, func(t *testing.T, s *leaseServer, r *Renewer, _ *bytes.Buffer) {
		r.Publish(alive(func(*Member) {}))
		s.after(2 * time.Second)
		s.gets, s.writes = 0, 0
		for i := range 600 { // ten minutes, in each second of which the revision moves
			s.after(time.Second)
			r.Publish(alive(func(m *Member) { m.Revision, m.Raft.Committed = int64(i), uint64(i+10) }))
		}
		if s.writes < 36 || s.writes > 40 || s.gets != 0 {
			t.Errorf("%d patches and %d reads in ten minutes, want 36 to 40 and none", s.writes, s.gets)
		}
		if m := s.member(); m.Floor.IsZero() || m.Raft.Committed-m.Floor.Committed < 14 {
			t.Errorf("position %v, floor %v: want the floor an interval behind", m.Raft, m.Floor)
		}
	})
}

// TestRenewerReportsChangeOnce: renewer reports a change of state at once and a burst once.
func TestRenewerReportsChangeOnce(t *testing.T) {
	renewing(t, func(t *testing.T, s *leaseServer, r *Renewer, _ *bytes.Buffer) {
		s.after(3 * time.Second)
		s.writes = 0
		for _, role := range []Role{RoleLearner, RoleMember, RoleLeader} {
			r.Publish(alive(func(m *Member) { m.Role = role }))
			s.after(50 * time.Millisecond)
		}
		s.after(1100 * time.Millisecond)
		if s.writes == 0 || s.writes > 2 || s.member().Role != RoleLeader {
			t.Errorf("%d patches, role %s; want one or two and Leader", s.writes, s.member().Role)
		}
	})
}

// TestRenewTimeStopsWhileUnwell: renew time stands still while the member is not well.
func TestRenewTimeStopsWhileUnwell(t *testing.T) {
	renewing(t, func(t *testing.T, s *leaseServer, r *Renewer, _ *bytes.Buffer) {
		r.Publish(alive(func(*Member) {}))
		s.after(2 * time.Second)
		renewed := s.lease.Spec.RenewTime
		if renewed == nil {
			t.Fatal("not renewed")
		}
		r.Publish(Fact{Member: Member{Rule: "await-quorum", Reason: "no quorum"}})
		s.after(time.Minute)
		if m := s.member(); !s.lease.Spec.RenewTime.Equal(renewed) || m.Rule != "await-quorum" || m.ID != 1 {
			t.Errorf("renewTime %v (was %v), %+v: want the facts reported, the ID kept and renewTime as it was", s.lease.Spec.RenewTime, renewed, m)
		}
	})
}

func TestRenewerAnswersWhatOthersWrote(t *testing.T) {
	renewing(t, func(t *testing.T, s *leaseServer, r *Renewer, _ *bytes.Buffer) {
		r.Publish(alive(func(*Member) {}))
		s.after(2 * time.Second)
		s.lease.Annotations[AnnotationRemoval] = `{"state":"requested","mark":"x7k2p"}`
		s.bump()
		s.after(oneInterval)
		if m, _, _ := r.Lease(); m.Removal.State != RemovalRequested || s.member().Removal != m.Removal {
			t.Errorf("druid's mark: the Renewer knows %+v, the Lease says %+v", m.Removal, s.member().Removal)
		}
		s.lease.Annotations[AnnotationPodUID] = "successor"
		s.bump()
		s.writes = 0
		s.after(5 * time.Minute)
		if s.writes != 0 {
			t.Errorf("%d patches by a superseded agent, want none", s.writes)
		}
		s.lease.Annotations[AnnotationPodUID] = "mine"
		s.bump()
		s.after(oneInterval)
		if s.writes == 0 {
			t.Error("the Lease is ours again and is not renewed")
		}
	})
}

// TestRenewerSurvivesLostLease: renewer outlives a lost Lease and a lost server.
func TestRenewerSurvivesLostLease(t *testing.T) {
	renewing(t, func(t *testing.T, s *leaseServer, r *Renewer, log *bytes.Buffer) {
		r.Publish(alive(func(*Member) {}))
		s.after(2 * time.Second)
		s.lease = nil // kubectl delete leases --all
		s.after(time.Minute)
		s.lease = newLeaseServer(t).lease
		s.after(6 * time.Second)
		if m := s.member(); m.ID != 1 || m.ClusterID != 2 {
			t.Errorf("made again, the Lease says %+v, want the member's IDs", m)
		}
		s.fault = apierrors.NewServiceUnavailable("down")
		s.gets = 0
		s.after(10 * time.Minute)
		if s.gets > 150 {
			t.Errorf("%d reads in ten minutes of an API server that is down, want it backed off", s.gets)
		}
		s.fault, s.writes = nil, 0
		s.after(6 * time.Second)
		if s.writes == 0 {
			t.Error("not renewed within 6 s of the server's return")
		}
		if n := strings.Count(log.String(), "lease renewal failed, retrying"); n != 2 {
			t.Errorf("%d warnings for two troubles, want one each:\n%s", n, log)
		}
	})
}
