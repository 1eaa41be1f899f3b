package policy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestRemovalRequestsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, removalRequests, "removal-requests", "Scale-down: druid/policy.removalRequests", func(f drainFacts, d rules.Decision[drain]) string {
		order := d.Verdict
		idle := order == drainNothing || order == drainWait || order == drainBlocked
		switch {
		case !idle && f.record&(RecordForming|RecordFormed) == 0:
			return "acts by a record that says neither that there is a group nor that there is none"
		case (order == drainOpen || order == drainAsk || order == drainNeverFormed || order == drainDrop) && f.excess == rules.No:
			return "removes a member that is wanted"
		case (order == drainOpen || order == drainAsk) && f.removalGate != removalAllowed:
			return "removes a member that the others cannot spare, or not certainly"
		case order == drainOpen && f.slot != slotFree:
			return "takes a slot that is taken"
		case order == drainAsk && (f.served == rules.Yes || f.slot != slotTaken):
			return "asks for a removal while clients see it, or without the intent"
		case order == drainRemoveName && (f.mark != markDone || f.slot != slotTaken || f.record != RecordFormed):
			return "removes a name whose removal was not acknowledged"
		case (order == drainNeverFormed || order == drainDrop) && (f.record != RecordForming || f.removalGate == removalNotNeeded):
			return "drops a member of a raft group"
		case order == drainDrop && f.mark != markNeverFormed:
			return "drops a name without the mark by which its leftovers are known"
		case !idle && f.record == RecordFormed && f.mark == markUnknown && f.slot != slotLeft && f.slot != slotFree:
			return "goes by a mark that is not known"
		case !idle && f.slot == slotTaken && f.mark == markRemoving && f.record == RecordFormed:
			return "takes back what an agent claimed"
		case order == drainRepeat && (f.mark != markElsewhere || f.slot != slotTaken || f.record != RecordFormed):
			return "asks again for what was not acknowledged, or by no order"
		case order == drainTakeBack && f.mark != markRequested:
			return "takes a mark away that is no request"
		case order == drainClose && f.slot&(slotTaken|slotLeft) == 0, order == drainClose && f.slot == slotTaken && f.mark == markRequested:
			return "frees a slot that orders something, or none"
		}
		return ""
	})
}

func TestStraysAreSafeForAllFacts(t *testing.T) {
	checkTable(t, strayRows, "strays", "A removal request without a removal slot: druid/policy.strayRows",
		func(f strayFacts, d rules.Decision[strayVerdict]) string {
			switch v := d.Verdict; {
			case v != strayKeep && f.stray == strayNone:
				return "acts on a mark that is in order"
			case v == strayUnmark && (f.stray == strayRemoving || f.record&(RecordForming|RecordFormed) == 0):
				return "takes back what an agent claimed"
			case v == strayTakeSlot && (f.stray != strayRemoving || f.slot != slotFree || f.record != RecordFormed):
				return "takes a slot that is taken, or for no member"
			}
			return ""
		})
}

func TestLeftoversAreSafeForAllFacts(t *testing.T) {
	checkTable(t, leftoverRows, "leftovers", "Objects of a removed member: druid/policy.leftoverRows",
		func(f leftoverFacts, d rules.Decision[Kind]) string {
			there := f.pod&(PodAbsent|PodForeign) == 0
			switch object := d.Verdict; {
			case object != nothing && f.removalAck&(removalAckNone|removalAckListed) != 0:
				return "deletes a member that did not acknowledge, or that the leader lists"
			case there && object != nothing && object != DeletePod, !there && object == DeletePod:
				return "takes something before the Pod, or a Pod that is not ours"
			case object == DeleteClaim && (f.retain == rules.Yes || f.claim != ClaimPresent), object == RetainClaim && (f.retain == rules.No || f.claim != ClaimPresent):
				return "deletes a claim that is to stay, or the reverse"
			case object == DeleteLease && f.claim&(ClaimPresent|ClaimTerminating) != 0:
				return "the Lease that says it may go goes before the claim"
			}
			return ""
		})
}

// aged gives the members' Leases their ages: c-a is the oldest.
func aged(o *Observed) {
	for i := range o.Members {
		o.Members[i].Created = time.Unix(int64(i), 0)
	}
}

