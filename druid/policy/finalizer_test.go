package policy

import (
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestGuardsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, guards, "guards", "The finalizer of a joined cluster: druid/policy.guards", func(f finalizerFacts, d rules.Decision[Finalizer]) string {
		guardDeletion := d.Verdict
		deleted := f.deletion != deletionNone
		in := f.joinedGroup&(joinedGroupThere|joinedGroupUnknown|joinedGroupBegun) != 0
		switch {
		case guardDeletion == FinalizerHold && (deleted || f.held == rules.Yes || f.joins == rules.No):
			return "a finalizer is taken that is there, is not wanted, or that Kubernetes refuses"
		case guardDeletion == FinalizerRelease && f.held == rules.No:
			return "what is not there is given back"
		// No member joins without it.
		case f.joins == rules.Yes && !deleted && f.held == rules.No && in && guardDeletion != FinalizerHold:
			return "members may join that nothing holds"
		case f.joins == rules.Yes && !deleted && f.held == rules.No && f.joinedGroup == joinedGroupNeverFormed && guardDeletion != FinalizerHold:
			return "the first one joins before the finalizer"
		// No quorum is lost.
		case f.joins == rules.Yes && in && f.going == rules.No && f.deletion&(deletionOrphan) == 0 && guardDeletion == FinalizerRelease:
			return "voters that are listed are let go"
		// Nothing is held permanently: of what is deleted it goes, or its members do.
		case deleted && f.held == rules.Yes && guardDeletion&(FinalizerRelease|FinalizerLeave|FinalizerWait) == 0:
			return "a deletion is held, and nothing is done"
		case deleted && f.held == rules.Yes && f.going == rules.Yes && guardDeletion != FinalizerRelease:
			return "a namespace that goes is held up"
		case guardDeletion == FinalizerLeave && (f.deletion != deletionPlain || f.joins == rules.No || !in):
			return "members leave that were not asked to, or that the group does not list"
		case guardDeletion == FinalizerWait && f.deletion != deletionForeground:
			return "Kubernetes deletes nothing that could be waited for"
		// An ordinary deletion is not held up.
		case !deleted && f.held == rules.Yes && f.joinedGroup == joinedGroupNone && guardDeletion != FinalizerRelease:
			return "it is held although no other member is there"
		}
		return ""
	})
}

// parting is a cluster in a group next to others that was deleted.
func parting(change ...func(*Observed)) Observed {
	return whole(append([]func(*Observed){sharing("etcd-0", "etcd-1", "etcd-2"), func(o *Observed) {
		o.Record.Leaving, o.BudgetMin = true, 3
	}}, change...)...)
}

func deletedAlongsideOthers() Desired {
	return Desired{Replicas: 3, ClusterID: 9, Joins: true, Held: true, Deleted: true}
}

func taken(name string) func(*Observed) {
	return func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: name, Mark: "m"} }
}

func left(names ...string) func(*Observed) {
	return func(o *Observed) {
		for i := range o.Members {
			for _, name := range names {
				if m := &o.Members[i]; m.Name == name {
					m.Listed, m.Serving, m.Voter = false, false, false
					m.Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "9", MemberID: "1", By: "p", RaftTerm: 1, RaftIndex: 1}
				}
			}
		}
		o.Record.Members = nil
		for _, m := range o.Members {
			if m.Listed {
				o.Record.Members = append(o.Record.Members, m.Name)
			}
		}
	}
}

