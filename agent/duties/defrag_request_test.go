package duties

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestDefragRequestNeedsSafeQuorum: a requested defragmentation happens only while the quorum is safe.
// A user can have a member defragmented that the configuration leaves alone. The conditions that protect the quorum hold.
func TestDefragRequestNeedsSafeQuorum(t *testing.T) {
	d := newDefragCluster(t, names...)
	leader, followers := d.mustLead(), d.followers()
	d.setPolicy(func(p *DefragPolicy) { p.Enabled = rules.No })
	d.fragment()
	d.agentUntil(leader, podUID(leader))
	duties := d.newest
	refused := func(name, member string, want error, words string) {
		t.Helper()
		if _, err := duties.DefragmentNow(t.Context(), member); !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %v with %q", name, err, want, words)
		}
		if done := d.done(); len(done) != 0 {
			t.Fatalf("%s: defragmented %+v", name, done)
		}
	}
	refused("the leader", leader, ErrRefused, "move the leadership first")
	refused("an unknown name", "demo-unknown", ErrNoVoter, "demo-unknown")
	d.alarm(followers[1])
	refused("an alarm", followers[0], ErrRefused, "alarm")
	d.disarm()
	d.edit(func(r *leases.Record) { r.PendingRemoval = &leases.PendingRemoval{Member: followers[0], Mark: "m"} })
	refused("a removal", followers[1], ErrRefused, "leaving")
	d.edit(func(r *leases.Record) { r.PendingRemoval = nil })
	d.room(followers[0], walRoom)
	refused("no room", followers[0], ErrRefused, "full volume")
	d.stop(followers[1])
	refused("a member that is down", followers[0], ErrRefused, "the size of a database is unknown")
	d.start(followers[1])
	d.room(followers[0], 1<<40)

	// The pause after a defragmentation does not hold a request back.
	for n := 1; n <= 2; n++ {
		d.eventually("the member is defragmented", func() error {
			done, err := duties.DefragmentNow(t.Context(), followers[0])
			if err == nil && (done.Member != followers[0] || done.Result() != DefragDone || n == 1 && done.After.Size >= done.Before.Size) {
				t.Errorf("defragmented %+v", done)
			}
			return err
		})
		if done := d.done(); len(done) != n {
			t.Fatalf("defragmented %+v, want %d times", done, n)
		}
	}
}

// The only member stops for it, so a user decides.
func TestARequestDefragmentsTheOnlyMember(t *testing.T) {
	d := newDefragCluster(t, "demo-a")
	d.setPolicy(func(p *DefragPolicy) { p.Enabled = rules.No })
	d.fragment()
	d.agents()
	d.eventually("the member is defragmented", func() error {
		_, err := d.newest.DefragmentNow(t.Context(), "demo-a")
		return err
	})
	if done := d.done(); len(done) != 1 {
		t.Errorf("defragmented %+v", done)
	}
}

// TestDefragRequestRefusedWithoutDuties: a request is refused by an agent without duties.
func TestDefragRequestRefusedWithoutDuties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := New(Options{}).DefragmentNow(t.Context(), "demo-a"); !errors.Is(err, ErrRefused) {
			t.Errorf("got %v", err)
		}
	})
}