// TestScaleDownCandidateCostsLeast: the candidate is the member whose removal costs the cluster least.
func TestScaleDownCandidateCostsLeast(t *testing.T) {
	joiner := func(o *Observed, i int) {
		m := &o.Members[i]
		m.Reports, m.Serving, m.Voter, m.EtcdReady, m.Liveness = leases.Member{}, false, false, false, leases.Never
	}
	tests := map[string]struct {
		change func(*Observed)
		want   string
	}{
		"the newest of equals": {func(*Observed) {}, "c-c"},
		"by name where ages agree": {func(o *Observed) {
			o.Members[0].Created, o.Members[1].Created = o.Members[2].Created, o.Members[2].Created
		}, "c-a"},
		"a follower before the leader": {func(o *Observed) {
			o.Members[2].Reports.Role = leases.RoleLeader
		}, "c-b"},
		"a follower before a leader that has not renewed its Lease yet": {func(o *Observed) {
			o.Members[2].Reports.Role, o.Members[2].Liveness = leases.RoleLeader, leases.Unknown
		}, "c-b"},
		"a leader that is not reachable any more is no more than a follower": {func(o *Observed) {
			o.Members[2].Reports.Role, o.Members[2].Liveness = leases.RoleLeader, leases.Stale
		}, "c-c"},
		"a learner before a follower": {func(o *Observed) { o.Members[0].Reports.Role = leases.RoleLearner }, "c-a"},
		"a voter that is down before a learner that is up": {func(o *Observed) {
			o.Members[0].Reports.Role, o.Members[1].EtcdReady = leases.RoleLearner, false
		}, "c-b"},
		"a learner that is down before a voter that is": {func(o *Observed) {
			o.Members[0].Reports.Role, o.Members[0].EtcdReady, o.Members[1].EtcdReady = leases.RoleLearner, false, false
		}, "c-a"},
		"one that never joined before all": {func(o *Observed) {
			o.Members[2].EtcdReady = false
			joiner(o, 0)
		}, "c-a"},
		"a voter whose Lease was made again is no more than down": {func(o *Observed) {
			published(o, 0)
			joiner(o, 0)
			o.Members[1].Reports.Role, o.Members[1].EtcdReady = leases.RoleLearner, false
		}, "c-b"},
		"a node that is not reachable counts as down": {func(o *Observed) { o.Members[1].NodeLost = true }, "c-b"},
		"a cluster that forms keeps its seed": {func(o *Observed) {
			o.RecordState, o.Record.Seed = RecordForming, "c-c"
			joiner(o, 1)
			joiner(o, 2)
		}, "c-b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := whole(aged, test.change)
			got, _ := removalCandidate(Desired{}, o)
			if got.Name != test.want {
				t.Errorf("got %s, want %s", got.Name, test.want)
			}
		})
	}
	if m, ok := removalCandidate(Desired{}, Observed{RecordState: RecordForming}); ok {
		t.Errorf("of no members, %s is to go", m.Name)
	}
}

func TestMembersThatTheUserNamesLeaveFirst(t *testing.T) {
	tests := map[string]struct {
		first  []string
		change func(*Observed)
		want   string
	}{
		"before the newest":                      {[]string{"c-b"}, func(*Observed) {}, "c-b"},
		"in the order of the names":              {[]string{"c-b", "c-a"}, func(*Observed) {}, "c-b"},
		"the leader too":                         {[]string{"c-a"}, func(o *Observed) { o.Members[0].Reports.Role = leases.RoleLeader }, "c-a"},
		"before a member that is down":           {[]string{"c-a"}, func(o *Observed) { o.Members[1].EtcdReady = false }, "c-a"},
		"names of no member change nothing":      {[]string{"c-x", "c-y"}, func(*Observed) {}, "c-c"},
		"a name of no member before one of them": {[]string{"c-x", "c-a"}, func(*Observed) {}, "c-a"},
		"a cluster that forms keeps its seed": {[]string{"c-a"}, func(o *Observed) {
			o.RecordState, o.Record.Seed = RecordForming, "c-a"
			for i := range o.Members {
				o.Members[i].Reports, o.Members[i].Voter = leases.Member{}, false
			}
		}, "c-c"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Desired{Replicas: 1, LeaveFirst: test.first}
			if got, _ := removalCandidate(d, whole(aged, test.change)); got.Name != test.want {
				t.Errorf("got %s, want %s", got.Name, test.want)
			}
		})
	}
}

