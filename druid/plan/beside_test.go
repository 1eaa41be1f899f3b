package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/leases"
)

// What the members' tables, the drain's and the healing's order at the same time.
func TestOneMemberAtATimeWhateverTheReason(t *testing.T) {
	slot := func(o *Observed) {
		o.Record.Retiring, o.Members[2].Serving, o.BudgetMin = &leases.Retiring{Member: "c-c", Mark: "m"}, false, 3
	}
	marked := func(state leases.RetireState) func(*Observed) {
		return func(o *Observed) {
			o.Members[2].Says.Retire = leases.Retirement{State: state, Mark: "m", ClusterID: "9"}
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
		"a deleted claim while the leader's agent is asked: the request is taken back": {2, []func(*Observed){slot, marked(leases.RetireRequested), lost(0)}, []string{
			"UnretireLease hindered-request c-c",
		}},
		"a deleted claim while the leader's agent removes another: its Pod is held": {2, []func(*Observed){slot, marked(leases.RetireRemoving), lost(0)}, []string{}},
		"a deleted claim of the one that goes": {2, []func(*Observed){slot, marked(leases.RetireRemoving), lost(2)}, []string{
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
		"a removal that was claimed under an order of before: no other is asked for": {2, []func(*Observed){slot, marked(leases.RetireRequested), func(o *Observed) {
			o.Members[0].Says.Retire = leases.Retirement{State: leases.RetireRemoving, Mark: "x", ClusterID: "9"}
		}}, []string{"UnretireLease hindered-request c-c"}},
		"a voter by the list whose new Lease is silent: the others are looked at": {2, []func(*Observed){slot, marked(leases.RetireRequested), down(0), voters("c-a", "c-b", "c-c"), func(o *Observed) {
			o.Members[2].Says = leases.Member{Retire: o.Members[2].Says.Retire, PodUID: "pod-c-c", VolumeUID: "claim-c-c"}
			o.Members[2].Voter, o.BudgetMin = false, 2
		}}, []string{"UnretireLease hindered-request c-c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := short(Steps(Desired{Replicas: test.replicas}, whole(test.change...)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}
