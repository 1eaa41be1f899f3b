package duties

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// TestDefragFollowersThenFormerLeader: followers are defragmented first, then the member that led before.
func TestDefragFollowersThenFormerLeader(t *testing.T) {
	d := newDefragCluster(t, names...)
	leader, followers := d.mustLead(), d.followers()
	d.fragment()
	end := d.writer()
	d.agents()
	order := d.compacts(0, 3)
	written := end()
	if want := append(followers, leader); !slices.Equal(order, want) {
		t.Errorf("defragmented %v, want %v", order, want)
	}
	d.noted(order...)
	if d.mustLead() == leader {
		t.Errorf("%s leads, want that leadership moved before its turn", leader)
	}
	if n := d.decisionsOf("move-leader"); n != 1 {
		t.Errorf("leadership was moved %v times, want once", n)
	}
	if n := d.decisionsOf("only-member"); n != 0 {
		t.Errorf("the leader was defragmented")
	}
	for _, name := range names {
		got, err := d.client(name).Get(t.Context(), "written/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count < int64(written) || written == 0 {
			t.Errorf("%s has %d of %d acknowledged writes: %v", name, got.Count, written, err)
		}
	}
}

// TestASuccessorDefragmentsTheRest checks that the next leader's agent completes the work of an agent that died with
// the answer lost, and of one that lost leadership while it waited for the answer.
func TestASuccessorDefragmentsTheRest(t *testing.T) {
	d := newDefragCluster(t, names...)
	first, followers := d.mustLead(), d.followers()
	d.fragment()
	died := d.agent(first, podUID(first), &fault{point: "defragment", after: true})
	select {
	case <-died:
	case <-time.After(maxWait):
		t.Fatalf("no member was defragmented: %+v", d.done())
	}
	d.eventually("the first follower was defragmented all the same", func() error {
		s, err := d.space(followers[0])
		if err == nil && policy().Thresholds.Fragmented(s) {
			err = fmt.Errorf("it holds %+v", s)
		}
		return err
	})

	// A second agent runs for the same leader. Its call hangs while leadership moves to the member that is done.
	waits := &fault{point: "defragment", hang: make(chan struct{})}
	d.agent(first, podUID(first), waits)
	select {
	case <-waits.hang:
	case <-time.After(maxWait):
		t.Fatal("the second follower had no turn")
	}
	d.moveTo(followers[0], d.leader)
	d.eventually("the one that waited has given up", func() error {
		for _, done := range d.done() {
			if done.Err != nil && done.Member == followers[1] {
				return nil
			}
		}
		return errors.New("not yet")
	})
	from := len(d.done())
	d.agent(followers[0], podUID(followers[0]), nil)
	order := d.compacts(from, 2)
	want := []string{first, followers[1]}
	slices.Sort(want)
	if !slices.Equal(order, want) {
		t.Errorf("defragmented %v, want the two that were left, %v", order, want)
	}
}

// TestNoDefragUnlessAllHealthy: no member is defragmented unless all are healthy.
func TestNoDefragUnlessAllHealthy(t *testing.T) {
	d := newDefragCluster(t, names...)
	leader, followers := d.mustLead(), d.followers()
	d.fragment()
	well := func(*DefragPolicy) {}
	off := func() { d.setPolicy(func(p *DefragPolicy) { p.Enabled = rules.No }) }
	// A round that began before the policy changed still follows the former one. It must not see that the obstacle is gone.
	unblocked := func() {
		before := d.decisionsOf("disabled")
		off()
		d.decidedDefrag("disabled", before)
	}
	off()
	stop := d.agentUntil(leader, podUID(leader))
	slot := func(slot *leases.PendingRemoval) { d.edit(func(r *leases.Record) { r.PendingRemoval = slot }) }
	for _, state := range []struct {
		rule       string
		begin, end func()
	}{
		{"disabled", func() {}, func() {}},
		{"window-closed", func() { d.setPolicy(func(p *DefragPolicy) { p.Window = rules.No }) }, func() {}},
		{"window-unread", func() { d.setPolicy(func(p *DefragPolicy) { p.Window = rules.Unknown }) }, func() {}},
		{"not-fragmented", func() { d.setPolicy(func(p *DefragPolicy) { p.Thresholds.FreeBytes = 1 << 40 }) }, func() {}},
		{
			"not-stable", func() { slot(&leases.PendingRemoval{Member: followers[0], Mark: "m"}); d.setPolicy(well) },
			func() { unblocked(); slot(nil) },
		},
		{
			"sizes-unknown", func() { d.stop(followers[1]); d.setPolicy(well) },
			func() { unblocked(); d.start(followers[1]) },
		},
		{
			"not-healthy", func() { d.alarm(followers[1]); d.setPolicy(well) },
			func() { unblocked(); d.disarm() },
		},
	} {
		before := d.decisionsOf(state.rule)
		if state.rule == "disabled" {
			before = 0 // the agent may have decided already
		}
		state.begin()
		d.decidedDefrag(state.rule, before)
		state.end()
		if done := d.done(); len(done) != 0 {
			t.Fatalf("%s: defragmented %+v", state.rule, done)
		}
	}
	d.mustLead()
	stop()

	superseded := d.agentUntil(leader, "pod-of-a-successor")
	before := d.decisionsOf("record-not-authoritative")
	d.setPolicy(well)
	d.decidedDefrag("record-not-authoritative", before)
	superseded()
	if done := d.done(); len(done) != 0 {
		t.Fatalf("a superseded agent defragmented %+v", done)
	}

	// The first follower has no room, so the other members go first.
	d.room(followers[0], walRoom)
	d.agentUntil(leader, podUID(leader))
	d.decidedDefrag("move-leader", 0)
	if done := d.done(); len(done) != 1 || done[0].Member != followers[1] {
		t.Errorf("defragmented %+v, want %s alone", done, followers[1])
	}

	// etcd can refuse the agent's transfer when the machine is slow, so the test moves leadership too.
	d.moveTo(followers[1], d.leader)
	// Leadership returns to this member. It keeps it, although its database is fragmented.
	d.eventually("the agent does not move leadership again", func() error {
		d.moveTo(leader, d.leader) // also when an election on a slow machine moved it
		if d.decisionsOf("moved-before") == 0 {
			return errors.New("it has not decided")
		}
		return nil
	})
	if moves := d.decisionsOf("move-leader"); moves != 1 {
		t.Errorf("the agent moved leadership %v times, want once", moves)
	}
}

