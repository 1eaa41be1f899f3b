package crash_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/clock"
)

// campaignsWithin is a little longer than the longest pause between two attempts of an agent to take the Lease of the leader
// (leases.Election: 15 s, and up to 1.2 times as much again).
const campaignsWithin = 35 * time.Second

// The clock of the member that leads steps by an hour: of its launch, its etcd and its agent. The others compare no time in a Lease with
// their own. So no Lease counts as stale, the leader keeps its duties, and it lets a member that lost its disk join again.
func TestTheClockOfTheLeaderStepsByAnHour(t *testing.T) {
	c := newCluster(t, 3)
	c.configure(patient())
	c.form()
	p := c.leader()
	c.eventually("its agent has the duties of the leader", func() error { return c.led(p.name) })
	before, _ := c.leadership()
	w := c.startWriter(c.endpoints())
	druid := leases.NewWatcher()
	c.eventually("all Leases are renewed", func() error { return c.allCount(druid) })
	for i, by := range []time.Duration{time.Hour, -time.Hour} {
		c.stepClock(p, by)
		for _, lease := range []string{p.name, leases.LeaderName(clusterName)} {
			c.eventually(fmt.Sprintf("Lease %s is renewed with a clock that is off by %s", lease, by), func() error {
				return errors.Join(c.renewedAt(lease, by), c.allCount(druid))
			})
		}
		stepped := time.Now()
		lost := c.followers(p)[i]
		former, err := c.memberID(p.name, lost.name)
		c.must(err)
		lost.powerOff()
		c.must(os.RemoveAll(lost.config.VolumePath))
		c.must(os.Mkdir(lost.config.VolumePath, 0o700))
		lost.startLaunch()
		lost.startAgent("")
		c.heals()
		if now, err := c.memberID(p.name, lost.name); err != nil || now == former {
			t.Errorf("%s has ID %x (%v), want another one than before it lost its disk", lost.name, now, err)
		}
		c.eventually("all Leases are renewed again", func() error { return c.allCount(druid) })
		c.eventually("each other agent looked at the Lease of the leader", func() error {
			if err := c.led(p.name); err != nil {
				t.Error(err)
			}
			if err := c.allCount(druid); err != nil {
				t.Error(err)
			}
			if past := time.Since(stepped); past < campaignsWithin && !t.Failed() {
				return fmt.Errorf("%s are over", past)
			}
			return nil
		})
		if t.Failed() {
			return
		}
	}
	if after, _ := c.leadership(); after.Transitions != before.Transitions {
		t.Errorf("the Lease of the leader had %d holders, and %d when the clock was right", after.Transitions, before.Transitions)
	}
	w.end(c)
}

// patient is a configuration with Leases that a busy machine renews in time.
func patient() config.Reloadable {
	r := quick()
	r.LeaseDuration = config.Duration(45 * time.Second)
	r.SuperfluousGracePeriod = r.LeaseDuration // the least that is legal
	return r
}

// configure gives all agents a configuration.
func (c *cluster) configure(r config.Reloadable) {
	c.t.Helper()
	content, err := r.YAML()
	c.must(err)
	for _, p := range c.pods {
		c.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
	}
}

// stepClock steps the clocks of a member's processes.
func (c *cluster) stepClock(p *pod, by time.Duration) {
	c.t.Helper()
	for _, pid := range []int{p.launch.cmd.Process.Pid, p.agent.cmd.Process.Pid, c.processes()[p.name]} {
		c.must(clock.Step(c.t.Context(), pid, by))
	}
}

func (c *cluster) endpoints() (all []string) {
	for _, name := range c.names {
		all = append(all, c.endpoint(name))
	}
	return all
}

// followers are the other members.
func (c *cluster) followers(leader *pod) (others []*pod) {
	for _, name := range c.names {
		if name != leader.name {
			others = append(others, c.pods[name])
		}
	}
	return others
}

func (c *cluster) leadership() (leases.Leadership, error) { return c.store.Leadership(c.t.Context()) }

// led returns an error unless the agent of a member has the duties of the leader.
func (c *cluster) led(name string) error {
	said, err := c.leadership()
	if err == nil && said.Holder != name {
		err = fmt.Errorf("the agent of %q has the duties of the leader, want that of %s", said.Holder, name)
	}
	return err
}

// renewedAt returns an error unless the last renewal of a Lease has the time of a clock that is off by so much.
func (c *cluster) renewedAt(name string, by time.Duration) error {
	lease, err := c.lease(name)
	if err != nil {
		return err
	}
	if at := lease.Spec.RenewTime; at == nil || (time.Until(at.Time)-by).Abs() > by.Abs()/2 {
		return fmt.Errorf("Lease %s was renewed at %v, want a time that is off by %s", name, at, by)
	}
	return nil
}

// allCount looks at the Leases of the members as druid does, and returns an error unless each counts.
func (c *cluster) allCount(w *leases.Watcher) error {
	for _, name := range c.names {
		lease, err := c.lease(name)
		if err != nil {
			return err
		}
		if is := w.Observe(lease, time.Now()); is&leases.Live == 0 {
			return fmt.Errorf("the Lease of %s counts as %s", name, is)
		}
	}
	return nil
}

func (c *cluster) lease(name string) (*coordinationv1.Lease, error) {
	return c.admin.CoordinationV1().Leases(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
}
