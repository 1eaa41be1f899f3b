package duties

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func TestAFollowerThenTheLeaderAreTakenOut(t *testing.T) {
	d := newDrainCluster(t)
	d.agents()
	follower := d.followers()[0]
	id := d.memberID(follower)
	d.ask(follower, "first")
	if r := d.done(follower, "first", id); r.By != podUID(d.mustLead()) {
		t.Errorf("removed by %s, want the leader's agent", r.By)
	}
	d.stop(follower)
	d.forget(follower)

	leader := d.mustLead()
	id = d.memberID(leader)
	d.ask(leader, "second")
	d.eventually("the leader is acknowledged", func() error {
		if r := d.removalRequest(leader); r.State != leases.RemovalDone {
			return fmt.Errorf("its mark is %+v", r)
		}
		return nil
	})
	d.stop(leader)
	d.eventually("the last one leads", func() error { _, err := d.leader(); return err })
	if r := d.done(leader, "second", id); r.By != podUID(d.mustLead()) {
		t.Errorf("removed by %s, want the agent of the member that leads now", r.By)
	}
	d.forget(leader)

	last := d.mustLead()
	before := testutil.ToFloat64(d.seen.WithLabelValues(drainTable, "quorum"))
	d.ask(last, "third")
	d.decidedDrain("quorum", before)
	if r := d.removalRequest(last); r.State != leases.RemovalRequested {
		t.Errorf("the only member is marked %+v, want as it was asked", r)
	}
}

func TestADeadMemberIsTakenOut(t *testing.T) {
	d := newDrainCluster(t)
	removalCandidate := d.followers()[0]
	id := d.memberID(removalCandidate)
	d.stop(removalCandidate)
	d.agents()
	d.ask(removalCandidate, "m")
	d.done(removalCandidate, "m", id)
}

func TestWhatNeverJoinedIsTakenOut(t *testing.T) {
	d := newDrainCluster(t, "demo-d", "demo-e")
	client := d.client(d.mustLead())
	var learner membership.Member
	d.eventually("etcd takes a learner", func() (err error) {
		learner, err = membership.AddLearner(t.Context(), client, d.peerURL("demo-d"))
		return err
	})
	d.agents()
	d.ask("demo-d", "learner")
	d.done("demo-d", "learner", learner.ID)
	d.forget("demo-d")
	d.ask("demo-e", "no-one")
	d.done("demo-e", "no-one", 0)
	if ids := d.listed(d.mustLead()); len(ids) != 3 {
		t.Errorf("%d members are listed, want the three that stay", len(ids))
	}
}

func TestNoMemberIsRemovedWhileAnotherIsDown(t *testing.T) {
	d := newDrainCluster(t)
	leader, others := d.mustLead(), d.followers()
	removalCandidate, away := others[0], others[1]
	id := d.memberID(removalCandidate)
	d.stop(away)
	d.agent(leader, podUID(leader), nil)
	d.ask(removalCandidate, "first")
	d.decidedDrain("quorum", 0)
	if r := d.removalRequest(removalCandidate); r.State != leases.RemovalRequested {
		t.Errorf("it is marked %+v, want as it was asked: a claim could not be taken back", r)
	}

	// A predecessor claimed the removal before the other member stopped.
	d.mark(removalCandidate, leases.RemovalRequest{
		State: leases.RemovalBegun, Mark: "first", At: "then", By: "predecessor", MemberID: leases.FormatID(id), ClusterID: leases.FormatID(d.id()),
	})
	d.eventually("the claim is reverted", func() error {
		if r := d.removalRequest(removalCandidate); r != (leases.RemovalRequest{State: leases.RemovalRequested, Mark: "first", At: "then"}) {
			return fmt.Errorf("its mark is %+v", r)
		}
		return nil
	})
	d.takeBack(removalCandidate)
	d.start(away)
	d.eventually("all are back", func() error { _, err := d.leader(); return err })
	if ids := d.listed(d.mustLead()); len(ids) != 3 {
		t.Fatalf("%d members are listed, want all three", len(ids))
	}
	d.ask(removalCandidate, "again")
	d.done(removalCandidate, "again", id)
}

