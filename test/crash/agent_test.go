package crash_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/crash/points"
)

// A scenario brings a member to the eve of the calls that it is about. All agents run but the member's own, which the
// test then starts to end at one of the points, starts again, and watches until the cluster is whole.
type scenario struct {
	// members of the cluster.
	members int
	// newborn: each point has a cluster of its own, of which nothing was formed. Else one formed cluster serves them all.
	newborn bool
	// eve prepares what is to be interrupted and returns the member whose agent will be.
	eve func(c *cluster) *pod
	// disturb happens once that agent runs; it may be nil.
	disturb func(p *pod)
	// leads says that the agent passes its point only while its member leads.
	leads bool
	// between happens after that agent has ended, and before it is started again; it may be nil.
	between func(c *cluster, p *pod)
	// aftermath follows once the agent runs again; it may be nil.
	aftermath func(c *cluster, p *pod)
}

var scenarios = map[string]scenario{
	"bootstrap": {members: 1, newborn: true, eve: seed},
	"a bootstrap that was lost": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		p := seed(c)
		p.startAgent("before-record-formed")
		p.endsAtItsPoint(func() {})
		c.changeRecord(func(r *leases.Record) {
			r.Nonce, r.Executor = "another", "pod-other"
			r.Lineage = leases.LineageOf(r.Epoch, r.Nonce)
		})
		return p
	}},
	"bootstrap from a backup": {members: 1, newborn: true, eve: restoring, aftermath: func(c *cluster, _ *pod) {
		c.heals()
		c.restored()
	}},
	"adoption": {members: 1, newborn: true, eve: adopting},
	"join": {members: 2, newborn: true, eve: func(c *cluster) *pod {
		seed(c).startAgent("")
		return c.pods[c.names[1]]
	}},
	"replacement": {members: 3, eve: func(c *cluster) *pod {
		p := c.follower()
		var lease leases.Member
		c.eventually("the Lease reports that the member votes", func() (err error) {
			if lease, err = c.store.Member(c.t.Context(), p.name); err == nil && lease.Role != leases.RoleMember {
				err = fmt.Errorf("it reports %q", lease.Role)
			}
			return err
		})
		p.powerOff()
		// What is on the volume is another's, so it is stale.
		c.annotate(p.name, leases.AnnotationVolumeUID, lease.VolumeUID+"-again")
		p.startLaunch()
		return p
	}},
	"rejoin": {members: 3, eve: func(c *cluster) *pod {
		p := c.follower()
		p.powerOff()
		var id uint64
		c.eventually("find the member that is down", func() (err error) {
			id, err = c.memberID(c.other(p), p.name)
			return err
		})
		c.eventually("remove the member that is down", func() error {
			return c.etcd(c.other(p), func(ctx context.Context, client *clientv3.Client) error {
				err := membership.Remove(ctx, client, id)
				if errors.Is(err, membership.ErrNotFound) {
					return nil
				}
				return err
			})
		})
		p.startLaunch()
		return p
	}},
	"leave": {members: 3, eve: func(c *cluster) *pod {
		p := c.leader()
		p.killAgent()
		return p
	}, disturb: func(p *pod) {
		p.c.eventually("the agent hears of launch", p.hasLaunch)
		p.c.eventually("it leads still, or again", func() error {
			p.c.lead(p)
			return p.c.etcd(p.name, func(ctx context.Context, client *clientv3.Client) error {
				status, err := membership.ReadStatus(ctx, client, p.c.endpoint(p.name))
				if err == nil && status.Role != membership.RoleLeader {
					err = fmt.Errorf("it is a %s", status.Role)
				}
				return err
			})
		})
		// The Pod is deleted; a new one follows.
		p.launch.end(syscall.SIGTERM)
		p.startLaunch()
	}},
	"pruning": {members: 1, eve: func(c *cluster) *pod {
		p := seed(c)
		p.killAgent()
		for _, dir := range []string{"data.quarantine-0007-stale", ".pruned-data.quarantine-0003-stale"} {
			c.must(os.MkdirAll(filepath.Join(p.config.VolumePath, dir, "member"), 0o700))
		}
		return p
	}},
	"completion of a record": {members: 1, eve: func(c *cluster) *pod {
		p := seed(c)
		p.killAgent()
		c.changeRecord(func(r *leases.Record) { r.Nonce, r.Lineage, r.MaxLearners = "", "", 0 })
		return p
	}},
	"a disk that is not described": {members: 1, eve: func(c *cluster) *pod {
		p := seed(c)
		p.killAgent()
		c.annotate(p.name, leases.Prefix+"disk", `{"pod":"former","state":"empty"}`) // etcd runs
		return p
	}, aftermath: func(c *cluster, p *pod) {
		c.eventually("the Lease no longer describes the disk", func() error {
			lease, err := c.store.Member(c.t.Context(), p.name)
			if err == nil && lease.Disk != nil {
				err = fmt.Errorf("it has %+v", lease.Disk)
			}
			return err
		})
	}},
	"backups": {members: 1, eve: func(c *cluster) *pod {
		p := seed(c)
		p.killAgent()
		p.backUp(c.t.TempDir())
		return p
	}, aftermath: func(c *cluster, p *pod) { p.savesOn() }},
	"a backup on demand": {members: 1, eve: func(c *cluster) *pod {
		p := seed(c)
		p.killAgent()
		p.backUp(c.t.TempDir())
		c.orderBackup()
		return p
	}, aftermath: func(c *cluster, p *pod) {
		p.ordersAnswered()
		p.savesOn()
	}},
	"removal of an unknown member": {members: 1, eve: func(c *cluster) *pod {
		p := seed(c)
		p.killAgent()
		c.eventually("add an unknown member", func() error {
			return c.etcd(p.name, func(ctx context.Context, client *clientv3.Client) error {
				_, err := membership.AddLearner(ctx, client, "http://127.0.0.9:2380")
				if errors.Is(err, membership.ErrExists) {
					return nil
				}
				return err
			})
		})
		return p
	}},
}

