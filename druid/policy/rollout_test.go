package policy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestRolloutsTakeDownNoSecondMember(t *testing.T) {
	checkTable(t, rolloutRows, "rollout", "An outdated Pod: druid/policy.rolloutRows",
		func(f rolloutFacts, d rules.Decision[verdict]) string {
			v := d.Verdict
			serves := f.podHealth&(podHealthServes|podHealthSilent) != 0
			switch {
			case v == remove && f.make != MakeOutdated:
				return "replaces a Pod that is not known to be outdated"
			case v == remove && f.pod&(PodUnscheduled|PodUnstarted|PodLive) == 0:
				return "deletes what is not ours, not there, or on its way"
			case v == remove && f.gate == gateRefused:
				return "lets an etcd go where it cannot"
			case v == remove && f.gate != gateOpen && f.record == RecordFormed:
				return "replaces a Pod that waits for a backup or a comparison"
			case v == remove && f.leaves == rules.Yes:
				return "restarts a member that is on its way out"
			case v == remove && f.podHealth != podHealthIdle && (f.turn == rules.No || f.record != RecordFormed):
				return "touches a member while the cluster changes"
			case v == remove && f.podHealth&(podHealthAway|podHealthLearns|podHealthNotKnown) != 0:
				return "deletes a Pod that may be about to serve"
			case v == remove && serves && f.others != othersReady && (f.expires == rules.No || f.spare == rules.No || f.others != othersNotReady):
				return "takes down a second member"
			case v == remove && f.podHealth == podHealthServes && (f.saved == rules.No || f.place != placeFirst):
				return "restarts a member out of order, or while backups fail"
			case v == remove && f.podHealth == podHealthDown && f.spare == rules.No:
				return "deletes a Pod that may be needed for the quorum"
			case v == remove && serves && f.room == RoomGrows:
				return "restarts an etcd that another restart awaits"
			case v != wait && f.room == RoomGrows && f.make == MakeCurrent && f.leaves == rules.No:
				return "calls what is done that is not"
			case v == mark && f.make != MakeUnmarked:
				return "marks a Pod that reports for which spec it was made"
			case f.make == MakeOutdated && f.podHealth == podHealthIdle && f.pod == PodLive && f.leaves == rules.No && f.gate == gateOpen &&
				f.record&usableRecord != 0 && v != remove:
				return "lets a Pod wait that nothing but another spec can repair"
			}
			return ""
		})
}

// edited is a cluster of three whose spec was edited after all Pods were made. Member c-b leads.
func edited(change ...func(*Observed)) Observed {
	o := whole()
	for i := range o.Members {
		o.Members[i].Make, o.Members[i].Stable = MakeOutdated, true
	}
	o.Members[1].Reports.Role = leases.RoleLeader
	o.BudgetMin = 3
	for _, f := range change {
		f(&o)
	}
	return o
}

// expiring is a cluster whose members run with authorities that end soon, if urgent. The last member has had no Pod for long.
func expiring(members int, urgent rules.YesNo) Observed {
	o := edited()
	for i := len(o.Members); i < members; i++ {
		m := o.Members[0]
		m.Name = "c-" + string(rune('a'+i))
		m.Reports.ID = uint64(i + 1)
		o.Members, o.Record.Members = append(o.Members, m), append(o.Record.Members, m.Name)
	}
	for i := range o.Members {
		o.Members[i].Reports.TLS.Client.Trusted = "old"
	}
	last := &o.Members[members-1]
	last.EtcdReady, last.Stable, last.Serving, last.Liveness, last.Pod, last.Stuck, last.Make = false, false, false, leases.Stale, PodUnscheduled,
		true, MakeCurrent
	o.Certificates = []Certificates{{
		Plane: "client", Known: AuthorityKnown, Urgent: urgent, Signing: "old", Trusted: []v1alpha1.TLSAuthority{{Fingerprint: "old"}, {Fingerprint: "new"}},
		Issued: []Issued{{Name: "c-client-tls", State: IssuedCurrent, Trust: TrustSame}},
	}}
	return o
}

