package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
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

// TestSlowLeaderStaysWithoutFaster: a slow leader stays without a much faster follower.
// Nothing moves while the reports are too old, or all disks are as slow.
func TestSlowLeaderStaysWithoutFaster(t *testing.T) {
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

// A failed read of the metrics does not start the ten minutes again.
func TestADiskIsSlowSinceItWasFirstSeenSlow(t *testing.T) {
	const ok, slow, unknown = membership.DiskOK, membership.DiskSlow, membership.DiskUnknown
	type look struct {
		after time.Duration
		disk  membership.DiskSpeed
	}
	for name, tc := range map[string]struct {
		looks []look
		want  time.Duration
	}{
		"seen slow once":              {[]look{{0, slow}}, 0},
		"it stays slow":               {[]look{{0, slow}, {time.Minute, slow}, {9 * time.Minute, slow}}, 10 * time.Minute},
		"it is fast":                  {[]look{{0, slow}, {time.Minute, ok}}, 0},
		"it was fast in between":      {[]look{{0, slow}, {time.Minute, ok}, {time.Minute, slow}, {time.Minute, slow}}, time.Minute},
		"a read fails":                {[]look{{0, slow}, {15 * time.Second, unknown}}, 15 * time.Second},
		"a read failed":               {[]look{{0, slow}, {45 * time.Second, unknown}, {45 * time.Second, slow}}, 90 * time.Second},
		"just below a minute":         {[]look{{0, slow}, {time.Minute - 1, unknown}, {1, slow}}, time.Minute},
		"not measured for a minute":   {[]look{{0, slow}, {time.Minute, unknown}}, 0},
		"then slow again":             {[]look{{0, slow}, {time.Minute, unknown}, {1, slow}, {time.Second, slow}}, time.Second},
		"each failed read on its own": {[]look{{0, slow}, {50 * time.Second, unknown}, {1, slow}, {50 * time.Second, unknown}}, 100*time.Second + 1},
		"never measured":              {[]look{{0, unknown}, {time.Hour, unknown}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var s slowness
			var got time.Duration
			now := time.Unix(1_800_000_000, 0)
			for _, l := range tc.looks {
				now = now.Add(l.after)
				got = s.look(now, l.disk)
			}
			if got != tc.want {
				t.Errorf("slow for %s, want %s", got, tc.want)
			}
		})
	}
}

// An earlier verdict without a measured time makes no follower a target. The measured one does.
func TestOldVerdictMakesNoTarget(t *testing.T) {
	d := newDisks(t)
	leader := d.mustLead()
	d.set(leader, slow)
	for _, name := range d.followers() {
		d.set(name, leases.Fsync{Speed: leases.SpeedOK})
	}
	d.keepRenewing()
	d.agents()
	d.decides("followers-unknown")
	d.stays(leader)
	d.set(d.followers()[0], fast)
	d.leads(d.followers()[0])
}

// A voter without a Lease has reported nothing. That is no error, and another follower can lead.
func TestAVoterWithoutALeaseIsUnknown(t *testing.T) {
	d := newDisks(t)
	leader, others := d.mustLead(), d.followers()
	d.set(leader, slow)
	for _, name := range others {
		if err := d.admin.CoordinationV1().Leases(d.namespace).Delete(d.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.agents()
	d.decides("followers-unknown")
	d.stays(leader)
}

// TestSlowLeaderReadsNoLeaseInVain: a slow leader reads no Lease while nothing can move.
// A slow leader of a joined raft group does not read the Leases of the members: the one of the external member is unreadable here.
func TestSlowLeaderReadsNoLeaseInVain(t *testing.T) {
	d := newDisks(t)
	leader := d.mustLead()
	external := d.followers()[0]
	d.edit(func(r *leases.Record) {
		r.Members = slices.DeleteFunc(r.Members, func(name string) bool { return name == external })
		r.Externals = []string{"http://127.0.0.1:2379"}
	})
	api := d.admin.CoordinationV1().Leases(d.namespace)
	d.eventually("the Lease is unreadable", func() error {
		lease, err := api.Get(d.t.Context(), external, metav1.GetOptions{})
		if err == nil {
			lease.Annotations[leases.Prefix+"cluster-id"] = "none"
			_, err = api.Update(d.t.Context(), lease, metav1.UpdateOptions{})
		}
		return err
	})
	d.set(leader, slow)
	d.agent(leader, podUID(leader), nil)
	d.decides("not-stable")
	d.stays(leader)
}
