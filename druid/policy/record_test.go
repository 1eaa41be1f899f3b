package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestOnlyMissingNamesReturn: only names that the group misses are brought back.
func TestOnlyMissingNamesReturn(t *testing.T) {
	checkTable(t, lostRows, "lost", "Members that a manual edit removed from the record: druid/policy.lostRows",
		func(f lostFacts, d rules.Decision[lostVerdict]) string {
			lost := d.Verdict
			switch {
			case lost == lostRelist && f.witness&(witnessOut|witnessElse) != 0:
				return "brings back a name that was removed, or of which nothing is known"
			case lost == lostRelist && f.witness == witnessMute && f.body == rules.No:
				return "brings back a name that nothing bears"
			case lost == lostLeave && f.witness == witnessOwn && (f.entry == entryThere || f.live == rules.Yes):
				return "forgets a member of the group"
			}
			return ""
		})
}

func TestLostNames(t *testing.T) {
	out := func(o *Observed, i int) {
		o.Record.Members = append(append([]string{}, o.Record.Members[:i]...), o.Record.Members[i+1:]...)
		o.Members[i].Listed = false
	}
	none := func(o *Observed) {
		o.Record.Members = nil
		for i := range o.Members {
			o.Members[i].Listed = false
		}
	}
	for name, test := range map[string]struct {
		desired Desired
		change  func(*Observed)
		want    []string
	}{
		"all names are there":        {change: func(*Observed) {}},
		"all names were taken out":   {change: none, want: []string{"c-a", "c-b", "c-c"}},
		"one name was taken out":     {change: func(o *Observed) { out(o, 1) }, want: []string{"c-b"}},
		"the record forms":           {change: func(o *Observed) { none(o); o.RecordState = RecordForming }},
		"the EtcdCluster is deleted": {desired: Desired{Deleted: true}, change: none},
		"one was removed, and its Lease is about to go": {change: func(o *Observed) {
			out(o, 1)
			o.Members[1].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "9"}
		}},
		"one was taken out, and the leader lists it since its removal was acknowledged": {change: func(o *Observed) {
			out(o, 1)
			o.Record.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 10, Members: []leases.ListedMember{{ID: "2", Name: "c-b"}}}
			o.Members[1].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "9", RaftTerm: 2, RaftIndex: 10}
		}, want: []string{"c-b"}},
		"one was removed after the leader listed it": {change: func(o *Observed) {
			out(o, 1)
			o.Record.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 9, Members: []leases.ListedMember{{ID: "2", Name: "c-b"}}}
			o.Members[1].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", ClusterID: "9", RaftTerm: 2, RaftIndex: 10}
		}},
		"one was taken out while it was being removed": {change: func(o *Observed) {
			out(o, 1)
			o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-b", Mark: "m"}
			o.Members[1].Reports.Removal = leases.RemovalRequest{State: leases.RemovalBegun, Mark: "m"}
		}, want: []string{"c-b"}},
		"a name that was never in the cluster": {change: func(o *Observed) {
			out(o, 1)
			o.Members[1].Reports = leases.Member{}
		}},
		"a member of another group":   {change: func(o *Observed) { out(o, 1); o.Members[1].Reports.ClusterID = 8 }},
		"a Lease that cannot be read": {change: func(o *Observed) { out(o, 1); o.Members[1].Readable = false }},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lostNames(test.desired, whole(test.change))); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// The seed may be moved to a member that was just marked to be dropped. It is not dropped any more, so it must lose the mark,
// which keeps it from forming the cluster.
func TestSeedIsNotKeptFromFormingByAMark(t *testing.T) {
	o := whole(func(o *Observed) {
		o.RecordState, o.Record.Phase, o.Record.ClusterID, o.Record.Seed = RecordForming, leases.PhaseForming, 0, "c-b"
		for i := range o.Members {
			m := &o.Members[i]
			m.Reports = leases.Member{PodUID: m.PodUID, VolumeUID: m.ClaimUID}
			m.Serving, m.Voter, m.EtcdReady, m.Liveness, m.Readable = false, false, false, leases.Never, m.Name == "c-b"
		}
		o.Members[1].Reports.Removal = leases.RemovalRequest{State: leases.RemovalRequested, Mark: NotFormed}
	})
	steps := Steps(Evaluate(Desired{Replicas: 1}, o))
	for _, s := range steps {
		if s.Kind == WithdrawRemoval && s.Member == "c-b" {
			return
		}
	}
	t.Errorf("the seed keeps the mark: %v", short(steps))
}

func TestClaimsGoWithTheClusterOnlyAsAskedFor(t *testing.T) {
	checkTable(t, ownershipRows, "ownership", "Owner of a PVC: druid/policy.ownershipRows",
		func(f ownershipFacts, d rules.Decision[ownership]) string {
			verdict := d.Verdict
			switch {
			case verdict != ownershipKeep && f.claim != ClaimPresent:
				return "touches a claim that is not the cluster's, or goes"
			case verdict == ownershipTake && f.goes == rules.No:
				return "lets data go that was to stay"
			case verdict == ownershipRelease && f.goes == rules.Yes:
				return "lets data stay that was to go"
			case verdict == ownershipKeep && f.claim == ClaimPresent && f.goes != f.owned:
				return "leaves a claim out of step"
			}
			return ""
		})
}