func seed(c *cluster) *pod { return c.pods[c.names[0]] }

func TestAnAgentThatDiesAtAnyPointIsCarriedOn(t *testing.T) {
	for name, calls := range points.Scenarios(crash.Agent) {
		s, ok := scenarios[name]
		for _, more := range []map[string]scenario{drains, departures, defrags, upgrades, auths, schemes, orders, differences} {
			if found, listed := more[name]; listed {
				s, ok = found, true
			}
		}
		if !ok {
			t.Fatalf("there is no scenario called %s", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.newborn {
				for _, point := range calls {
					t.Run(point, func(t *testing.T) {
						t.Parallel()
						newCluster(t, s.members).survives(s, point)
					})
				}
				return
			}
			c := formed(t, s.members)
			for _, point := range calls {
				before := c.heals()
				c.put("before", point)
				if c.survives(s, point); t.Failed() {
					return
				}
				c.keeps("before", point)
				if after := c.heals(); after != before {
					t.Fatalf("%s: the cluster is %x, was %x", point, after, before)
				}
				t.Logf("%s: survived", point)
			}
		})
	}
}

// survives is one death.
func (c *cluster) survives(s scenario, point string) {
	c.t.Helper()
	p := s.eve(c)
	p.startAgent(point)
	if s.disturb != nil {
		s.disturb(p)
	}
	p.endsAtItsPoint(func() {
		if s.leads {
			c.lead(p)
		}
	})
	if s.between != nil {
		s.between(c, p)
	}
	p.startAgent("")
	if s.aftermath != nil {
		s.aftermath(c, p)
	}
	c.heals()
}

// memberID of name in the list of at.
func (c *cluster) memberID(at, name string) (id uint64, err error) {
	view, err := c.view(at)
	if err != nil {
		return 0, err
	}
	m, ok := view.Find(name, "")
	if !ok {
		return 0, fmt.Errorf("%s is not listed: %+v", name, view.Members)
	}
	return m.ID, nil
}
