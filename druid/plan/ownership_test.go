package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

var ownershipWords = map[ownership]string{ownershipKeep: "Keep", ownershipTake: "Take", ownershipRelease: "Release"}

func TestClaimsGoWithTheClusterOnlyAsAskedFor(t *testing.T) {
	count := map[string]int{}
	for _, claim := range bits(anyClaim) {
		for _, goes := range bits(anyAnswer) {
			for _, owned := range bits(anyAnswer) {
				f := ownershipFacts{claim, goes, owned}
				verdict, rule := judgeOwnership(f)
				count[rule]++
				switch {
				case verdict != ownershipKeep && claim != ClaimPresent:
					t.Errorf("%+v: %s touches a claim that is not the cluster's, or goes", f, rule)
				case verdict == ownershipTake && goes == rules.No:
					t.Errorf("%+v: %s lets data go that was to stay", f, rule)
				case verdict == ownershipRelease && goes == rules.Yes:
					t.Errorf("%+v: %s lets data stay that was to go", f, rule)
				case verdict == ownershipKeep && claim == ClaimPresent && goes != owned:
					t.Errorf("%+v: %s leaves a claim out of step", f, rule)
				}
			}
		}
	}
	var names []string
	var rows [][]string
	for _, r := range ownershipRows {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, cell(r.claim, anyClaim, claimWords), answer(r.goes), answer(r.owned), bold(ownershipWords[r.ownership]),
		})
	}
	fired(t, count, names...)
	section(t, "ownership", "Which claims go with the EtcdCluster: druid/plan.ownershipRows",
		[]string{"claim", "claims are to go", "the EtcdCluster owns it", "verdict"}, rows, count)
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
		"a claim that no member has any more, beside a record that cannot be read": {
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