// TestMarkWithoutSlotOrdersNothing: a mark that the slot does not name orders nothing.
func TestMarkWithoutSlotOrdersNothing(t *testing.T) {
	d := newDrainCluster(t)
	leader, others := d.mustLead(), d.followers()
	d.agent(leader, podUID(leader), nil)
	d.mark(others[0], leases.RemovalRequest{State: leases.RemovalRequested, Mark: "stray"})
	d.edit(func(r *leases.Record) { r.PendingRemoval = &leases.PendingRemoval{Member: others[1], Mark: "m"} })
	d.decidedDrain("not-requested", 0)
	d.mark(others[1], leases.RemovalRequest{State: leases.RemovalRequested, Mark: "another"})
	before := testutil.ToFloat64(d.seen.WithLabelValues(drainTable, "request-unread"))
	api := d.admin.CoordinationV1().Leases(d.namespace)
	d.eventually("the mark is made unreadable", func() error {
		lease, err := api.Get(t.Context(), others[1], metav1.GetOptions{})
		if err == nil {
			lease.Annotations[leases.AnnotationRemoval] = "requested"
			_, err = api.Update(t.Context(), lease, metav1.UpdateOptions{})
		}
		return err
	})
	d.decidedDrain("request-unread", before)
	if ids := d.listed(leader); len(ids) != 3 {
		t.Errorf("%d members are listed, want all three", len(ids))
	}
	if r := d.removalRequest(others[0]); r.State != leases.RemovalRequested {
		t.Errorf("the stray mark became %+v", r)
	}
}

// TestASuccessorGoesOnAtEachStep lets agents die at each call of a drain, before the call and with its answer lost.
// Either the next agent of the same Pod or the agent of another leader continues.
func TestASuccessorGoesOnAtEachStep(t *testing.T) {
	d := newDrainCluster(t)
	others := d.followers()
	removalCandidate, second := others[0], others[1]
	pair := []string{d.mustLead(), second}
	id := d.memberID(removalCandidate)
	d.ask(removalCandidate, "m")
	among := func() (string, error) { return d.leaderOf(pair) }
	for i, point := range []struct {
		name  string
		after bool
		want  leases.RemovalState
	}{
		{"removing", false, leases.RemovalRequested},
		{"removing", true, leases.RemovalBegun},
		{"remove", false, leases.RemovalBegun},
		{"remove", true, leases.RemovalBegun},
		{"done", false, leases.RemovalBegun},
		{"done", true, leases.RemovalDone},
	} {
		name := pair[i/2%2] // two in the same Pod, then two next to another leader
		d.moveTo(name, among)
		died := d.agent(name, podUID(name), &fault{point: point.name, after: point.after})
		select {
		case <-died:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s, after %t: the agent came not so far; the mark is %+v", point.name, point.after, d.removalRequest(removalCandidate))
		}
		if r := d.removalRequest(removalCandidate); r.State != point.want {
			t.Fatalf("%s, after %t: the mark is %+v, want %s", point.name, point.after, r, point.want)
		}
	}
	// The last one finds nothing left to do.
	before := testutil.ToFloat64(d.seen.WithLabelValues(drainTable, "removal-acknowledged"))
	name := pair[0]
	d.moveTo(name, among)
	d.agent(name, podUID(name), nil)
	d.decidedDrain("removal-acknowledged", before)
	r := d.removalRequest(removalCandidate)
	if r.State != leases.RemovalDone || r.MemberID != leases.FormatID(id) || r.By != podUID(pair[0]) {
		t.Errorf("acknowledged as %+v, want member %x by the agent that claimed it last", r, id)
	}
	if ids := d.listed(name); len(ids) != 2 || slices.Contains(ids, id) {
		t.Errorf("listed: %x, want the two that stay", ids)
	}
}

// TestManyAgentsAtOnce runs the leader's agent, an earlier agent of the same Pod that has not ended, and an agent of a
// follower that acts as the leader's. The member that is removed is stopped, because etcd panics if Status is called
// on a member that was just removed and has not ended.
func TestManyAgentsAtOnce(t *testing.T) {
	d := newDrainCluster(t)
	leader, others := d.mustLead(), d.followers()
	removalCandidate := others[0]
	id := d.memberID(removalCandidate)
	d.stop(removalCandidate)
	d.agent(leader, podUID(leader), nil)
	d.agent(leader, podUID(leader), nil)
	d.ungated(others[1])
	superseded := "pod-of-a-successor"
	d.agent(leader, superseded, nil)
	d.ask(removalCandidate, "m")
	if r := d.done(removalCandidate, "m", id); r.By != podUID(leader) {
		t.Errorf("removed by %s, want the leader's agent", r.By)
	}
	if ids := d.listed(leader); len(ids) != 2 {
		t.Errorf("%d members are listed, want two", len(ids))
	}
}

