package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestOrderNeedsFencedQuorum: no order is executed while a quorum is not fenced.
// No combination of what three members report leads to Execute while a quorum of the published list could still serve.
func TestOrderNeedsFencedQuorum(t *testing.T) {
	kinds := []string{"running", "away", "gone", "intact", "empty", "corrupt", "stale", "failing", "intact-old", "empty-old"}
	executed, powers := 0, []int{1, len(kinds), len(kinds) * len(kinds)}
	for n := range len(kinds) * len(kinds) * len(kinds) {
		x := newRescue(3)
		x.d.Backup, x.o.Full.Reports, x.o.SavedUntil = true, leases.Backup{Revision: 100, Lineage: "00000001-aa"}, rescueStart
		order, err := x.o.Record.Prepare(leases.Recovery{Epoch: 2, Nonce: "ab", Mode: leases.RecoverSurvivor, Chosen: "demo-a", Unmeasured: true, Approved: true})
		if err != nil {
			t.Fatal(err)
		}
		x.o.Record, x.o.RecordState = order, RecordRecovering
		open, intact, words := 0, 0, []string{}
		for i := range 3 {
			kind := kinds[n/powers[i]%len(kinds)]
			words = append(words, kind)
			state, old := strings.CutSuffix(kind, "-old")
			switch state {
			case "running":
				open++
			case "away":
				x.away(i)
				open++
			case "gone":
				x.gone(i)
			default:
				c := x.report(i, leases.DiskState(state))
				if old {
					c.Order, c.Prepared = "", 0
					open++
				} else if state == "intact" {
					intact++
				}
			}
		}
		r := x.decide()
		if r.is(recoverExecute) {
			executed++
			if open >= 2 || intact >= 2 {
				t.Errorf("%v: executes although %d voters are not fenced and %d are intact", words, open, intact)
			}
			if step, ok := Evaluate(x.d, x.o).recoveryStep(); !ok || step.Recovery.Report == "" {
				t.Errorf("%v: executes without an acknowledged claim: %+v", words, step)
			}
		}
		if r.is(recoverRelease) && intact < 2 {
			t.Errorf("%v: releases although only %d are intact", words, intact)
		}
	}
	if executed < 100 {
		t.Errorf("only %d combinations are executed", executed)
	}
}

// Members that acknowledged an order which the record lost wait for a release, and get it where they are a quorum.
func TestLostOrdersMembersReleased(t *testing.T) {
	x := newRescue(3)
	for i := range 2 {
		x.report(i, leases.DiskIntact).Prepared = 4
	}
	x.continues(t, 4)
	x = newRescue(3)
	x.report(0, leases.DiskIntact).Prepared = 4
	x.report(2, leases.DiskEmpty)
	x.wants(t, "majority-returned") // the other one runs, and has no quorum without it
	x.report(1, leases.DiskIntact)
	x.away(1)
	x.member(1).Reports.Disk.Last = 60
	if r := x.wants(t, "give-up"); !slices.Equal(r.plan.giveUp, []string{"demo-b"}) || r.plan.source.member.Name != "demo-a" {
		t.Errorf("the plan gives up %v", r.plan.giveUp) // what it claimed before its node was off says nothing about now
	}
}

// An agent of the raft group before had claimed the removal of a member. The raft group that was formed again did not: the mark
// would keep the member from joining it.
func TestARemovalInAReplacedRaftGroupIsVoid(t *testing.T) {
	x := newRescue(3)
	x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch = 8, 2, 2
	x.d.ClusterID, x.d.Epoch = 8, 2
	for i := range 2 {
		m := x.member(i)
		m.Reports.ClusterID, m.Reports.Epoch, m.Liveness, m.EtcdReady = 8, 2, leases.Live, true
	}
	x.member(2).Reports.Removal = leases.RemovalRequest{State: leases.RemovalBegun, Mark: "m", By: "pod-demo-a", ClusterID: "7", MemberID: "c"}
	if !slices.ContainsFunc(Steps(Evaluate(x.d, x.o)), func(s Step) bool { return s.Kind == WithdrawRemoval && s.Member == "demo-c" }) {
		t.Errorf("the steps are %+v", Steps(Evaluate(x.d, x.o)))
	}
}

