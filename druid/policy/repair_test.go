package policy

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestRestartsAreSafeAndUseful: restarts cost no quorum and repair only what they can.
func TestRestartsAreSafeAndUseful(t *testing.T) {
	checkTable(t, restartRows, "restart", "A Pod whose etcd is not ready: druid/policy.restartRows", func(f restartFacts, d rules.Decision[verdict]) string {
		v := d.Verdict
		acts := v&(remove|mark) != 0
		switch {
		case acts && (f.stuck == rules.No || f.waits == rules.Yes || f.pod&(PodLive|PodUnstarted) == 0):
			return "restarts what a restart does not repair"
		case acts && f.evidence == rules.Yes:
			return "deletes data that can be the good copy"
		case acts && f.spare == rules.No:
			return "restarts a Pod while the others are no quorum"
		case acts && f.turn == rules.No:
			return "touches two members at once"
		case acts && f.node != NodeReady:
			return "deletes a Pod because its node is not known to be well"
		case v == remove && f.marked == rules.No:
			return "deletes a Pod that was not announced"
		}
		return ""
	})
}

func TestNothingIsDeletedBecauseANodeIsAway(t *testing.T) {
	checkTable(t, nodeRows, "node", "A member on an unreachable node: druid/policy.nodeRows", func(f nodeFacts, d rules.Decision[nodeVerdict]) string {
		v := d.Verdict
		acts := v&(nodeMove|nodeAnnounce|nodeGiveUp) != 0
		switch {
		case acts && f.node&(NodeOutOfService|NodeGone) == 0:
			return "deletes something although the node was not declared lost"
		case acts && f.volume == VolumeUnknown:
			return "acts on what is not known"
		case v&(nodeAnnounce|nodeGiveUp) != 0 && (f.volume != VolumeLocal || f.spare == rules.No || f.turn == rules.No):
			return "gives up data that may be needed, or of two members at once"
		case v&(nodeAnnounce|nodeGiveUp) != 0 && f.evidence == rules.Yes:
			return "deletes data that can be the good copy"
		case v == nodeGiveUp && f.marked == rules.No:
			return "deletes a claim that was not announced"
		case v == nodeMove && f.pod&(PodLive|PodUnstarted) == 0:
			return "deletes a Pod that is not there or goes already"
		}
		return ""
	})
}

// TestOrphansKeptOnMissingFacts: orphans are never deleted because something is missing.
func TestOrphansKeptOnMissingFacts(t *testing.T) {
	checkTableAbout(t, orphanRows, "orphan", "Orphaned objects and missing objects: druid/policy.orphanRows",
		"Keep: druid does nothing. Wait: druid acts later. Report: an operator acts. Mark: the leader's agent acts.",
		func(f orphanFacts, d rules.Decision[orphanVerdict]) string {
			v := d.Verdict
			switch {
			case v&(orphanReport|orphanMark) != 0 && (f.usable == rules.No || f.lingers == rules.No || f.removalAcknowledged == rules.Yes):
				return "speaks of what is not known, or passes by itself"
			case v == orphanMark && (f.listed == rules.No || f.unstarted == rules.No):
				return "gives up a learner that is not the name's"
			case v == orphanReport && (f.listed == rules.Yes || f.objects == rules.No):
				return "treats a member as superfluous, or nothing"
			}
			return ""
		})
}

// TestUsableSlotNotTaken: a slot is not taken from a member that may use it.
func TestUsableSlotNotTaken(t *testing.T) {
	checkTable(t, slotRows, "slot", "The replacement slot: druid/policy.slotRows", func(f slotFacts, d rules.Decision[slotVerdict]) string {
		switch {
		case d.Verdict == slotRelease && (f.taken == rules.No || f.holder == rules.Yes || f.comes == rules.Yes):
			return "takes the slot from a Pod that may be in the middle of it"
		case d.Verdict == slotRelease && f.published == rules.No:
			return "forgets a removal that a recovery must count"
		}
		return ""
	})
}

// TestMemoryMemberKeptAsEvidence: a member in memory is not restarted while its data is evidence.
// Members store their data in their Pods, and no majority has the same. A restart would delete a copy that can be the good one.
func TestMemoryMemberKeptAsEvidence(t *testing.T) {
	for _, test := range []struct {
		undecided leases.Undecided
		claim     ClaimState
		held      bool
	}{
		{leases.Undecided{Revision: 5}, ClaimUnwanted, true},
		{leases.Undecided{Revision: 5}, ClaimPresent, false},
		{leases.Undecided{}, ClaimUnwanted, false},
	} {
		x := newRescue(3)
		x.o.Record.Undecided = test.undecided
		for i := range 3 {
			m := x.member(i)
			m.Claim, m.EtcdReady, m.Liveness, m.Node, m.Steady, m.Stable = test.claim, i > 0, leases.Live, NodeReady, true, true
		}
		m := x.member(0)
		m.Liveness, m.Stuck = leases.Stale, true
		f := restartFactsOf(*m, x.o, x.o.listed())
		if d := restartRows.Decide(f); (d.Rule == "restart-undecided") != test.held || test.held == (d.Verdict&(mark|remove) != 0) {
			t.Errorf("with %+v and claim %s: rule %s for %+v", test.undecided, test.claim, d.Rule, f)
		}
		if p, ok := restartProblem(*m, f); test.held && (!ok || !strings.Contains(p.Message, "Save it, and then delete the Pod")) {
			t.Errorf("the problem is %+v", p)
		}
	}
}

