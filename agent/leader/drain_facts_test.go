package leader

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func TestWhatAMarkMeansToTheLeadersAgent(t *testing.T) {
	self := Cluster{ClusterID: 0xc, MemberID: 1, Member: "demo-a", PodUID: "pod"}
	slot := &leases.Retiring{Member: "demo-b", Mark: "x"}
	claim := leases.Retirement{State: leases.RetireRemoving, Mark: "x", By: "pod", MemberID: "b", ClusterID: "c"}
	with := func(change func(*leases.Retirement)) leases.Retirement { r := claim; change(&r); return r }
	for name, tc := range map[string]struct {
		slot *leases.Retiring
		mark leases.Retirement
		id   uint64
		want membership.Mark
	}{
		"no mark":                          {slot, leases.Retirement{}, 0xb, membership.NotAsked},
		"asked":                            {slot, leases.Retirement{State: leases.RetireRequested, Mark: "x"}, 0xb, membership.Requested},
		"asked under another mark":         {slot, leases.Retirement{State: leases.RetireRequested, Mark: "y"}, 0xb, membership.NotAsked},
		"asked, and the slot is free":      {nil, leases.Retirement{State: leases.RetireRequested, Mark: "x"}, 0xb, membership.NotAsked},
		"claimed by us":                    {slot, claim, 0xb, membership.ClaimedByUs},
		"claimed by us, gone since":        {slot, claim, 0, membership.ClaimedByUs},
		"claimed by us under another ID":   {slot, claim, 0xd, membership.ClaimedByAnother},
		"claimed by another Pod":           {slot, with(func(r *leases.Retirement) { r.By = "other" }), 0xb, membership.ClaimedByAnother},
		"claimed in another raft group":    {slot, with(func(r *leases.Retirement) { r.ClusterID = "d" }), 0xb, membership.ClaimedByAnother},
		"claimed under another mark":       {slot, with(func(r *leases.Retirement) { r.Mark = "y" }), 0xb, membership.NotAsked},
		"done":                             {slot, with(func(r *leases.Retirement) { r.State = leases.RetireDone }), 0, membership.Retired},
		"done by another":                  {slot, with(func(r *leases.Retirement) { r.State, r.By = leases.RetireDone, "other" }), 0, membership.Retired},
		"done in another raft group":       {slot, with(func(r *leases.Retirement) { r.State, r.ClusterID = leases.RetireDone, "d" }), 0xb, membership.NotAsked},
		"done under another mark":          {slot, with(func(r *leases.Retirement) { r.State, r.Mark = leases.RetireDone, "y" }), 0, membership.NotAsked},
		"a mark that cannot be understood": {slot, leases.Retirement{State: leases.RetireUnreadable}, 0xb, membership.MarkUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MarkOf(tc.slot, "demo-b", tc.mark, self, tc.id); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAReplacementOfAnotherStandsInTheWay(t *testing.T) {
	record := leases.Record{Members: []string{"demo-a", "demo-b"}}
	for name, tc := range map[string]struct {
		holder string
		want   bool
	}{
		"nobody's":                            {"", false},
		"another's":                           {"demo-a", true},
		"that of the one that goes":           {"demo-b", false},
		"of one that is not desired any more": {"demo-x", false},
	} {
		t.Run(name, func(t *testing.T) {
			record.Replacing = nil
			if tc.holder != "" {
				record.Replacing = &leases.Replacing{Member: tc.holder}
			}
			if got := Replaces(record, "demo-b"); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