// TestDeletedMembersLeaveThoseThatStay: members of a deleted cluster leave those that stay.
func TestDeletedMembersLeaveThoseThatStay(t *testing.T) {
	tests := map[string]struct {
		change func(*Desired)
		o      Observed
		want   []string
		words  string
	}{
		"it is written down first": {
			o: parting(func(o *Observed) { o.Record.Leaving = false }), want: []string{"UpdateRecord leave "},
			words: "deleted: removing 3 members from the joined cluster, one at a time, while the remaining members are a healthy quorum. 3 members " +
				"of the former cluster are still in the raft group",
		},
		"one after another, and no member waits for another": {
			o:    parting(func(o *Observed) { o.Members[0].EtcdReady, o.Members[0].Serving = false, false }),
			want: []string{"OpenSlot too-many c-a"}, words: "deleted: removing 3 members",
		},
		"a second one that is down blocks nothing": {
			o: parting(func(o *Observed) {
				o.Members[0].EtcdReady, o.Members[0].Serving = false, false
				o.Members[1].EtcdReady, o.Members[1].Serving = false, false
			}, taken("c-b")), want: []string{"RequestRemoval request c-b"}, words: "deleted: removing 3 members",
		},
		"the last one leaves too": {
			o: parting(left("c-a", "c-b"), func(o *Observed) {
				o.Members = o.Members[2:]
			}), want: []string{"OpenSlot too-many c-c"}, words: "deleted: removing 1 member",
		},
		"of those that are out the Pods go, and the volumes stay": {
			o: parting(left("c-a"), taken("c-b"), func(o *Observed) {
				o.Members[1].Serving, o.Members[1].Reports.Removal = false, leases.RemovalRequest{State: leases.RemovalRequested, Mark: "m"}
			}),
			want:  []string{"ApplyBudget budget-lowered  2", "DeletePod removed-pod c-a"},
			words: "deleted: removing 2 members from the joined cluster, one at a time, while the remaining members are a healthy quorum. Member c-b is being removed",
		},
		"a claim of one that is out is as it is": {
			o: parting(left("c-a"), taken("c-b"), func(o *Observed) {
				o.Members[0].Pod = PodAbsent
				o.Members[1].Serving, o.Members[1].Reports.Removal = false, leases.RemovalRequest{State: leases.RemovalRequested, Mark: "m"}
			}), want: []string{"ApplyBudget budget-lowered  2"}, words: "deleted: removing 2 members",
		},
		"one whose Pod is gone comes back, for only it can send itself off": {
			o: parting(taken("c-a"), func(o *Observed) {
				o.Members[0].Pod, o.Members[0].Serving, o.Members[0].Voter, o.Members[0].EtcdReady = PodAbsent, false, false, false
			}), want: []string{"CreatePod pod-missing c-a", "RequestRemoval request c-a"}, words: "deleted: removing 3 members",
		},
		"one that left stays without a Pod, while its acknowledgement is examined": {
			o: parting(taken("c-a"), func(o *Observed) {
				o.Members[0].Pod, o.Members[0].Serving, o.Members[0].Voter, o.Members[0].EtcdReady = PodAbsent, false, false, false
				o.Members[0].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: o.Record.PendingRemoval.Mark, By: "pod-c-a", ClusterID: "9"}
			}), want: []string{}, words: "deleted: removing 3 members",
		},
		"the agent of the leader is dead": {
			o: parting(taken("c-a"), func(o *Observed) {
				o.Members[0].Reports.Removal = leases.RemovalRequest{State: leases.RemovalBegun, Mark: o.Record.PendingRemoval.Mark, By: "pod-c-b", ClusterID: "9"}
				leading(o, 1)
				o.Members[0].Serving, o.Members[1].Liveness = false, leases.Stale
			}), want: []string{}, words: "deleted: removing 3 members from the joined cluster, one at a time, while the remaining members are a healthy " +
				"quorum. Member c-a is being removed. The agent of member c-b, which led last, is not renewing its Lease",
		},
		"neither a deadline, nor backups that fail, nor an edited spec hinder it": {
			change: func(d *Desired) { d.Expired, d.Replicas, d.Backup = true, 5, true },
			o:      parting(func(o *Observed) { o.Full, o.Delta = Snapshot{}, Snapshot{} }),
			want:   []string{"OpenSlot too-many c-a"}, words: "deleted: removing 3 members",
		},
		"deleted in the foreground it waits until all is gone": {
			change: func(d *Desired) { d.Foreground = true }, o: parting(), want: []string{}, words: "deleted in the foreground",
		},
		"a lost record comes back": {
			o:    whole(func(o *Observed) { o.RecordState, o.Record = RecordAbsent, leases.Record{} }),
			want: []string{"CreateRecord record-lost "}, words: "deleted while the joined cluster has external members, and its members cannot leave",
		},
		"without other members it is left to Kubernetes": {o: parting(sharing()), want: []string{}},
		"left as orphans they stay":                      {change: func(d *Desired) { d.Orphans = true }, o: parting(), want: []string{}},
		"nothing is done in a namespace that goes":       {change: func(d *Desired) { d.NamespaceGoes = true }, o: parting(), want: []string{}},
		"without the finalizer it is any cluster":        {change: func(d *Desired) { d.Held = false }, o: parting(), want: []string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := deletedAlongsideOthers()
			if test.change != nil {
				test.change(&d)
			}
			checkSteps(t, test.want, short(Steps(Evaluate(d, test.o))))
			if test.words == "" {
				return
			}
			checkProgress(t, d, test.o, v1alpha1.ReasonLeavingJoinedCluster, test.words)
		})
	}
}

// The record of a cluster that lives removes no member, no matter what wrote it: only a deletion that druid holds does.
func TestNoMemberLeavesWithoutDeletion(t *testing.T) {
	d := deletedAlongsideOthers()
	d.Deleted = false
	if got := short(Steps(Evaluate(d, parting()))); len(got) != 0 {
		t.Errorf("steps are %v, want none", got)
	}
}

