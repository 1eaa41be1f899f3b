package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// order to remove a member, and the member's ID when it was given.
type order struct {
	leases.PendingRemoval
	id uint64
}

var drains = map[string]scenario{
	"drain": {members: 3, leads: true, eve: func(c *cluster) *pod {
		p := c.leaderAlone()
		c.ask(c.other(p))
		return p
	}, aftermath: (*cluster).drained},
	"drain of the leader": {members: 3, leads: true, eve: func(c *cluster) *pod {
		p := c.leaderAlone()
		c.ask(p.name)
		return p
	}, aftermath: (*cluster).drained},
	// A claim is handed back after half a minute: each point has a cluster of its own, so that they wait at once.
	"drain that is hindered": {members: 3, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.form()
		p := c.leaderAlone()
		removalCandidate := c.other(p)
		c.ask(removalCandidate)
		c.mark(removalCandidate, func(r *leases.RemovalRequest) {
			r.State, r.By, r.MemberID = leases.RemovalBegun, p.config.PodUID, leases.FormatID(c.leaving.id)
			r.ClusterID = leases.FormatID(c.heldBy())
		})
		c.third(p.name, removalCandidate).launch.end(syscall.SIGKILL)
		return p
	}, aftermath: (*cluster).handedBack},
}

// leaderAlone is the leader, after all agents were ended: no other agent does its work.
func (c *cluster) leaderAlone() *pod {
	c.t.Helper()
	p := c.leader()
	for _, name := range c.names {
		c.pods[name].killAgent()
	}
	return p
}

func (c *cluster) third(first, second string) *pod {
	i := slices.IndexFunc(c.names, func(name string) bool { return name != first && name != second })
	return c.pods[c.names[i]]
}

// lead brings leadership back to p if a busy machine moved it: only the leader's agent passes its point.
func (c *cluster) lead(p *pod) {
	c.t.Helper()
	for _, name := range c.names {
		_ = c.etcd(name, func(ctx context.Context, client *clientv3.Client) error {
			status, err := membership.ReadStatus(ctx, client, c.endpoint(name))
			if err != nil || status.Role != membership.RoleLeader || name == p.name {
				return err
			}
			to, err := c.memberID(name, p.name)
			if err != nil {
				return err
			}
			return membership.MoveLeader(ctx, client, to)
		})
	}
}

// heldBy is the raft group that the record names.
func (c *cluster) heldBy() uint64 {
	c.t.Helper()
	record, _, err := c.store.Record(c.t.Context())
	c.must(err)
	return record.ClusterID
}

// ask is what druid does to have a member go: the slot first, then the mark.
func (c *cluster) ask(name string) {
	c.t.Helper()
	id, err := c.memberID(name, name)
	c.must(err)
	c.askOut(name, id)
}

// askOut is ask for a member whose ID is known.
func (c *cluster) askOut(name string, id uint64) {
	c.t.Helper()
	c.leaving = order{leases.PendingRemoval{Member: name, Mark: fmt.Sprintf("%016x", rand.Uint64())}, id}
	c.changeRecord(func(r *leases.Record) { r.PendingRemoval = &c.leaving.PendingRemoval })
	c.mark(name, func(r *leases.RemovalRequest) {
		*r = leases.RemovalRequest{State: leases.RemovalRequested, Mark: c.leaving.Mark, At: "2026-11-21T10:00:00Z"}
	})
}

// mark changes the mark on a member's Lease.
func (c *cluster) mark(name string, change func(*leases.RemovalRequest)) {
	c.t.Helper()
	c.eventually("mark the Lease of "+name, func() error {
		lease, err := c.store.Marks(c.t.Context(), name)
		if err != nil {
			return err
		}
		change(&lease.Removal)
		_, err = c.store.RequestRemoval(c.t.Context(), name, lease.LeaseVersion, lease.Removal)
		return err
	})
}

// marked waits until the Lease of the member that was asked to go bears a mark in this state.
func (c *cluster) marked(state leases.RemovalState) (mark leases.RemovalRequest) {
	c.t.Helper()
	c.eventually(c.leaving.Member+" is marked "+string(state), func() error {
		lease, err := c.store.Marks(c.t.Context(), c.leaving.Member)
		if mark = lease.Removal; err == nil && mark.State != state {
			err = fmt.Errorf("its mark is %+v", mark)
		}
		return err
	})
	return mark
}

// drained waits for the acknowledgement, which must report the truth, and puts a member without any history in the place of
// the one that is out.
func (c *cluster) drained(*pod) {
	c.t.Helper()
	c.startOtherAgents()
	mark := c.marked(leases.RemovalDone)
	if mark.Mark != c.leaving.Mark || mark.MemberID != leases.FormatID(c.leaving.id) || mark.ClusterID != leases.FormatID(c.heldBy()) {
		c.t.Errorf("acknowledged is %+v, want %s under mark %s", mark, leases.FormatID(c.leaving.id), c.leaving.Mark)
	}
	name := c.leaving.Member
	view, err := c.view(c.other(c.pods[name]))
	c.must(err)
	if _, listed := view.Member(c.leaving.id); listed || len(view.Members) != len(c.names)-1 {
		c.t.Errorf("%s is acknowledged, and the list is %+v", name, view.Members)
	}
	c.renew(name)
	c.changeRecord(func(r *leases.Record) { r.PendingRemoval = nil })
	c.pods[name].startLaunch()
	c.pods[name].startAgent("")
}

// renew gives the member a volume and a Lease that are new.
func (c *cluster) renew(name string) {
	c.t.Helper()
	p := c.pods[name]
	p.powerOff()
	c.must(os.RemoveAll(p.config.VolumePath))
	c.must(os.Mkdir(p.config.VolumePath, 0o700))
	api := c.admin.CoordinationV1().Leases(c.namespace)
	c.must(api.Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	_, err := api.Create(c.t.Context(), c.memberLease(name), metav1.CreateOptions{})
	c.must(err)
}

// handedBack waits until the order may be taken back, takes it back, and lets the member come that was missing.
func (c *cluster) handedBack(p *pod) {
	c.t.Helper()
	c.startOtherAgents()
	if mark := c.marked(leases.RemovalRequested); mark.Mark != c.leaving.Mark || mark.By != "" {
		c.t.Errorf("handed back is %+v, want what was asked", mark)
	}
	c.mark(c.leaving.Member, func(r *leases.RemovalRequest) { *r = leases.RemovalRequest{} })
	c.changeRecord(func(r *leases.Record) { r.PendingRemoval = nil })
	c.third(p.name, c.leaving.Member).startLaunch()
}

// startOtherAgents starts those that do not run.
func (c *cluster) startOtherAgents() {
	c.t.Helper()
	for _, name := range c.names {
		if p := c.pods[name]; p.agent.ended() {
			p.startAgent("")
		}
	}
}