func TestNoOtherMemberIsRemovedDuringADrain(t *testing.T) {
	d := newDrainCluster(t)
	leader, others := d.mustLead(), d.followers()
	going, stray := others[0], others[1]
	strayID := d.memberID(stray)
	d.edit(func(r *leases.Record) {
		r.Members = []string{leader, going}
		slices.Sort(r.Members)
		r.PendingRemoval = &leases.PendingRemoval{Member: going, Mark: "m"} // the Lease is not marked: the drain waits
	})
	d.agent(leader, podUID(leader), nil)
	d.eventually("the stray's turn is awaited", func() error {
		if testutil.ToFloat64(d.seen.WithLabelValues(removalTable, "one-at-a-time")) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if ids := d.listed(leader); len(ids) != 3 {
		t.Fatalf("%d members are listed, want three while the slot is taken", len(ids))
	}
	d.edit(func(r *leases.Record) { r.PendingRemoval = nil })
	d.eventually("the stray is removed", func() error {
		if ids := d.listed(leader); slices.Contains(ids, strayID) {
			return fmt.Errorf("listed: %x", ids)
		}
		return nil
	})
}

func TestWhatAMarkMeansToTheLeadersAgent(t *testing.T) {
	self := Cluster{ClusterID: 0xc, MemberID: 1, Member: "demo-a", PodUID: "pod"}
	slot := &leases.PendingRemoval{Member: "demo-b", Mark: "x"}
	claim := leases.RemovalRequest{State: leases.RemovalBegun, Mark: "x", By: "pod", MemberID: "b", ClusterID: "c"}
	with := func(change func(*leases.RemovalRequest)) leases.RemovalRequest { r := claim; change(&r); return r }
	for name, tc := range map[string]struct {
		slot *leases.PendingRemoval
		mark leases.RemovalRequest
		id   uint64
		want membership.Mark
	}{
		"no mark":                        {slot, leases.RemovalRequest{}, 0xb, membership.NotAsked},
		"asked":                          {slot, leases.RemovalRequest{State: leases.RemovalRequested, Mark: "x"}, 0xb, membership.Requested},
		"asked under another mark":       {slot, leases.RemovalRequest{State: leases.RemovalRequested, Mark: "y"}, 0xb, membership.NotAsked},
		"asked, and the slot is free":    {nil, leases.RemovalRequest{State: leases.RemovalRequested, Mark: "x"}, 0xb, membership.NotAsked},
		"claimed by us":                  {slot, claim, 0xb, membership.ClaimedByUs},
		"claimed by us, gone since":      {slot, claim, 0, membership.ClaimedByUs},
		"claimed by us under another ID": {slot, claim, 0xd, membership.ClaimedByAnother},
		"claimed by another Pod":         {slot, with(func(r *leases.RemovalRequest) { r.By = "other" }), 0xb, membership.ClaimedByAnother},
		"claimed in another raft group":  {slot, with(func(r *leases.RemovalRequest) { r.ClusterID = "d" }), 0xb, membership.ClaimedByAnother},
		"claimed under another mark":     {slot, with(func(r *leases.RemovalRequest) { r.Mark = "y" }), 0xb, membership.NotAsked},
		"done":                           {slot, with(func(r *leases.RemovalRequest) { r.State = leases.RemovalDone }), 0, membership.RemovalAcknowledged},
		"done by another": {slot, with(func(r *leases.RemovalRequest) { r.State, r.By = leases.RemovalDone, "other" }), 0,
			membership.RemovalAcknowledged},
		"done in another raft group":       {slot, with(func(r *leases.RemovalRequest) { r.State, r.ClusterID = leases.RemovalDone, "d" }), 0xb, membership.NotAsked},
		"done under another mark":          {slot, with(func(r *leases.RemovalRequest) { r.State, r.Mark = leases.RemovalDone, "y" }), 0, membership.NotAsked},
		"a mark that cannot be understood": {slot, leases.RemovalRequest{State: leases.RemovalUnreadable}, 0xb, membership.MarkUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MarkOf(tc.slot, "demo-b", tc.mark, self, tc.id); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAReplacementOfAnotherStandsInTheWay(t *testing.T) {
	record := leases.Record{Members: []string{"demo-a", "demo-b"}, MemberList: &leases.MemberList{Members: []leases.ListedMember{{ID: "1"}}}}
	for name, tc := range map[string]struct {
		holder, id string
		want       bool
	}{
		"without one":               {"", "", false},
		"another's":                 {"demo-a", "2", true},
		"that of the one that goes": {"demo-b", "1", false},
		"of one that is not desired, whose ID is listed": {"demo-x", "1", true},
		"of one that is not desired, whose ID is gone":   {"demo-x", "2", false},
	} {
		t.Run(name, func(t *testing.T) {
			record.Replacing = nil
			if tc.holder != "" {
				record.Replacing = &leases.Replacing{Member: tc.holder, MemberID: tc.id}
			}
			if got := Replaces(record, "demo-b"); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if got := slotOf(record, "demo-b"); (got == membership.SlotOther) != tc.want {
				t.Errorf("the slot of a member whose data differs is %s", got)
			}
		})
	}
}