func TestWhoElseIsThere(t *testing.T) {
	wasFormed := Desired{ClusterID: 9}
	for name, test := range map[string]struct {
		d    Desired
		o    Observed
		want joinedGroup
	}{
		"nothing was made yet":                {Desired{}, Observed{RecordState: RecordAbsent}, joinedGroupNeverFormed},
		"the seed has not begun":              {Desired{}, Observed{RecordState: RecordForming}, joinedGroupNeverFormed},
		"the seed has claimed to join":        {Desired{}, Observed{RecordState: RecordForming, Record: leases.Record{Executor: "pod"}}, joinedGroupBegun},
		"a lost record of a cluster that was": {wasFormed, Observed{RecordState: RecordAbsent}, joinedGroupUnknown},
		"a rolled back record":                {wasFormed, Observed{RecordState: RecordForming}, joinedGroupUnknown},
		"a record that cannot be read":        {wasFormed, Observed{RecordState: RecordUnreadable}, joinedGroupUnknown},
		"a record of someone else":            {wasFormed, Observed{RecordState: RecordForeign}, joinedGroupForeign},
		"a record that was made again":        {wasFormed, whole(), joinedGroupUnknown},
		"before the first list":               {wasFormed, whole(func(o *Observed) { o.Record.Externals = []string{"a1"} }), joinedGroupUnknown},
		"others are listed":                   {wasFormed, whole(sharing("etcd-0")), joinedGroupThere},
		"none is":                             {wasFormed, whole(sharing()), joinedGroupNone},
		"all have left":                       {wasFormed, parting(left("c-a", "c-b", "c-c")), joinedGroupLeft},
		"an empty record that no member left": {wasFormed, whole(func(o *Observed) { o.Record.Members = nil }), joinedGroupUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := joinedGroupOf(test.o, evidenceOf(test.d, test.o)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// sharing makes the raft group one that was joined, in which so many of the cluster that was there before are left.
func sharing(left ...string) func(*Observed) {
	return func(o *Observed) {
		o.Record.Externals = []string{"a1", "a2"}
		o.Record.MemberList = &leases.MemberList{}
		for _, name := range append(left, o.Record.Members...) {
			o.Record.MemberList.Members = append(o.Record.MemberList.Members, leases.ListedMember{ID: name, Name: name})
		}
	}
}

// While others are in the raft group, whose health druid does not know, none of its own voters may be spared.
func TestOthersInARaftGroupThatWasJoined(t *testing.T) {
	raised := []string{"ApplyBudget budget-raised  3"}
	unreported := func(o *Observed) { o.Record.Externals = []string{"a1", "a2"} }
	tests := map[string]struct {
		release bool
		o       Observed
		want    []string
		reason  string
		words   string
	}{
		"they are kept, and no voter is evicted": {
			o: whole(sharing("etcd-0", "etcd-1")), want: raised, reason: v1alpha1.ReasonExternalMembersPresent,
			words: "all members joined. 2 members of the former cluster are still in the raft group (etcd-0, etcd-1). Set spec.bootstrap.join.removeExternalMembers",
		},
		"before they are listed they are taken to be there": {
			o: whole(unreported), want: raised, reason: v1alpha1.ReasonExternalMembersPresent,
			words: "all members joined. 2 members of the former cluster are still in the raft group. Set",
		},
		"they go by the user's word": {
			release: true, o: whole(sharing("etcd-1")), want: raised, reason: v1alpha1.ReasonRemovingExternalMembers,
			words: "1 member of the former cluster is still in the raft group (etcd-1). The leader's agent removes them one at a time",
		},
		"once they are gone the cluster is as any other": {
			release: true, o: whole(sharing()), want: []string{}, reason: v1alpha1.ReasonReconciled, words: "3 members as requested",
		},
		"no Pod is replaced next to them": {
			o: edited(sharing("etcd-0")), want: []string{}, reason: v1alpha1.ReasonExternalMembersPresent,
			words: "all members joined. 1 member of the former cluster is still in the raft group (etcd-0)",
		},
		"nor before they are listed": {
			o: edited(unreported), want: []string{}, reason: v1alpha1.ReasonExternalMembersPresent, words: "all members joined",
		},
		"a member that is repaired is reported first": {
			o: whole(sharing("etcd-0"), func(o *Observed) {
				o.Members[2].EtcdReady = false
				o.Members[2].Serving, o.BudgetMin = false, 3
			}), want: []string{}, reason: v1alpha1.ReasonRepairingMember, words: "member c-c is being restarted",
		},
		"an unknown member in a group that was formed here is no external member": {
			o: whole(sharing("etcd-0"), func(o *Observed) { o.Record.Externals = nil }), want: []string{}, reason: v1alpha1.ReasonReconciled,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Desired{Replicas: 3, RemoveExternalMembers: test.release}
			checkSteps(t, test.want, short(Steps(Evaluate(d, test.o))))
			checkProgress(t, d, test.o, test.reason, test.words)
		})
	}
}

// What another member's loss costs is not known before the others are listed: until then they are voters that may be down.
func TestOthersThatAreNotListedYetCount(t *testing.T) {
	o := whole(func(o *Observed) { o.Record.Externals, o.Record.MemberList = []string{"a1", "a2", "a3"}, nil })
	if got := votersOf(o, o.listed()); got != 6 {
		t.Errorf("%d voters, want 6", got)
	}
	if spared(o.Members[0], o, o.listed()) == rules.Yes {
		t.Error("two members that serve are taken for a quorum of six")
	}
}

// What the members' tables, the drain's and the healing's order at the same time.
func TestOneMemberAtATimeWhateverTheReason(t *testing.T) {
	slot := func(o *Observed) {
		o.Record.PendingRemoval, o.Members[2].Serving, o.BudgetMin = &leases.PendingRemoval{Member: "c-c", Mark: "m"}, false, 3
	}
	marked := func(state leases.RemovalState) func(*Observed) {
		return func(o *Observed) {
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: state, Mark: "m", ClusterID: "9"}
		}
	}
	lost := func(i int) func(*Observed) { return func(o *Observed) { o.Members[i].Claim = ClaimTerminating } }
	two := func(o *Observed) {
		o.Record.Members, o.Members, o.BudgetMin = o.Record.Members[:2], o.Members[:2], 2
	}
	voters := func(names ...string) func(*Observed) {
		return func(o *Observed) {
			o.Record.MemberList = &leases.MemberList{}
			for _, name := range names {
				o.Record.MemberList.Members = append(o.Record.MemberList.Members, leases.ListedMember{Name: name})
			}
		}
	}
	down := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].EtcdReady, o.Members[i].Serving = false, false }
	}
	tests := map[string]struct {
		replicas int
		change   []func(*Observed)
		want     []string
	}{
		"a deleted claim before a scale-down: its member is replaced first": {2, []func(*Observed){lost(0), lost(1)}, []string{
			"LabelPod leaving c-a serving=false", "DeletePod volume-lost c-a",
		}},
		"a deleted claim while the leader's agent is asked: the request is taken back": {2,
			[]func(*Observed){slot, marked(leases.RemovalRequested), lost(0)}, []string{
				"WithdrawRemoval blocked-request c-c",
			}},
		"a deleted claim while the leader's agent removes another: its Pod is held": {2, []func(*Observed){slot, marked(leases.RemovalBegun), lost(0)}, []string{}},
		"a deleted claim of the one that goes": {2, []func(*Observed){slot, marked(leases.RemovalBegun), lost(2)}, []string{
			"DeletePod volume-lost c-c",
		}},
		"a deleted claim while another replaces itself": {3, []func(*Observed){lost(0), func(o *Observed) {
			o.Record.Replacing, o.BudgetMin = &leases.Replacing{Member: "c-b", PodUID: "pod-c-b"}, 3
		}}, []string{}},
		"a deleted claim of the one that replaces itself": {3, []func(*Observed){lost(1), func(o *Observed) {
			o.Record.Replacing, o.BudgetMin = &leases.Replacing{Member: "c-b", PodUID: "pod-c-b"}, 3
		}}, []string{"LabelPod leaving c-b serving=false", "DeletePod volume-lost c-b"}},
		"a deleted claim that cannot be repaired: its member is the one that goes": {1, []func(*Observed){aged, two, lost(0)}, []string{
			"OpenSlot too-many c-a",
		}},
		"a removal that was claimed under an order of before: no other is asked for": {2, []func(*Observed){slot, marked(leases.RemovalRequested), func(o *Observed) {
			o.Members[0].Reports.Removal = leases.RemovalRequest{State: leases.RemovalBegun, Mark: "x", ClusterID: "9"}
		}}, []string{"WithdrawRemoval blocked-request c-c"}},
		"a voter by the list whose new Lease is silent: the others are looked at": {2,
			[]func(*Observed){slot, marked(leases.RemovalRequested), down(0), voters("c-a", "c-b", "c-c"), func(o *Observed) {
				o.Members[2].Reports = leases.Member{Removal: o.Members[2].Reports.Removal, PodUID: "pod-c-c", VolumeUID: "claim-c-c"}
				o.Members[2].Voter, o.BudgetMin = false, 2
			}}, []string{"WithdrawRemoval blocked-request c-c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSteps(t, test.want, short(Steps(Evaluate(Desired{Replicas: test.replicas}, whole(test.change...)))))
		})
	}
}