func TestTimeoutDoublesUpToAnHour(t *testing.T) {
	for restarts, want := range []int{5, 10, 20, 40, 60, 60} {
		if got := MaxWait(5*time.Minute, restarts); got != time.Duration(want)*time.Minute {
			t.Errorf("after %d restarts it is %s, want %d minutes", restarts, got, want)
		}
	}
	if got := MaxWait(2*time.Hour, 1<<40); got != 2*time.Hour {
		t.Errorf("a longer grace period is cut to %s", got)
	}
}

// TestOrphansReported: orphans are reported with what druid deletes.
func TestOrphansReported(t *testing.T) {
	left := func(o *Observed) {
		o.Record.Members, o.Members[2].Listed, o.Members[2].Lingers = o.Record.Members[:2], false, true
		o.Members[2].Pod = PodTerminating
	}
	tests := map[string]struct {
		change func(*Observed)
		orphan bool
	}{
		"nothing speaks for it": {func(*Observed) {}, true},
		"acknowledged by our group": {func(o *Observed) {
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "9"}
		}, false},
		"acknowledged by another group": {func(o *Observed) {
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "8"}
		}, true},
		"acknowledged, while the group is recovered": {func(o *Observed) {
			o.RecordState = RecordRecovering
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "9"}
		}, false},
		"dropped before it was in any group": {func(o *Observed) {
			o.Members[2].Reports = leases.Member{Removal: leases.RemovalRequest{State: leases.RemovalRequested, Mark: NotFormed}}
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := whole(left, test.change)
			reported := false
			for _, p := range Evaluate(Desired{Replicas: 2}, o).problems {
				reported = reported || p.Reason == v1alpha1.ReasonOrphanedObjects
			}
			if reported != test.orphan {
				t.Errorf("reported as an orphan: %t, want %t", reported, test.orphan)
			}
		})
	}
}

// inMemory is a cluster whose members store in memory.
func inMemory(o *Observed) {
	for i := range o.Members {
		m := &o.Members[i]
		m.Claim, m.ClaimUID, m.Reports.VolumeUID, m.Stable = ClaimUnwanted, m.PodUID, m.PodUID, true
	}
	o.Members[0].Reports.Role = leases.RoleLeader
}

