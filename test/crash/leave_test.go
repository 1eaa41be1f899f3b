package crash_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/member"
)

var departures = map[string]scenario{
	"departure of the last": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		running := member.StartCluster(c.t, "3.6", 1)
		c.hosting = running
		c.joining(running)
		p := seed(c)
		p.startAgent("")
		c.sharesWith(len(running))
		p.killAgent()
		c.deleted()
		c.ask(p.name)
		return p
	}, aftermath: func(c *cluster, p *pod) {
		c.out(p.name)
		c.stays(c.hosting)
		c.joinsAnother(p)
	}},
}

// joinsAnother gives the cluster and its only member a new life, in a group of its own.
func (c *cluster) joinsAnother(p *pod) {
	c.t.Helper()
	c.renew(p.name)
	c.changeRecord(func(r *leases.Record) {
		*r = leases.Record{Phase: leases.PhaseForming, Seed: p.name, Epoch: 1, Members: c.names}
	})
	p.config.Join = ""
	p.certify()
	p.startLaunch()
	p.startAgent("")
}

// joinsRunning is a cluster of three whose members all vote next to so many that were there before.
func joinsRunning(t *testing.T, others int) *cluster {
	t.Helper()
	t.Parallel()
	running := member.StartCluster(t, "3.6", others)
	c := newCluster(t, 3)
	c.hosting = running
	c.joining(running)
	for _, name := range c.names {
		c.pods[name].startAgent("")
	}
	c.sharesWith(others)
	return c
}

// deleted is what druid writes first of an EtcdCluster that was deleted next to others.
func (c *cluster) deleted() { c.changeRecord(func(r *leases.Record) { r.Leaving = true }) }

// out waits until the member that was asked to go is acknowledged to be out, and does what druid does then: its name goes, and
// its Pod. It returns the acknowledgement.
func (c *cluster) out(name string) leases.RemovalRequest {
	c.t.Helper()
	mark := c.marked(leases.RemovalDone)
	if mark.Mark != c.leaving.Mark || mark.MemberID != leases.FormatID(c.leaving.id) {
		c.t.Errorf("acknowledged is %+v, want %x under mark %s", mark, c.leaving.id, c.leaving.Mark)
	}
	view, err := c.viewAt(endpointsOf(c.hosting)...)
	c.must(err)
	if _, listed := view.Member(c.leaving.id); listed {
		c.t.Errorf("%s is acknowledged to be out, and the list is %+v", name, view.Members)
	}
	c.strike(name)
	c.pods[name].powerOff()
	return mark
}

func (c *cluster) strike(name string) {
	c.t.Helper()
	c.changeRecord(func(r *leases.Record) {
		r.PendingRemoval = nil
		r.Members = slices.DeleteFunc(slices.Clone(r.Members), func(m string) bool { return m == name })
	})
}

// stays checks that those who were there before are the whole group again, that all of them vote, and that one of them leads.
func (c *cluster) stays(running []*member.Member) {
	c.t.Helper()
	c.eventually("those that were there before are alone, and lead", func() error {
		view, err := c.viewAt(endpointsOf(running)...)
		if err != nil {
			return err
		}
		if len(view.Members) != len(running) || len(view.Voters()) != len(running) {
			return fmt.Errorf("members are %+v", view.Members)
		}
		return c.etcdAt(running[0].Endpoint, func(ctx context.Context, client *clientv3.Client) error {
			status, err := membership.ReadStatus(ctx, client, running[0].Endpoint)
			if err != nil {
				return err
			}
			if _, listed := view.Member(status.Leader); !listed {
				return fmt.Errorf("the leader is %x", status.Leader)
			}
			return nil
		})
	})
}

// The EtcdCluster is deleted next to those that it joined: all of its members leave, and the others' clients write on.
func TestDeletedClustersMembersLeave(t *testing.T) {
	c := joinsRunning(t, 3)
	w := c.startWriter(endpointsOf(c.hosting))
	c.deleted()
	// The leader goes last, as druid has it.
	order := []string{c.leader().name}
	for _, name := range c.names {
		if name != order[len(order)-1] {
			order = append([]string{name}, order...)
		}
	}
	for _, name := range order {
		begun := time.Now()
		c.ask(name)
		// While a member of the EtcdCluster leads, its agent acknowledges the removal of the others. The last one has no other.
		byItself, last := c.out(name).By == c.pods[name].config.PodUID, name == order[len(order)-1]
		if byItself != last {
			t.Errorf("%s acknowledged its own removal: %t, want %t", name, byItself, last)
		}
		t.Logf("%s is out after %s", name, time.Since(begun).Round(100*time.Millisecond))
	}
	c.stays(c.hosting)
	w.endAt(c, c.hosting[0].Endpoint)
}

// A member whose etcd is gone must not keep the others from leaving: those that stay would be left with a quorum that is none.
func TestMembersThatAreDownBlockNoRemoval(t *testing.T) {
	c := joinsRunning(t, 3)
	last := c.leader().name
	order := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return name == last })
	ids := map[string]uint64{}
	for _, name := range order {
		id, err := c.memberID(last, name)
		c.must(err)
		ids[name] = id
		c.pods[name].powerOff()
	}
	w := c.startWriter(endpointsOf(c.hosting))
	c.deleted()
	for _, name := range order {
		c.askOut(name, ids[name])
		c.out(name)
	}
	// The data of the last one is lost, and its agent sends it off all the same.
	c.ask(last)
	c.pods[last].launch.end(syscall.SIGKILL)
	c.out(last)
	c.stays(c.hosting)
	w.endAt(c, c.hosting[0].Endpoint)
}

// TestJoinedScaleDownKeepsQuorum: a scale-down alongside other members keeps a quorum of all.
// A scale-down goes by the health of all voters, anyone who they are.
func TestJoinedScaleDownKeepsQuorum(t *testing.T) {
	c := joinsRunning(t, 3)
	w := c.startWriter(endpointsOf(c.hosting[:1]))
	lastMember := c.leader().name
	others := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return name == lastMember })
	// Four of six serve. Without one of them three of five do, without two of them two of four.
	for _, m := range c.hosting[1:] {
		m.Stop(t)
	}
	c.ask(others[0])
	c.out(others[0])
	c.ask(others[1])
	asked := time.Now()
	c.eventually("the second one is let be while too few serve", func() error {
		lease, err := c.store.Marks(t.Context(), others[1])
		if err != nil {
			return err
		}
		if lease.Removal.State != leases.RemovalRequested {
			t.Fatalf("it is marked %+v although two of four would be left", lease.Removal)
		}
		if time.Since(asked) < 8*time.Second {
			return errors.New("too short to report")
		}
		return nil
	})
	if view, err := c.viewAt(c.hosting[0].Endpoint); err != nil || len(view.Members) != 5 {
		t.Fatalf("members are %+v (%v), want the three that were there before, and two", view.Members, err)
	}
	for _, m := range c.hosting[1:] {
		m.Restart(t)
	}
	c.out(others[1])
	c.names = []string{lastMember}
	record := c.sharesWith(3)
	if len(record.Externals) != 3 {
		t.Errorf("the record knows %v of those that were there before", record.Externals)
	}
	w.end(c)
}
