package bootstrap

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func TestSlotBindsWhileItsHolderIsListed(t *testing.T) {
	url := func(name string) string { return "http://" + name + ":2380" }
	taken := &leases.Replacing{Member: "c-a", MemberID: "a1"}
	for name, tc := range map[string]struct {
		slot   Slot
		listed []membership.Member
		want   Slot
	}{
		"the ID is still to be removed":       {SlotTaken, []membership.Member{{ID: 0xa1, Name: "c-a"}, {ID: 2, Name: "c-b"}}, SlotTaken},
		"the holder joined under another ID":  {SlotTaken, []membership.Member{{ID: 9, PeerURLs: []string{url("c-a")}}}, SlotTaken},
		"the holder is gone and not back yet": {SlotTaken, []membership.Member{{ID: 2, Name: "c-b"}}, SlotFree},
		"our own slot stays ours":             {SlotOurs, []membership.Member{{ID: 2, Name: "c-b"}}, SlotOurs},
		"a free slot stays free with anybody": {SlotFree, []membership.Member{{ID: 0xa1, Name: "c-a"}}, SlotFree},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SlotIn(membership.View{Members: tc.listed}, tc.slot, taken, url); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestReplacingNeedsAQuorumThatOutlivesIt(t *testing.T) {
	voters := func(n int) membership.View {
		var v membership.View
		for i := range n {
			v.Members = append(v.Members, membership.Member{ID: uint64(i + 1), Name: leases.FormatID(uint64(i + 1))})
		}
		return v
	}
	for n, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3} {
		v := voters(n)
		if others, got := QuorumForReplacing(v, v.Members[0], Voter); got != want || len(others) != n-1 {
			t.Errorf("of %d voters: %d of %d others must be healthy, want %d", n, got, len(others), want)
		}
	}
	if _, got := QuorumForReplacing(voters(3), membership.Member{ID: 9, Learner: true}, Learner); got != 0 {
		t.Errorf("a learner's removal takes no vote, got %d", got)
	}
}