// While an order stands, druid takes no step that could lose a disk.
func TestNothingIsDeletedWhileAnOrderStands(t *testing.T) {
	x := newRescue(3)
	x.d.Replicas = 5
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	for i := range 3 {
		x.member(i).Stuck, x.member(i).Serving = true, true
	}
	x.member(0).ClaimSmall, x.member(0).ClaimBound, x.member(0).Expands = true, true, ExpansionAllowed
	cleared, grown := 0, 0
	for _, s := range Steps(Evaluate(x.d, x.o)) {
		switch s.Kind {
		case LabelPod:
			if s.Serving != nil && !*s.Serving {
				cleared++
			}
		case GrowClaim:
			grown++
		case DeletePod, DeleteClaim, UpdateRecord, OpenSlot, RemoveName, RequestRemoval, DeleteLease:
			t.Errorf("step %+v", s)
		default:
		}
	}
	if cleared != 3 {
		t.Errorf("%d labels are cleared, want 3", cleared)
	}
	if grown != 1 {
		t.Errorf("%d volumes grow, want the one that is smaller than the spec", grown)
	}
}

// Two nodes are out of service, so their volumes need no acknowledgement. The survivor, which is here, still has to
// acknowledge: before that, neither a backup nor nothing is the best source.
func TestASurvivorThatIsHereIsAwaited(t *testing.T) {
	x := newRescue(3)
	for i := range 2 {
		x.away(i)
		x.member(i).Node = NodeOutOfService
	}
	x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
	x.apply(t, PrepareRecovery)
	x.wants(t, "await-acknowledgements")
	x.d.Backup = true
	x.o.Full.Reports = leases.Backup{Revision: 100, Lineage: "00000001-aa", Taken: rescueStart, Size: 1}
	x.wants(t, "await-acknowledgements")
	x.report(2, leases.DiskIntact)
	if r := x.wants(t, "execute"); r.plan.source.mode != leases.RecoverSurvivor {
		t.Errorf("it is executed from %+v", r.plan.source)
	}
}

// The disk that acknowledged is from before the last change of the members, and so is the published list. The Leases name voters
// that can be a quorum without it.
func TestVotersThatOnlyTheirLeasesNameCount(t *testing.T) {
	x := newRescue(5)
	x.o.Record.MemberList.Members = x.o.Record.MemberList.Members[:2]
	for _, i := range []int{2, 3, 4} {
		x.away(i)
	}
	reportAll := func() {
		x.report(0, leases.DiskIntact)
		x.report(1, leases.DiskEmpty)
	}
	reportAll()
	r := x.wants(t, "give-up")
	if len(r.plan.giveUp) != 3 {
		t.Errorf("the plan gives up %s, want those that are away", r.plan.giveUp)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	reportAll()
	x.wants(t, "execute")
	x.o.Record.Recovery.GiveUp = nil // as if their Leases had come after the order
	x.wants(t, "give-up-further")
	x.gone(4) // two of five voters are left that nothing fences
	x.wants(t, "execute")
}

// TestEarlierGroupMemberDoesNotServe: a member of an earlier raft group does not serve.
// A member of the raft group before still renews its Lease: it was away when the cluster was formed again. It gets no clients,
// and it is no quorum.
func TestEarlierGroupMemberDoesNotServe(t *testing.T) {
	x := newRescue(3)
	x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch, x.o.Record.Released = 8, 2, 2, 0
	x.d.ClusterID, x.d.Epoch = 8, 2
	for i := range 3 {
		m := x.member(i)
		m.Liveness, m.EtcdReady = leases.Live, true
		if i == 0 {
			m.Reports.ClusterID, m.Reports.Epoch = 8, 2
		}
		served := servingRows.Decide(labelFactsOf(*m, false, Evaluate(x.d, x.o))).Verdict == labelSet
		if served != (i == 0) {
			t.Errorf("member %d gets clients: %t", i, served)
		}
	}
	if got := groupQuorum(x.o, x.o.listed()); got != rules.Yes {
		t.Errorf("the member of the new raft group is no quorum: %v", got)
	}
	x.member(1).EtcdReady, x.member(2).EtcdReady = false, false
	if got := groupQuorum(x.o, x.o.listed()[1:]); got != rules.No {
		t.Errorf("members of the raft group before are a quorum: %v", got)
	}
}

// An order does not prevent the deletion of the cluster.
func TestADeletedClusterIsNotRecovered(t *testing.T) {
	x := newRescue(3)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	x.d.Deleted = true
	if steps, only := recoverySteps(Evaluate(x.d, x.o)); only {
		t.Errorf("only the steps of a recovery are left: %+v", steps)
	}
}