// The order does not override what the others need, and says when it names no member.
func TestTheOrderOfLeavingKeepsTheGuards(t *testing.T) {
	tests := map[string]struct {
		first  []string
		change func(*Observed)
		want   string
	}{
		"another member is not ready": {[]string{"c-a"}, func(o *Observed) { o.Members[1].EtcdReady = false },
			"member c-a cannot be removed, because member c-b is not ready"},
		"no member has the name": {[]string{"c-x"}, func(*Observed) {}, "removing member c-c. None of the members that annotation " +
			v1alpha1.LeaveFirstAnnotation + " names is in the cluster"},
		"one has": {[]string{"c-x", "c-b"}, func(*Observed) {}, "removing member c-b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := Evaluate(Desired{Replicas: 1, LeaveFirst: test.first}, whole(aged, test.change))
			got := condition(Status(e, v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now()), v1alpha1.ConditionProgressing)
			if want := "3 members, 1 requested: " + test.want + "."; got.Message != want {
				t.Errorf("got %q, want %q", got.Message, want)
			}
		})
	}
}

// leading has the Lease of the member say that it leads, for as long as druid waits before it believes that.
func leading(o *Observed, i int) {
	o.Members[i].Reports.Role, o.LeaderStill = leases.RoleLeader, true
}

// published puts member i into the leader's list as a voter.
func published(o *Observed, i int) {
	o.Record.MemberList = &leases.MemberList{Members: []leases.ListedMember{{ID: "1", Name: o.Members[i].Name}}}
}

func TestWhoVotesByTheListWaitsForTheOthers(t *testing.T) {
	for name, says := range map[string]leases.Member{
		"a Lease made again":           {},
		"a Lease from before it voted": {ID: 1, ClusterID: 1, Role: leases.RoleLearner},
	} {
		t.Run(name, func(t *testing.T) {
			o := whole(func(o *Observed) {
				o.Members[0].Reports, o.Members[0].Voter = says, false
				o.Members[1].EtcdReady = false
			})
			o.Record.MemberList = nil
			if got, _ := removalGateOf(o.Members[0], o); got != removalAllowed {
				t.Errorf("without a list that says otherwise: got %d, want %d", got, removalAllowed)
			}
			published(&o, 0)
			if got, why := removalGateOf(o.Members[0], o); got != removalBlocked {
				t.Errorf("a voter by the list: got %d (%s), want %d", got, why, removalBlocked)
			}
		})
	}
}

