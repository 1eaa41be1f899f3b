package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestClaimsGoWithTheClusterOnlyAsAskedFor(t *testing.T) {
	checkTable(t, ownershipRows, "ownership", "Which claims go with the EtcdCluster: druid/plan.ownershipRows", func(f ownershipFacts, d rules.Decision[ownership]) string {
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

func TestClaimsAreKeptInStepWhateverTheRecordSays(t *testing.T) {
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
				"TakeClaim claim-goes-with-cluster c-a", "TakeClaim claim-goes-with-cluster c-b", "TakeClaim claim-goes-with-cluster c-c",
			},
		},
		"claims are to stay": {
			change: owned,
			want: []string{
				"ReleaseClaim claim-outlives-cluster c-a", "ReleaseClaim claim-outlives-cluster c-b", "ReleaseClaim claim-outlives-cluster c-c",
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
			want: []string{"TakeClaim claim-goes-with-cluster c-z"},
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
			got := short(Steps(test.desired, whole(test.change)))
			if diff := cmp.Diff(append([]string{}, test.want...), got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}
