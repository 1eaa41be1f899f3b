package duties

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/leases"
)

// disks is what the agents measure of the disks of a cluster. The disk of the machine cannot be made slow, so the test sets it.
type disks struct {
	*drainCluster
	mu    sync.Mutex
	speed map[string]leases.Fsync
}

var (
	fast = leases.Fsync{Speed: leases.SpeedOK, P99: 4 * time.Millisecond}
	slow = leases.Fsync{Speed: leases.SpeedVerySlow, P99: 1024 * time.Millisecond}
)

func newDisks(t *testing.T) *disks {
	t.Helper()
	d := &disks{drainCluster: newDrainCluster(t), speed: map[string]leases.Fsync{}}
	for _, name := range names {
		d.speed[name] = fast
	}
	d.fsync = d.of
	return d
}

func (d *disks) of(name string) leases.Fsync {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.speed[name]
}

func (d *disks) set(name string, f leases.Fsync) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.speed[name] = f
}

// renew renews the Leases of the members once.
func (d *disks) renew(ctx context.Context) {
	d.t.Helper()
	for _, name := range names {
		now := time.Now()
		_, err := d.store.PatchMember(ctx, name, leases.MemberPatch{RenewTime: &now, Member: leases.Member{
			ID: d.memberID(name), Role: leases.RoleMember, Fsync: d.of(name),
		}})
		if err != nil && ctx.Err() == nil {
			d.t.Errorf("renew %s: %v", name, err)
		}
	}
}

// keepRenewing renews the Leases of the members as their agents do, until the test ends.
func (d *disks) keepRenewing() {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			d.renew(ctx)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	d.t.Cleanup(func() { cancel(); <-done })
}

func (d *disks) decided(rule string) float64 {
	return testutil.ToFloat64(d.seen.WithLabelValues(handoverTable, rule))
}

func (d *disks) decides(rule string) {
	d.t.Helper()
	d.eventually("rule "+rule+" decides", func() error {
		if d.decided(rule) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// A leader with a slow disk hands leadership to the follower with the fastest one. It comes back only for a reason, and no agent
// moves it twice.
func TestALeaderWithASlowDiskHandsOverOnce(t *testing.T) {
	d := newDisks(t)
	leader := d.mustLead()
	others := d.followers()
	best, other := others[1], others[0]
	d.set(leader, slow)
	d.set(other, leases.Fsync{Speed: leases.SpeedOK, P99: 64 * time.Millisecond})
	d.keepRenewing()
	d.agents()
	d.leads(best)
	if d.decided("not-lasting") == 0 {
		t.Error("a disk that became slow just now moves leadership")
	}
	d.stays(best)

	d.set(best, slow)
	d.set(leader, fast)
	d.leads(leader)
	d.set(leader, slow)
	d.set(best, fast)
	d.decides("moved-before")
	d.stays(leader)
	if n := d.decided("move-leader"); n != 2 {
		t.Errorf("leadership was moved %v times, want 2", n)
	}
}

// Nothing moves while the reports are too old, or all disks are as slow.
func TestASlowLeaderStaysWithoutAMuchFasterFollower(t *testing.T) {
	d := newDisks(t)
	leader := d.mustLead()
	d.set(leader, slow)
	d.renew(t.Context()) // the Leases say that the followers are fast, and are not renewed any more
	d.agents()
	d.decides("followers-unknown")
	d.stays(leader)
	for _, name := range names {
		d.set(name, slow)
	}
	d.keepRenewing()
	d.decides("followers-similar")
	d.stays(leader)
	if n := d.decided("move-leader"); n != 0 {
		t.Errorf("leadership was moved %v times", n)
	}
}

func (d *disks) leads(name string) {
	d.t.Helper()
	d.eventually(name+" leads", func() error {
		if now, err := d.leader(); err != nil || now != name {
			return fmt.Errorf("%s leads: %w", now, err)
		}
		return nil
	})
}

// stays verifies that leadership does not move for several looks.
func (d *disks) stays(name string) {
	d.t.Helper()
	begun := time.Now()
	d.eventually("several looks have passed", func() error {
		if now, err := d.leader(); err == nil && now != name {
			d.t.Fatalf("%s leads, want %s", now, name)
		}
		if passed := time.Since(begun); passed < 3*time.Second {
			return fmt.Errorf("%s have passed", passed)
		}
		return nil
	})
}
