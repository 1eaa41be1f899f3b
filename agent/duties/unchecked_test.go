package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/server/v3/embed"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/embedded"
)

// TestUncheckedDifferingMemberMarked: an unchecked member whose data differs marks itself.
func TestUncheckedDifferingMemberMarked(t *testing.T) {
	c := newCompared(t, names)
	differing := c.followers()[0]
	c.flip(differing)
	stopped, _ := c.unchecked(differing)
	select {
	case err := <-stopped:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(maxWait):
		t.Fatal("it does not stop its etcd")
	}
	if d := c.differs(differing); !d.Of(c.id(differing)) || d.Confirmed == 0 || d.Hash == d.Majority {
		t.Errorf("its mark is %+v", d)
	}
	c.hasUnchecked("differing")
}

// TestUncheckedGoodMemberLeads: an unchecked member with good data leads and the differing one is marked.
func TestUncheckedGoodMemberLeads(t *testing.T) {
	c := newCompared(t, names)
	differing, good := c.followers()[0], c.followers()[1]
	c.flip(differing)
	_, compared := c.unchecked(good)
	c.eventually(good+" leads", func() error {
		leader, err := c.cluster.leader()
		if err == nil && leader != good {
			err = fmt.Errorf("%s leads", leader)
		}
		return err
	})
	c.eventually("it is compared", func() error {
		if !compared.Load() {
			return errors.New("it goes on")
		}
		return nil
	})
	c.hasUnchecked("another-differs")
	if d := c.differs(good); d != (leases.Difference{}) {
		t.Errorf("the good member is marked: %+v", d)
	}
}

// TestUncheckedDoneWhenAllCompared: an unchecked member is done only when all are compared.
func TestUncheckedDoneWhenAllCompared(t *testing.T) {
	c := newCompared(t, names)
	away := c.followers()[1]
	c.stop(away)
	stopped, compared := c.unchecked(c.followers()[0])
	c.eventually("nothing is known while a member is away", func() error {
		if testutil.ToFloat64(c.decisions.WithLabelValues(uncheckedTable, "not-confirmed")) == 0 {
			return errors.New("nothing was decided")
		}
		return nil
	})
	if compared.Load() {
		t.Error("it is compared without a comparison of all")
	}
	c.start(away)
	c.eventually("it is compared", func() error {
		if !compared.Load() {
			return errors.New("it goes on")
		}
		return nil
	})
	c.hasUnchecked("agrees")
	select {
	case err := <-stopped:
		t.Errorf("its etcd was stopped: %v", err)
	default:
	}
}

func TestALearnerIsComparedWhenItVotes(t *testing.T) {
	c := newCompared(t, names)
	const learner = "learner"
	config := embedded.Config(t, learner, t.TempDir())
	c.configs[learner] = config
	var added membership.Member
	c.eventually("add a learner", func() (err error) { // etcd adds none before all voters have been connected for 5 s
		added, err = membership.AddLearner(t.Context(), c.client(c.leader), config.AdvertisePeerUrls[0].String())
		return err
	})
	config.ClusterState, config.InitialCluster = embed.ClusterStateFlagExisting, c.configs[c.leader].InitialCluster+","+config.InitialCluster
	config.InitialClusterToken = c.configs[c.leader].InitialClusterToken
	c.start(learner)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: learner}}
	if _, err := c.admin.CoordinationV1().Leases(c.namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o, compared := c.uncheckedMember(learner)
	stop := func(context.Context, string) error { return errors.New("stopped") }
	c.eventually("it is observed", func() error { return o.look(t.Context(), stop) })
	if o.undecided != 0 || compared.Load() || testutil.CollectAndCount(c.decisions) != 0 {
		t.Errorf("a learner: %d comparisons, compared %t", o.undecided, compared.Load())
	}
	c.eventually("it votes", func() error {
		_, err := c.client(c.leader).MemberPromote(t.Context(), added.ID)
		return err
	})
	c.eventually("it is compared", func() error {
		if err := o.look(t.Context(), stop); err != nil {
			return err
		}
		// The record does not list it yet. Its own etcd can apply the promotion later than the leader.
		if testutil.ToFloat64(c.decisions.WithLabelValues(uncheckedTable, "record-not-authoritative")) == 0 {
			return errors.New("it was not compared")
		}
		return nil
	})
}

func TestEachRunOfEtcdIsComparedAtOnce(t *testing.T) {
	o := &DifferingMember{undecided: 1000}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Run(ctx, nil); err != nil || o.undecided != 0 {
		t.Errorf("another etcd waits after %d comparisons of the one before, error %v", o.undecided, err)
	}
}

// unchecked runs the part of the agent of a member that etcd did not compare at its start, until it stops its etcd.
func (c *compared) unchecked(name string) (<-chan error, *atomic.Bool) {
	o, compared := c.uncheckedMember(name)
	return c.followed(o), compared
}

func (c *compared) uncheckedMember(name string) (*DifferingMember, *atomic.Bool) {
	compared := &atomic.Bool{}
	c.decisions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"})
	o := &DifferingMember{
		Store: c.store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(name), Decisions: c.decisions, Log: slog.New(slog.DiscardHandler),
		Self: func() (Cluster, bool) {
			return Cluster{ClusterID: uint64(c.members[name].Server.Cluster().ID()), MemberID: c.id(name), Member: name, PodUID: "pod of " + name}, true
		},
		Marked:    func() bool { return c.differs(name).Of(c.id(name)) },
		Unchecked: func() bool { return !compared.Load() }, Compared: func() { compared.Store(true) },
	}
	return o, compared
}

func (c *compared) hasUnchecked(rule string) {
	c.t.Helper()
	if testutil.ToFloat64(c.decisions.WithLabelValues(uncheckedTable, rule)) == 0 {
		c.t.Errorf("rule %s has not decided", rule)
	}
}