// brought is a change by which the member's Pod was made again.
func brought(i int, change ...func(*Member)) func(*Observed) {
	return func(o *Observed) {
		o.Members[i].Make = MakeCurrent
		for _, f := range change {
			f(&o.Members[i])
		}
	}
}

func TestRollout(t *testing.T) {
	down := func(m *Member) { m.EtcdReady, m.Stable = false, false }
	noImage := func(m *Member) { m.EtcdReady, m.Stable, m.Idle, m.Blocked = false, false, true, true }
	tests := map[string]struct {
		desired Desired
		o       Observed
		want    []string
		reason  string
		words   string
	}{
		"the budget is raised before the first Pod goes": {
			o:    edited(func(o *Observed) { o.BudgetMin = 2 }),
			want: []string{"ApplyBudget budget-raised  3", "LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-a is being restarted",
		},
		"the second waits for the first": {
			o:    edited(brought(0, down)),
			want: []string{"LabelPod etcd-not-ready c-a serving=false"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-a is not ready",
		},
		"and until that one has served for a while": {
			o: edited(brought(0, func(m *Member) { m.Stable = false })), want: []string{}, reason: v1alpha1.ReasonRollingUpdate,
			words: "1 of 3 members updated: member c-a has just become ready",
		},
		"a member that is down blocks the others": {
			desired: Desired{Replicas: 5}, o: expiring(5, rules.No), want: []string{"ApplyBudget budget-raised  4"}, reason: v1alpha1.ReasonRollingUpdateBlocked,
		},
		"and does not while certificates end": {
			desired: Desired{Replicas: 5}, o: expiring(5, rules.Yes),
			want:   []string{"ApplyBudget budget-raised  5", "LabelPod leaving c-a serving=false", "DeletePod outdated-before-expiry c-a"},
			reason: v1alpha1.ReasonRollingUpdate,
		},
		"but does if the others are no quorum": {
			desired: Desired{Replicas: 3}, o: expiring(3, rules.Yes), want: []string{"ApplyBudget budget-lowered  2"}, reason: v1alpha1.ReasonRollingUpdateBlocked,
		},
		"a follower goes before the leader": {
			o: edited(brought(0)), want: []string{"LabelPod leaving c-c serving=false", "DeletePod outdated c-c"}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"the leader goes last": {
			o: edited(brought(0), brought(2)), want: []string{"LabelPod leaving c-b serving=false", "DeletePod outdated c-b"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "2 of 3 members updated: member c-b is being restarted",
		},
		"no Pod is replaced while the leader is unknown": {
			o: edited(func(o *Observed) { o.Members[1].Reports.Role = leases.RoleMember }), want: []string{}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: it is not known which member leads",
		},
		"an only member goes": {
			desired: Desired{Replicas: 1},
			o: edited(func(o *Observed) {
				o.Record.Members, o.Members, o.BudgetMin = []string{"c-a"}, o.Members[:1], 1
			}),
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"an only member that is down goes": {
			desired: Desired{Replicas: 1},
			o: edited(func(o *Observed) {
				o.Record.Members, o.Members, o.BudgetMin = []string{"c-a"}, o.Members[:1], 1
				down(&o.Members[0])
				o.Members[0].Serving = false
			}),
			want: []string{"DeletePod outdated-down c-a"}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"one on a node that is not reachable stays": {
			o:    edited(func(o *Observed) { o.Members[0].NodeLost = true; o.BudgetMin = 2 }),
			want: []string{}, reason: v1alpha1.ReasonRollingUpdateBlocked,
			words: "0 of 3 members updated: no other Pod is replaced, because member c-a is on an unreachable node",
		},
		"no Pod goes next to one that another table deletes": {
			o: edited(func(o *Observed) {
				o.Members[0].Pod, o.Members[0].EtcdReady, o.Members[0].Serving = PodEnded, false, false
				noImage(&o.Members[2])
				o.Members[2].Serving = false
			}),
			want: []string{"DeletePod pod-ended c-a"}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"a member that does not come back stops it": {
			o:    edited(func(o *Observed) { o.BudgetMin = 2 }, brought(0, noImage)),
			want: []string{"LabelPod etcd-not-ready c-a serving=false"}, reason: v1alpha1.ReasonRollingUpdateBlocked,
			words: "0 of 3 members updated: no other Pod is replaced, because member c-a is not ready",
		},
		"a corrected spec replaces the one that is down": {
			o: edited(func(o *Observed) {
				noImage(&o.Members[0])
				o.Members[1].Make, o.Members[2].Make = MakeCurrent, MakeCurrent
			}),
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod outdated-idle c-a"}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"and before any other": {
			o: edited(func(o *Observed) { noImage(&o.Members[2]) }), want: []string{"LabelPod leaving c-c serving=false", "DeletePod outdated-idle c-c"},
			reason: v1alpha1.ReasonRollingUpdate,
		},
		"one whose etcd runs and is not ready goes while the others are a quorum": {
			o: edited(func(o *Observed) { down(&o.Members[2]) }), want: []string{"LabelPod leaving c-c serving=false", "DeletePod outdated-down c-c"},
			reason: v1alpha1.ReasonRollingUpdate,
		},
		"and stays while they are none": {
			o: edited(func(o *Observed) { down(&o.Members[2]); down(&o.Members[0]); o.BudgetMin = 2 }),
			want: []string{
				"LabelPod etcd-not-ready c-a serving=false", "LabelPod etcd-not-ready c-c serving=false",
			},
			reason: v1alpha1.ReasonRollingUpdateBlocked,
		},
		"a silent agent elsewhere stops it": {
			o:    edited(func(o *Observed) { o.Members[2].Liveness, o.Members[2].Expired = leases.Stale, true }, brought(2), func(o *Observed) { o.BudgetMin = 2 }),
			want: []string{}, reason: v1alpha1.ReasonRollingUpdateBlocked,
			words: "1 of 3 members updated: no other Pod is replaced, because member c-c has an agent that is not renewing its Lease",
		},
		"a druid that just started waits until it has seen all agents renew": {
			o:    edited(func(o *Observed) { o.Members[2].Liveness = leases.Unknown }),
			want: []string{}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-c has not renewed its Lease yet",
		},
		"a member that replaces itself goes before": {
			o: edited(func(o *Observed) {
				o.Record.Replacing = &leases.Replacing{Member: "c-c", PodUID: "pod-c-c", MemberID: "3"}
			}),
			want: []string{}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"an unknown voter goes first: with it two make no quorum": {
			o: edited(func(o *Observed) {
				list := leases.MemberList{}
				for _, id := range []string{"1", "2", "3", "4"} {
					list.Members = append(list.Members, leases.ListedMember{ID: id})
				}
				o.Record.MemberList = &list
			}),
			want: []string{}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: the raft group has 4 members, and 3 are requested",
		},
		"backups that fail hold it back": {
			desired: Desired{Replicas: 3, Backup: true},
			o: edited(func(o *Observed) {
				o.Full, o.Delta = Snapshot{Lease: LeaseOurs, Liveness: leases.Stale}, Snapshot{Lease: LeaseOurs, Liveness: leases.Live}
			}),
			want: []string{}, reason: v1alpha1.ReasonRollingUpdateBlocked,
			words: "0 of 3 members updated: no other Pod is replaced, because backups fail (see condition BackupReady)",
		},
		"but not if the spec says that druid continues": {
			desired: Desired{Replicas: 3, Backup: true, WhenFailing: WhenFailingContinue},
			o: edited(func(o *Observed) {
				o.Full, o.Delta = Snapshot{Lease: LeaseOurs, Liveness: leases.Stale}, Snapshot{Lease: LeaseOurs, Liveness: leases.Live}
			}),
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"nor where the Pods lack what the store needs": {
			desired: Desired{Replicas: 3, Backup: true},
			o: edited(func(o *Observed) {
				o.Full, o.Delta = Snapshot{Lease: LeaseOurs, Liveness: leases.Stale}, Snapshot{Lease: LeaseOurs, Liveness: leases.Live}
				o.Unattached = []string{"c-a", "c-b", "c-c"}
			}),
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}, reason: v1alpha1.ReasonRollingUpdate,
		},
		"Pods that do not report are taken for current": {
			o: whole(func(o *Observed) {
				for i := range o.Members {
					o.Members[i].Make = MakeUnmarked
				}
			}),
			want:   []string{"AdoptPod pod-not-reported c-a", "AdoptPod pod-not-reported c-b", "AdoptPod pod-not-reported c-c"},
			reason: v1alpha1.ReasonReconciled,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := test.desired
			if d.Replicas == 0 {
				d.Replicas = 3
			}
			checkSteps(t, test.want, short(Steps(Evaluate(d, test.o))))
			checkProgress(t, d, test.o, test.reason, test.words)
		})
	}
}

// TestSpreadGoodOnlyOneVoterPerNode: the spread is called good only where no node holds two voters.
func TestSpreadGoodOnlyOneVoterPerNode(t *testing.T) {
	checkTable(t, spreadRows, "spread", "Condition Spread: druid/policy.spreadRows", func(f spreadFacts, d rules.Decision[conditionVerdict]) string {
		status, reason := d.Verdict.parts()
		switch {
		case f.paused == rules.Yes:
			if status != metav1.ConditionUnknown || reason != v1alpha1.ReasonPaused {
				return "speaks of a cluster that is paused"
			}
		case (status == metav1.ConditionTrue) != (f.placement == placementApart):
			return "wrong of voters that are apart"
		case (status == metav1.ConditionFalse) != (f.placement == placementTogether):
			return "wrong of voters that share a node"
		case (reason == v1alpha1.ReasonQuorumOnOneNode) != (f.placement == placementTogether && f.stake == rules.Yes):
			return "wrong of the quorum"
		}
		return ""
	})
}

func TestSpreadNamesWhoSharesANode(t *testing.T) {
	on := func(nodes ...string) func(*Observed) {
		return func(o *Observed) {
			for i, node := range nodes {
				o.Members[i].On = node
			}
		}
	}
	learner := func(o *Observed) { o.Members[1].Reports.Role, o.Members[1].Voter = "Learner", false }
	for name, test := range map[string]struct {
		change []func(*Observed)
		status metav1.ConditionStatus
		reason string
		words  string
	}{
		"each on its own": {[]func(*Observed){on("n1", "n2", "n3")}, metav1.ConditionTrue, v1alpha1.ReasonMembersSpread, "a separate node"},
		"two together": {[]func(*Observed){on("n1", "n1", "n3")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode,
			"voters c-a and c-b are on node n1. The loss of that node would cost the quorum"},
		"all together": {[]func(*Observed){on("n1", "n1", "n1")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode,
			"voters c-a and c-b and c-c are on node n1"},
		"one has no node": {[]func(*Observed){on("n1", "n2", "")}, metav1.ConditionUnknown, v1alpha1.ReasonMembersNotPlaced, "c-c"},
		"two, and one has none": {[]func(*Observed){on("n1", "n1", "")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode,
			"and delete its Pod while condition AllMembersReady is True"},
		"a learner next to one": {[]func(*Observed){on("n1", "n1", "n3"), learner}, metav1.ConditionTrue, v1alpha1.ReasonMembersSpread, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := meta.FindStatusCondition(after(v1alpha1.EtcdClusterStatus{}, test.change...).Conditions, v1alpha1.ConditionSpread)
			if c == nil || c.Status != test.status || c.Reason != test.reason || !strings.Contains(strings.ToLower(c.Message), strings.ToLower(test.words)) {
				t.Errorf("got %+v, want %s %s with %q", c, test.status, test.reason, test.words)
			}
		})
	}
	five := spreadOf([]Member{{Name: "a", Voter: true, On: "n1"}, {Name: "b", Voter: true, On: "n1"}, {Name: "c", Voter: true, On: "n2"},
		{Name: "d", Voter: true, On: "n3"}, {Name: "e", Voter: true, On: "n4"}})
	if p, stake := five.placement(), five.stake(); p != placementTogether || stake != rules.No {
		t.Errorf("two of five on a node are %d with the quorum at stake %d, want together and not at stake", p, stake)
	}
}