func TestScaleDownSteps(t *testing.T) {
	slot := func(o *Observed) {
		o.Record.PendingRemoval, o.BudgetMin = &leases.PendingRemoval{Member: "c-c", Mark: "m"}, 3
	}
	hidden := func(o *Observed) { o.Members[2].Serving = false }
	marked := func(state leases.RemovalState, mark string) func(*Observed) {
		return func(o *Observed) {
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: state, Mark: mark, By: "pod-c-a", ClusterID: "9"}
			leading(o, 0)
		}
	}
	down := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].EtcdReady, o.Members[i].Serving = false, false }
	}
	gone := func(o *Observed) {
		o.Record.Members, o.Members[2].Listed, o.BudgetMin = o.Record.Members[:2], false, 3
	}
	leftSlot := func(o *Observed) {
		o.Record.Replacing, o.BudgetMin = &leases.Replacing{Member: "c-x", MemberID: "14"}, 3
	}
	all := func(change ...func(*Observed)) []func(*Observed) { return append([]func(*Observed){aged}, change...) }
	one, three := Desired{Replicas: 1}, Desired{Replicas: 3}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
	}{
		"too many: the intent first":     {one, all(), []string{"OpenSlot too-many c-c"}},
		"a pause begins as a scale down": {Desired{}, all(), []string{"OpenSlot too-many c-c"}},
		"the backup fails":               {Desired{Replicas: 1, Backup: true}, all(unsaved, func(o *Observed) { o.BudgetMin = 3 }), nil},
		"it fails after it was begun":    {Desired{Replicas: 1, Backup: true}, all(unsaved, slot, hidden), []string{"RequestRemoval request c-c"}},
		"another member is down":         {one, all(down(0), down(1)), nil},
		"a member replaces itself":       {one, all(func(o *Observed) { o.Record.Replacing, o.BudgetMin = &leases.Replacing{Member: "c-a"}, 3 }), nil},
		"a slot for replacing that no member holds": {one, all(leftSlot, func(o *Observed) { leading(o, 0) }), []string{
			"UpdateRecord slot-abandoned c-x",
		}},
		"no leader publishes that its holder was removed": {one, all(leftSlot), nil},
		"the published list shows that it was removed":    {one, all(leftSlot, func(o *Observed) { published(o, 0) }), []string{"OpenSlot too-many c-c"}},
		"another member is not known":                     {one, all(func(o *Observed) { o.Members[0].Liveness = leases.Unknown }), nil},
		"one that is down goes, the others hold":          {one, all(down(1)), []string{"OpenSlot too-many c-b"}},
		"a record that names no group": {one, all(func(o *Observed) { o.Record.ClusterID, o.Record.Nonce = 0, "" }),
			[]string{"UpdateRecord record-identified "}},
		"its clients leave it":          {one, all(slot), []string{"LabelPod leaving c-c serving=false"}},
		"its endpoints are still there": {one, all(slot, hidden, func(o *Observed) { o.Members[2].Routed = true }), nil},
		"then it is asked":              {one, all(slot, hidden), []string{"RequestRemoval request c-c"}},
		"and awaited":                   {one, all(slot, hidden, marked(leases.RemovalRequested, "m")), nil},
		"another mark does not answer":  {one, all(slot, hidden, marked(leases.RemovalDone, "x")), []string{"RequestRemoval request c-c"}},
		"another group does not answer": {one, all(slot, hidden, marked(leases.RemovalDone, "m"), func(o *Observed) { o.Members[2].Reports.Removal.ClusterID = "8" }),
			[]string{
				"RequestRemoval request c-c",
			}},
		"a mark that cannot be read":           {one, all(slot, hidden, marked(leases.RemovalUnreadable, "")), nil},
		"reverted before it was asked":         {three, all(slot, hidden), []string{"FreeSlot reverted c-c"}},
		"reverted while it was asked":          {three, all(slot, hidden, marked(leases.RemovalRequested, "m")), []string{"WithdrawRemoval reverted-request c-c"}},
		"reverted while it is removed":         {three, all(slot, hidden, marked(leases.RemovalBegun, "m")), nil},
		"reverted after it was removed":        {three, all(slot, hidden, marked(leases.RemovalDone, "m")), []string{"RemoveName removed c-c"}},
		"another goes down before it is asked": {one, all(slot, hidden, down(0)), []string{"FreeSlot hindered c-c"}},
		"another goes down while it is asked": {one, all(slot, hidden, marked(leases.RemovalRequested, "m"), down(0)), []string{
			"WithdrawRemoval blocked-request c-c",
		}},
		"it has no vote, so the others may be down": {one, all(slot, hidden, down(0), func(o *Observed) {
			o.Members[2].Reports.Role, o.Members[2].Voter, o.BudgetMin = leases.RoleLearner, false, 2
		}), []string{"RequestRemoval request c-c"}},
		"removed": {one, all(slot, hidden, marked(leases.RemovalDone, "m")), []string{"RemoveName removed c-c"}},
		"removed, says another agent than that of the leader": {one, all(slot, hidden, marked(leases.RemovalDone, "m"), func(o *Observed) {
			o.Members[2].Reports.Removal.By = "pod-c-b"
		}), []string{"RepeatRemoval removed-by-another-agent c-c"}},
		"that agent says that it leads too":           {one, all(slot, hidden, marked(leases.RemovalDone, "m"), func(o *Observed) { leading(o, 1) }), nil},
		"the Pod keeps its vote until it is believed": {one, all(slot, hidden, marked(leases.RemovalDone, "m"), func(o *Observed) { o.LeaderStill = false }), nil},
		"reverted before it is believed":              {three, all(slot, hidden, marked(leases.RemovalDone, "m"), func(o *Observed) { o.LeaderStill = false }), nil},
		"a slot of a name that is gone": {three, all(func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-x", Mark: "m"} }), []string{
			"FreeSlot slot-abandoned c-x",
		}},
		"a request without a slot": {three, all(hidden, marked(leases.RemovalRequested, "m")), []string{
			"WithdrawRemoval request-without-slot c-c", "LabelPod voter-serves c-c serving=true",
		}},
		"a claim without a slot": {three, all(marked(leases.RemovalBegun, "m")), []string{"OpenSlot claim-without-slot c-c"}},
		"a claim under another order": {one, all(slot, hidden, marked(leases.RemovalBegun, "x")), []string{
			"FreeSlot claimed-by-another-order c-c",
		}},
		"the Pod of a removed member goes, and counts until it lost its label": {Desired{Replicas: 2}, all(gone, marked(leases.RemovalDone, "m")), []string{
			"LabelPod leaving c-c serving=false", "DeletePod removed-pod c-c",
		}},
		"without an acknowledgement nothing goes, and the name comes back": {Desired{Replicas: 2}, all(gone, marked(leases.RemovalBegun, "m")),
			[]string{"UpdateRecord names-lost "}},
		"an acknowledgement of another group is none": {Desired{Replicas: 2}, all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
			o.Members[2].Reports.Removal.ClusterID = "8"
		}), nil},
		"an acknowledgement of a member that the leader lists is not believed": {Desired{Replicas: 2}, all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
			published(o, 2)
			o.Members[2].Reports.Removal.RaftTerm = 3
		}), nil},
		"nor if it is older than that list, and the name comes back": {Desired{Replicas: 2}, all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
			published(o, 2)
		}), []string{"UpdateRecord names-lost "}},
		"then the budget is lowered and the claim goes": {Desired{Replicas: 2}, all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
			o.Members[2].Pod, o.Members[2].Voter = PodAbsent, false
		}), []string{"ApplyBudget budget-lowered  2", "DeleteClaim removed-claim c-c"}},
		"or stays": {Desired{Replicas: 2, RetainClaims: true}, all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
			o.Members[2].Pod, o.Members[2].Voter, o.BudgetMin = PodAbsent, false, 2
		}), []string{"RetainClaim removed-claim-retained c-c"}},
		"or stays because the user names its member": {Desired{Replicas: 2, KeepVolumes: []string{"c-a", "c-c"}},
			all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
				o.Members[2].Pod, o.Members[2].Voter, o.BudgetMin = PodAbsent, false, 2
			}), []string{"RetainClaim removed-claim-retained c-c"}},
		"another name keeps it not": {Desired{Replicas: 2, KeepVolumes: []string{"c-a"}}, all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
			o.Members[2].Pod, o.Members[2].Voter, o.BudgetMin = PodAbsent, false, 2
		}), []string{"DeleteClaim removed-claim c-c"}},
		"and last the Lease": {Desired{Replicas: 2}, all(gone, marked(leases.RemovalDone, "m"), func(o *Observed) {
			o.Members[2].Pod, o.Members[2].Voter, o.Members[2].Claim, o.BudgetMin = PodAbsent, false, ClaimAbsent, 2
		}), []string{"DeleteLease removed-lease c-c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSteps(t, test.want, short(Steps(Evaluate(test.desired, whole(test.change...)))))
		})
	}
}