// TestClaimsKeptForAnyRecord: claims are kept in step whatever the record reports.
func TestClaimsKeptForAnyRecord(t *testing.T) {
	owned := func(o *Observed) {
		for i := range o.Members {
			o.Members[i].ClaimOwned = true
		}
	}
	tests := map[string]struct {
		desired Desired
		change  func(*Observed)
		want    []string
	}{
		"claims are to go": {
			desired: Desired{ClaimsGo: true},
			change:  func(*Observed) {},
			want: []string{
				"TakeClaim claim-deleted-with-cluster c-a", "TakeClaim claim-deleted-with-cluster c-b", "TakeClaim claim-deleted-with-cluster c-c",
			},
		},
		"claims are to stay": {
			change: owned,
			want: []string{
				"ReleaseClaim claim-retained c-a", "ReleaseClaim claim-retained c-b", "ReleaseClaim claim-retained c-c",
			},
		},
		"a claim that no member has any more, next to a record that cannot be read": {
			desired: Desired{ClaimsGo: true},
			change: func(o *Observed) {
				o.RecordState, o.Record = RecordUnreadable, leases.Record{}
				owned(o)
				for i := range o.Members {
					o.Members[i].Listed = false
				}
				o.Members = append(o.Members, Member{Name: "c-z", Claim: ClaimPresent, Pod: PodAbsent, Lease: LeaseAbsent})
			},
			want: []string{"TakeClaim claim-deleted-with-cluster c-z"},
		},
		"the claim of an earlier cluster": {
			desired: Desired{ClaimsGo: true},
			change: func(o *Observed) {
				owned(o)
				o.Members = append(o.Members, Member{Name: "c-z", Claim: ClaimForeign, Pod: PodAbsent, Lease: LeaseAbsent})
			},
		},
		"a cluster that is deleted takes nothing with it any more": {
			desired: Desired{ClaimsGo: true, Deleted: true},
			change:  func(*Observed) {},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.desired.Replicas = 3
			test.desired.ClusterID = 9
			checkSteps(t, test.want, short(Steps(Evaluate(test.desired, whole(test.change)))))
		})
	}
}

// TestOriginFoundOrAwaited: what a cluster begins with is found or waited for.
func TestOriginFoundOrAwaited(t *testing.T) {
	checkTable(t, origins, "restore-origin", "The EtcdSnapshot of `spec.bootstrap`: druid/policy.origins",
		func(f OriginFacts, d rules.Decision[origin]) string {
			placed := f.Place&(OriginReported|OriginOwn) != 0
			passes := f.Snapshot&(OriginAbsent|OriginUnfinished) != 0
			switch {
			case (d.Verdict == originFound) != (f.Snapshot == OriginSaved && placed):
				return "begins with what is not saved or not found, or does not with what is"
			case passes != (d.Verdict == originWait):
				return "waits for what does not pass, or does not for what does"
			}
			return ""
		})
}

// TestStatusNamesAwaitedSnapshot: the status reports which snapshot is waited for.
func TestStatusNamesAwaitedSnapshot(t *testing.T) {
	words := func(rule string) string { return "words of " + rule }
	for name, c := range map[string]struct {
		facts    OriginFacts
		degraded metav1.ConditionStatus
	}{
		"not there yet":             {OriginFacts{OriginAbsent, OriginGone}, metav1.ConditionFalse},
		"failed":                    {OriginFacts{OriginFailed, OriginOwn}, metav1.ConditionTrue},
		"of a cluster that is gone": {OriginFacts{OriginSaved, OriginGone}, metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{RecordState: RecordAbsent, Origin: JudgeOrigin(c.facts, words)}
			d := Desired{Replicas: 3}
			if got := Adopt(Evaluate(d, o), Edit{Seen: SeenFirst}); got.Rule != "" {
				t.Errorf("it was adopted by %s", got.Rule)
			}
			s := Status(Evaluate(d, o), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.NewTime(someTime))
			is := condition(s, v1alpha1.ConditionProgressing)
			if is.Status != metav1.ConditionTrue || is.Reason != v1alpha1.ReasonWaitingForSnapshot || is.Message != "Words of "+o.Origin.Rule+"." {
				t.Errorf("Progressing is %+v", is)
			}
			worse := condition(s, v1alpha1.ConditionDegraded)
			if worse.Status != c.degraded || c.degraded == metav1.ConditionTrue && (worse.Reason != v1alpha1.ReasonSnapshotUnusable || worse.Message != is.Message) {
				t.Errorf("Degraded is %+v", worse)
			}
		})
	}
}