// TestUnrequestedTransferNotCounted: a transfer that was not requested is not counted.
// A transfer that found no member to take leadership does not count, so the next one need not wait for an hour.
func TestUnrequestedTransferNotCounted(t *testing.T) {
	c := newDrainClusterOf(t, []string{"demo-a"})
	leader := c.mustLead()
	var r *databases
	c.eventually("the move finds no successor", func() error {
		r = newRound(New(Options{Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(leader), Log: slog.New(slog.DiscardHandler)})).databases
		err := r.moveFor(t.Context(), sizes{}, "move-leader")
		if errors.Is(err, ErrNoSuccessor) {
			return nil
		}
		return fmt.Errorf("want %w: %w", ErrNoSuccessor, err)
	})
	if !r.defrag.movedAt.IsZero() {
		t.Errorf("counted as moved at %s", r.defrag.movedAt)
	}
}

// TestOnlyMemberDefragInWindowOnly: the only member is defragmented in a chosen window alone.
func TestOnlyMemberDefragInWindowOnly(t *testing.T) {
	d := newDefragCluster(t, "demo-a")
	d.fragment()
	d.agents()
	d.decidedDefrag("only-member-unscheduled", 0)
	if done := d.done(); len(done) != 0 {
		t.Fatalf("defragmented %+v without a window", done)
	}
	d.setPolicy(func(p *DefragPolicy) { p.Scheduled = rules.Yes })
	if order := d.compacts(0, 1); !slices.Equal(order, []string{"demo-a"}) {
		t.Errorf("defragmented %v", order)
	}
	// The duties do not repeat what they have just done, whatever the state of the database is.
	d.fragment()
	before := d.decisionsOf("only-member")
	d.setPolicy(func(p *DefragPolicy) { p.Window = rules.No })
	d.decidedDefrag("window-closed", 0)
	noOne := d.decisionsOf("not-fragmented")
	d.setPolicy(func(p *DefragPolicy) { p.Scheduled = rules.Yes })
	d.decidedDefrag("not-fragmented", noOne)
	if after := d.decisionsOf("only-member"); after != before || len(d.done()) != 1 {
		t.Errorf("defragmented again within the hour: %+v", d.done())
	}
}

// TestDefragTimeoutGrowsWithFile: the time that a defragmentation may take grows with the file.
func TestDefragTimeoutGrowsWithFile(t *testing.T) {
	for size, want := range map[int64]time.Duration{0: time.Minute, 1 << 29: 90 * time.Second, 8 << 30: 9 * time.Minute} {
		if got := defragTimeout(membership.Space{Size: size}); got != want {
			t.Errorf("%d bytes: %s, want %s", size, got, want)
		}
	}
}

func TestRoomIsWhatTheMembersOwnAgentReports(t *testing.T) {
	m, s := membership.Member{ID: 7}, membership.Space{Size: 2000 * mib, InUse: 1000 * mib}
	const need = 1100*mib + walRoom
	for name, tc := range map[string]struct {
		lease leases.Member
		want  rules.Answer
	}{
		"just enough":                {leases.Member{ID: 7, VolumeFree: need}, rules.Yes},
		"a byte less":                {leases.Member{ID: 7, VolumeFree: need - 1}, rules.No},
		"an agent that does not say": {leases.Member{ID: 7}, rules.Unknown},
		"another member's Lease":     {leases.Member{ID: 8, VolumeFree: need}, rules.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := roomIn(tc.lease, m, s); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