func TestMessagesOfAScaleDown(t *testing.T) {
	slot := func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-c", Mark: "m"} }
	mark := func(state leases.RemovalState) func(*Observed) {
		return func(o *Observed) {
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: state, Mark: "m", By: "pod-c-a", ClusterID: "9"}
			leading(o, 0)
		}
	}
	stale := func(i int) func(*Observed) { return func(o *Observed) { o.Members[i].Liveness = leases.Stale } }
	tests := map[string]struct {
		change []func(*Observed)
		reason string
		want   string
	}{
		"about to begin": {nil, v1alpha1.ReasonScalingDown, "removing member c-c"},
		"clients leave":  {[]func(*Observed){slot}, v1alpha1.ReasonScalingDown, "removing member c-c, draining its clients"},
		"asked": {[]func(*Observed){slot, mark(leases.RemovalRequested)}, v1alpha1.ReasonScalingDown,
			"removing member c-c, removal requested from the leader's agent"},
		"claimed":      {[]func(*Observed){slot, mark(leases.RemovalBegun)}, v1alpha1.ReasonScalingDown, "removing member c-c, the leader's agent removes it"},
		"acknowledged": {[]func(*Observed){slot, mark(leases.RemovalDone)}, v1alpha1.ReasonScalingDown, "removing member c-c, it left the raft group"},
		"the agent of the leader is dead, and its etcd runs": {
			[]func(*Observed){slot, mark(leases.RemovalDone), stale(0)}, v1alpha1.ReasonScalingDown,
			"removing member c-c, the leader's agent removes it. The agent of member c-a, which led last, is not renewing its Lease, and only the leader's " +
				"agent can finish the removal. Read its log with kubectl logs c-a -c agent. If it does not return, and the other members are a quorum, " +
				"delete Pod c-a, so that another member leads",
		},
		"that agent claimed it": {
			[]func(*Observed){slot, mark(leases.RemovalBegun), stale(0)}, v1alpha1.ReasonScalingDown,
			"removing member c-c, the leader's agent removes it. The agent of member c-a, which led last, is not renewing its Lease, and only the leader's " +
				"agent can finish the removal. Read its log with kubectl logs c-a -c agent. If it does not return, and the other members are a quorum, " +
				"delete Pod c-a, so that another member leads",
		},
		"the leader is down": {
			[]func(*Observed){slot, mark(leases.RemovalDone), stale(0), func(o *Observed) { o.Members[0].EtcdReady = false }}, v1alpha1.ReasonScalingDown,
			"removing member c-c, the leader's agent removes it",
		},
		"two report that they lead": {
			[]func(*Observed){slot, mark(leases.RemovalDone), func(o *Observed) { leading(o, 1) }}, v1alpha1.ReasonScalingDown,
			"removing member c-c, the leader's agent removes it. Several members report that they lead: c-a, c-b. druid waits until only " +
				"one does. If that does not change, read the logs of their agents with kubectl logs <member> -c agent",
		},
		"not readable": {[]func(*Observed){slot, mark(leases.RemovalUnreadable)}, v1alpha1.ReasonScalingDown,
			"removing member c-c, and the removal request on its Lease cannot be parsed"},
		"not known yet": {[]func(*Observed){func(o *Observed) { o.Members[0].Liveness = leases.Unknown }}, v1alpha1.ReasonScalingDown, "removing member c-c"},
		"a learner hinders": {
			[]func(*Observed){slot, func(o *Observed) { o.Members[0].Reports.Role = leases.RoleLearner }},
			v1alpha1.ReasonScaleDownBlocked, "member c-c cannot be removed, because member c-a is a learner",
		},
		"a joiner hinders": {
			[]func(*Observed){slot, func(o *Observed) { o.Members[0].Reports, o.Members[0].Voter = leases.Member{}, false }},
			v1alpha1.ReasonScaleDownBlocked, "member c-c cannot be removed, because member c-a has not joined yet",
		},
		"a lost node hinders": {
			[]func(*Observed){slot, func(o *Observed) { o.Members[0].NodeLost = true }},
			v1alpha1.ReasonScaleDownBlocked, "member c-c cannot be removed, because member c-a is on an unreachable node",
		},
		"a dead agent hinders": {
			[]func(*Observed){slot, func(o *Observed) { o.Members[0].Liveness = leases.Stale }},
			v1alpha1.ReasonScaleDownBlocked, "member c-c cannot be removed, because member c-a has an agent that is not renewing its Lease",
		},
		"an unreadable Lease hinders": {
			[]func(*Observed){slot, func(o *Observed) { o.Members[0].Readable = false }},
			v1alpha1.ReasonScaleDownBlocked, "member c-c cannot be removed, because member c-a has a Lease that cannot be parsed",
		},
		"someone else's Lease hinders": {
			[]func(*Observed){slot, func(o *Observed) { o.Members[0].Lease, o.Members[0].Readable = LeaseForeign, false }},
			v1alpha1.ReasonScaleDownBlocked, "member c-c cannot be removed, because member c-a has a Lease with another owner",
		},
		"one that replaces itself hinders": {
			[]func(*Observed){func(o *Observed) { o.Record.Replacing = &leases.Replacing{Member: "c-b"} }},
			v1alpha1.ReasonScaleDownBlocked, "member c-c cannot be removed, because member c-b replaces itself",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := whole(append([]func(*Observed){aged}, test.change...)...)
			status := Status(Evaluate(Desired{Replicas: 1}, o), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
			got := condition(status, v1alpha1.ConditionProgressing)
			if want := "3 members, 1 requested: " + test.want + "."; got.Reason != test.reason || got.Message != want {
				t.Errorf("got %s %q, want %s %q", got.Reason, got.Message, test.reason, want)
			}
			warned := false
			for _, e := range Events(v1alpha1.EtcdClusterStatus{}, status) {
				warned = warned || e.Reason == v1alpha1.ReasonScaleDownBlocked && e.Warning && e.Note == got.Message
			}
			if warned != (test.reason == v1alpha1.ReasonScaleDownBlocked) {
				t.Errorf("warned: %t", warned)
			}
		})
	}
}
