package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func TestEventsReportTransitionsOnce(t *testing.T) {
	down := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].Pod, o.Members[i].EtcdReady = PodAbsent, false }
	}
	slot := func(o *Observed) { o.Record.Retiring = &leases.Retiring{Member: "c-c", Mark: "m"} }
	none := v1alpha1.EtcdClusterStatus{}
	tests := map[string]struct {
		before v1alpha1.EtcdClusterStatus
		change []func(*Observed)
		want   []string
	}{
		"a cluster formed": {none, nil, []string{
			"Normal ClusterFormed: The cluster formed with ID 9",
			"Normal MemberReady c-a: Member c-a with ID 1 is a ready voter",
			"Normal MemberReady c-b: Member c-b with ID 2 is a ready voter",
			"Normal MemberReady c-c: Member c-c with ID 3 is a ready voter",
		}},
		"nothing new": {after(none), nil, nil},
		"a member went": {after(none), []func(*Observed){down(1)}, []string{
			"Warning MemberNotReady c-b: Member c-b is NotReady (PodNotReady): it has no Pod",
		}},
		"it is still gone": {after(none, down(1)), []func(*Observed){down(1)}, nil},
		"it came back under another ID": {
			after(none, down(1)), []func(*Observed){func(o *Observed) { o.Members[1].Says.ID = 7 }},
			[]string{
				"Normal MemberReplaced c-b: Member c-b joined again with ID 7, replacing 2",
				"Normal MemberReady c-b: Member c-b with ID 7 is a ready voter",
			},
		},
		"the quorum went": {after(none, down(1)), []func(*Observed){down(1), down(2)}, []string{
			"Warning MemberNotReady c-c: Member c-c is NotReady (PodNotReady): it has no Pod",
			"Warning QuorumLost: 1 of 3 voters serve, a quorum is 2: etcd refuses writes and linearizable reads",
		}},
		"the quorum came back": {after(none, down(1), down(2)), []func(*Observed){down(1)}, []string{
			"Normal MemberReady c-c: Member c-c with ID 3 is a ready voter",
			"Normal QuorumRestored: 2 of 3 voters serve, a quorum is 2",
		}},
		"a member is to leave": {after(none), []func(*Observed){slot}, []string{
			"Normal ScalingDown c-c: Member c-c is to be removed",
		}},
		"it goes further": {after(none, slot), []func(*Observed){slot, func(o *Observed) {
			o.Members[2].Says.Retire = leases.Retirement{State: leases.RetireRemoving, Mark: "m"}
		}}, nil},
		"it stays": {after(none, slot), nil, []string{
			"Normal ScaleDownCancelled c-c: Member c-c stays: it is desired again, or the cluster cannot spare it now",
		}},
		"a name is taken": {after(none), []func(*Observed){func(o *Observed) { o.LeaderLease = LeaseForeign }}, []string{
			"Warning ObjectNotOwned: Lease of the leader exists and has another owner. Delete or rename it",
		}},
		"it is free again": {after(none, func(o *Observed) { o.LeaderLease = LeaseForeign }), nil, []string{
			"Normal Recovered: ObjectNotOwned is over",
		}},
		"a Lease is all that is unknown": {after(none), []func(*Observed){func(o *Observed) { o.Members[0].Liveness = leases.Unknown }}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range Events(test.before, after(test.before, test.change...)) {
				kind, about := "Normal ", ""
				if e.Warning {
					kind = "Warning "
				}
				if e.Member != "" {
					about = " " + e.Member
				}
				got = append(got, fmt.Sprint(kind, e.Reason, about, ": ", e.Note))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