func TestMembersInMemoryLoseNoQuorumByOurHand(t *testing.T) {
	three, one := Desired{Replicas: 3, ClusterID: 9}, Desired{Replicas: 1, ClusterID: 9}
	outdated := func(o *Observed) {
		for i := range o.Members {
			o.Members[i].Make = MakeOutdated
		}
		o.BudgetMin = len(o.Members)
	}
	single := func(o *Observed) { o.Members, o.Record.Members, o.BudgetMin = o.Members[:1], o.Record.Members[:1], 1 }
	lostNode := func(marked bool) func(*Observed) {
		return func(o *Observed) {
			m := &o.Members[2]
			m.NodeLost, m.Node, m.Volume, m.NodeName, m.Liveness, m.Serving = true, NodeOutOfService, VolumeLocal, "n3", leases.Stale, false
			if marked {
				m.Reports.Repairing.ClaimUID = m.ClaimUID
			}
		}
	}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
	}{
		"a whole cluster has no steps": {three, nil, nil},
		"a lost Pod comes back, and no claim": {three, []func(*Observed){func(o *Observed) {
			m := &o.Members[1]
			m.Pod, m.PodUID, m.ClaimUID, m.EtcdReady, m.Serving, m.Voter = PodAbsent, "", "", false, false, false
		}}, []string{"CreatePod pod-missing c-b"}},
		"the Lease names the Pod as the volume": {three, []func(*Observed){func(o *Observed) {
			o.Members[1].PodUID, o.Members[1].ClaimUID = "other", "other"
		}}, []string{"MarkLease pod-not-on-lease c-b"}},
		"outdated Pods go one at a time, the leader's last": {three, []func(*Observed){outdated}, []string{
			"LabelPod leaving c-b serving=false", "DeletePod outdated c-b",
		}},
		"not while one gets its data from the others": {three, []func(*Observed){outdated, func(o *Observed) {
			o.Members[2].Make, o.Members[2].Reports.Role, o.Members[2].Serving, o.Members[2].Voter, o.BudgetMin = MakeCurrent, leases.RoleLearner, false, false, 2
		}}, nil},
		"the only copy is never replaced": {one, []func(*Observed){single, outdated}, nil},
		"nor where no etcd runs next to it": {one, []func(*Observed){single, outdated, func(o *Observed) {
			o.Members[0].Idle, o.Members[0].EtcdReady, o.Members[0].Serving = true, false, false
		}}, nil},
		"a member that never joined has nothing to lose": {three, []func(*Observed){func(o *Observed) {
			m := &o.Members[2]
			m.Reports, m.Voter, m.Serving, m.EtcdReady, m.Idle, m.Make = leases.Member{PodUID: m.PodUID, VolumeUID: m.ClaimUID}, false, false, false, true, MakeOutdated
			m.Liveness, o.BudgetMin = leases.Never, 2
		}}, []string{"DeletePod outdated-idle c-c"}},
		"what was on a lost node is announced": {three, []func(*Observed){lostNode(false)}, []string{"MarkHealing volume-on-lost-node-announced c-c"}},
		"and given up with the Pod":            {three, []func(*Observed){lostNode(true)}, []string{"DeletePod volume-on-lost-node c-c"}},
		"not while the others are no quorum": {three, []func(*Observed){lostNode(true), func(o *Observed) {
			o.Members[1].EtcdReady, o.Members[1].Serving = false, false
		}}, nil},
		"a removed member leaves no claim": {three, []func(*Observed){func(o *Observed) {
			m := o.Members[2]
			m.Name, m.Listed, m.Pod, m.PodUID, m.ClaimUID, m.Voter = "c-d", false, PodAbsent, "", "", false
			m.Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "9"}
			o.Members = append(o.Members, m)
		}}, []string{"DeleteLease removed-lease c-d"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSteps(t, test.want, short(Steps(Evaluate(test.desired, whole(append([]func(*Observed){inMemory}, test.change...)...)))))
		})
	}
}

func TestMessagesOfMembersInMemory(t *testing.T) {
	gone := func(i int) func(*Observed) {
		return func(o *Observed) {
			m := &o.Members[i]
			m.Pod, m.PodUID, m.ClaimUID, m.EtcdReady = PodAbsent, "", "", false
		}
	}
	empty := func(i int) func(*Observed) {
		return func(o *Observed) {
			o.Members[i].EtcdReady, o.Members[i].Reports.Data, o.Members[i].Reports.Reason = false, leases.DataEmpty, "no quorum answers"
		}
	}
	begunEmpty := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].EtcdReady, o.Members[i].Reports.Data = false, leases.DataEmpty }
	}
	down := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].EtcdReady, o.Members[i].Reports.Data = false, "intact" }
	}
	tests := map[string]struct {
		change []func(*Observed)
		want   string
	}{
		"nothing":                               {[]func(*Observed){inMemory}, "AsExpected "},
		"one of three":                          {[]func(*Observed){inMemory, gone(0)}, "AsExpected "},
		"two of three":                          {[]func(*Observed){inMemory, gone(0), empty(1)}, "DataLost 2 of 3 voters lost their Pods"},
		"two whose etcd ended: they come back":  {[]func(*Observed){inMemory, down(0), down(1)}, "AsExpected "},
		"all, whose first etcd does not answer": {[]func(*Observed){inMemory, begunEmpty(0), begunEmpty(1), begunEmpty(2)}, "AsExpected "},
		"two whose Pods are gone, with volumes": {[]func(*Observed){gone(0), gone(1)}, "AsExpected "},
		"a member that Kubernetes has not started again": {[]func(*Observed){inMemory, gone(0), func(o *Observed) {
			o.Members[1].Pod, o.Members[1].EtcdReady = PodUnscheduled, false
		}}, "DataLost "},
		"an empty volume of the Pod before": {[]func(*Observed){inMemory, gone(0), empty(1), func(o *Observed) { o.Members[1].PodUID = "other" }}, "AsExpected "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := Status(Evaluate(Desired{Replicas: 3, ClusterID: 9}, whole(test.change...)), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
			if !strings.HasPrefix(c.Reason+" "+c.Message, test.want) {
				t.Errorf("Degraded is %s %q, want %q", c.Reason, c.Message, test.want)
			}
		})
	}
	o := whole(inMemory, func(o *Observed) {
		o.Members, o.Record.Members, o.Members[0].Make = o.Members[:1], o.Record.Members[:1], MakeOutdated
	})
	status := Status(Evaluate(Desired{Replicas: 1, ClusterID: 9}, o), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
	if c := condition(status, v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonRollingUpdateBlocked ||
		!strings.Contains(c.Message, "c-a stores its data in its Pod") {
		t.Errorf("Progressing is %+v, want it to say why the only copy is not replaced", c)
	}
}
