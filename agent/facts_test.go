package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/agent/bootstrap"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/guard"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func TestTheLeaseTellsOnlyWhatIsCertain(t *testing.T) {
	formed := datadir.Stamp{MemberID: 1, ClusterID: 2, Epoch: 3, Lineage: "l", Formed: true}
	leading := State{Reachable: true, Healthy: true, Status: membership.Status{
		MemberID: 1, ClusterID: 2, Leader: 1, Role: membership.RoleLeader, RaftTerm: 4, RaftIndex: 5, Revision: 6, DBSize: 7, DBSizeInUse: 8, Version: "3.6.16",
	}}
	told := leases.Member{
		ID: 1, Role: leases.RoleLeader, ClusterID: 2, Epoch: 3, Lineage: "l", Raft: leases.Raft{Term: 4, Committed: 5},
		Revision: 6, DBSize: 7, DBSizeInUse: 8, VolumeFree: 9, Version: "3.6.16",
	}
	with := func(change func(*leases.Member)) leases.Member { m := told; change(&m); return m }
	for name, test := range map[string]struct {
		states []State
		stamp  datadir.Stamp
		known  bool
		want   leases.Fact
	}{
		"a member that is well":                        {[]State{leading}, formed, true, leases.Fact{Member: told, Alive: true}},
		"a group that may yet be lost has no ID":       {[]State{leading}, datadir.Stamp{MemberID: 1, ClusterID: 2}, true, leases.Fact{}},
		"without a start decision nothing is ours":     {[]State{leading}, datadir.Stamp{}, false, leases.Fact{}},
		"an etcd that never answered tells nothing":    {nil, formed, true, leases.Fact{}},
		"an etcd of another ID is not ours":            {[]State{leading}, datadir.Stamp{MemberID: 9, ClusterID: 2, Formed: true}, true, leases.Fact{}},
		"whoever is gone keeps its ID and leads not":   {[]State{leading, {}}, formed, true, leases.Fact{Member: with(func(m *leases.Member) { m.Role = leases.RoleMember })}},
		"whoever answers and is not well is not alive": {[]State{{Reachable: true, Status: leading.Status}}, formed, true, leases.Fact{Member: told}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts("v1")
			f.room(9)
			f.decide(bootstrap.Published{Decision: bootstrap.Decision{Rule: "resume"}, Data: "intact"})
			for _, s := range test.states {
				f.observe(s)
			}
			test.want.Member.AgentVersion, test.want.Member.Rule, test.want.Member.Data = "v1", "resume", "intact"
			if diff := cmp.Diff(f.fact(test.stamp, test.known), test.want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

func TestTheLeaseTellsWhatBarsTheVolumeUntilItIsGone(t *testing.T) {
	f := newFacts("v1")
	f.decide(bootstrap.Published{Decision: bootstrap.Decision{Rule: "resume"}, Data: "intact"})
	f.bar(bootstrap.Decision{Mode: bootstrap.ModeRefuse, Rule: "volume-unusable", Reason: "it is read-only"})
	want := leases.Member{AgentVersion: "v1", Data: "unread", Rule: "volume-unusable", Reason: "it is read-only"}
	if diff := cmp.Diff(f.fact(datadir.Stamp{}, false).Member, want); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
	f.bar(bootstrap.Decision{})
	want = leases.Member{AgentVersion: "v1", Data: "intact", Rule: "resume"}
	if diff := cmp.Diff(f.fact(datadir.Stamp{}, false).Member, want); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
}

func TestALoopThatPanicsOrFailsIsBegunAnewWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(prometheus.NewRegistry(), "v1")
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{log: slog.New(slog.DiscardHandler), metrics: m}
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		began := time.Now()
		a.keep(ctx, "duty", func(context.Context) error {
			at = append(at, time.Since(began))
			switch len(at) {
			case 1:
				panic("a bug")
			case 2:
				return errors.New("an error")
			case 3:
				return nil // a loop that ends by itself has failed too
			default:
				cancel()
				return nil
			}
		})
		if diff := cmp.Diff(at, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}); diff != "" {
			t.Errorf("begun at (-got +want)\n%s", diff)
		}
		if n := testutil.ToFloat64(m.restarts.WithLabelValues("duty")); n != 3 {
			t.Errorf("%v restarts counted, want 3", n)
		}
	})
}

func TestAPanicIsAnErrorThatNamesItsPlace(t *testing.T) {
	err := guard.Run(func() error { panic("a bug") })
	if err == nil || !strings.Contains(err.Error(), "a bug") || !strings.Contains(err.Error(), "facts_test.go") {
		t.Errorf("got %v, want the panic and its stack", err)
	}
}

func TestLivenessLooksAtOwnLoopsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeats()
		bounds := map[string]time.Duration{loopObserver: time.Minute, loopRenewer: time.Minute}
		time.Sleep(50 * time.Second)
		b.beat(loopObserver)
		if loop := b.stuck(bounds); loop != "" {
			t.Errorf("%s is called stuck within its bound", loop)
		}
		time.Sleep(20 * time.Second)
		if loop := b.stuck(bounds); loop != loopRenewer {
			t.Errorf("stuck is %q, want %s", loop, loopRenewer)
		}
	})
}

func TestUnusedPagesAreReleasedAndTheProcessGoesOn(t *testing.T) {
	if len(ownPages()) == 0 {
		t.Fatal("no mapping of our executable was found")
	}
	releaseUnused()
	TestAPanicIsAnErrorThatNamesItsPlace(t) // stacks need the tables that were unmapped
}
