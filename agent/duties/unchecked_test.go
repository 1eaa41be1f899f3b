package duties

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
)

func TestAnUncheckedMemberWhoseDataDiffersMarksItself(t *testing.T) {
	c := newCompared(t, names)
	odd := c.followers()[0]
	c.flip(odd)
	stopped, _ := c.unchecked(odd)
	select {
	case err := <-stopped:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(maxWait):
		t.Fatal("it does not stop its etcd")
	}
	if d := c.differs(odd); !d.Of(c.id(odd)) || d.Confirmed == 0 || d.Hash == d.Majority {
		t.Errorf("its mark is %+v", d)
	}
	c.hasUnchecked("odd")
}

func TestAnUncheckedMemberWithGoodDataLeadsAndTheOddOneIsMarked(t *testing.T) {
	c := newCompared(t, names)
	odd, good := c.followers()[0], c.followers()[1]
	c.flip(odd)
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
	c.hasUnchecked("another-is-odd")
	if d := c.differs(good); d != (leases.Difference{}) {
		t.Errorf("the good member is marked: %+v", d)
	}
}

func TestAnUncheckedMemberIsDoneOnlyWhenAllAreCompared(t *testing.T) {
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

// unchecked runs the part of the agent of a member that etcd did not compare at its start, until it stops its etcd.
func (c *compared) unchecked(name string) (<-chan error, *atomic.Bool) {
	compared := &atomic.Bool{}
	c.decisions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"})
	o := &OddMember{
		Store: c.store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(name), Decisions: c.decisions, Log: slog.New(slog.DiscardHandler),
		Self: func() (Cluster, bool) {
			return Cluster{ClusterID: uint64(c.members[name].Server.Cluster().ID()), MemberID: c.id(name), Member: name, PodUID: "pod of " + name}, true
		},
		Marked:    func() bool { return c.differs(name).Of(c.id(name)) },
		Unchecked: func() bool { return !compared.Load() }, Compared: func() { compared.Store(true) },
	}
	return c.followed(o), compared
}

func (c *compared) hasUnchecked(rule string) {
	c.t.Helper()
	if testutil.ToFloat64(c.decisions.WithLabelValues(uncheckedTable, rule)) == 0 {
		c.t.Errorf("rule %s has not decided", rule)
	}
}
