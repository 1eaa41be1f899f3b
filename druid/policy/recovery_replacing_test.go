package policy

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// Five members vote. The last two replaced themselves one after the other, and the leader did not publish that they were removed. The first
// two are then a quorum of three.
func TestEachReplacementIsCounted(t *testing.T) {
	for name, test := range map[string]struct {
		removed []uint64
		giveUp  []string
	}{
		"none": {nil, nil},
		"one":  {[]uint64{14}, nil},
		"two":  {[]uint64{13, 14}, []string{"demo-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(5).backedUp()
			x.o.Full.Reports.Revision = 100
			report := func() {
				for i := 2; i < 5; i++ {
					x.report(i, leases.DiskEmpty)
				}
			}
			report()
			x.away(0)
			x.away(1)
			for i, id := range test.removed {
				x.takesSlot(t, id, test.removed[:i])
			}
			x.executesWithout(t, report, test.giveUp...)
		})
	}
}

// takesSlot writes to the record that a member replaces itself, after others were removed.
func (x *rescue) takesSlot(t *testing.T, id uint64, removed []uint64) {
	t.Helper()
	var list leases.MemberList
	for _, m := range x.o.Members {
		if !slices.Contains(removed, m.Reports.ID) {
			list.Add(m.Reports.ID, m.Name, nil, false)
		}
	}
	record, err := x.o.Record.Replace(leases.Replacing{Member: x.member(int(id - 10)).Name, MemberID: leases.FormatID(id)}, list)
	if err != nil {
		t.Fatal(err)
	}
	x.o.Record = record
}

// The Pod of a member that replaced itself does not come back. Its slot is freed while the quorum serves, and is evidence when it is lost.
func TestSlotStaysWhileTheQuorumIsLost(t *testing.T) {
	for live, frees := range map[bool]bool{true: true, false: false} {
		x := newRescue(3)
		x.o.Record.Replacing = &leases.Replacing{Member: "demo-c", PodUID: "earlier", MemberID: "c"}
		x.member(2).Lingers = true
		if live {
			x.member(0).Liveness = leases.Live
		}
		step, ok := recordStep(Evaluate(x.d, x.o))
		if got := ok && step.Release != nil; got != frees {
			t.Errorf("a voter serves %t: the step is %+v", live, step)
		}
	}
}

// The record was deleted while the agents prepared, and druid made it again. The slots were lost with it, so each voter without data counts as
// one that can have removed itself, when another order is prepared.
func TestLostSlotsCountAsTaken(t *testing.T) {
	for deleted, rule := range map[bool]string{false: "execute", true: "give-up-further"} {
		x := newRescue(4).backedUp()
		x.o.Full.Reports.Revision = 100
		report := func() {
			x.report(0, leases.DiskEmpty)
			x.report(3, leases.DiskEmpty)
		}
		report()
		x.away(1)
		x.away(2)
		if deleted {
			x.o.Record.MemberList = nil
		}
		x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
		x.apply(t, PrepareRecovery)
		report()
		if r := x.wants(t, rule); deleted && !slices.Equal(r.plan.giveUp, []string{"demo-b"}) {
			t.Errorf("it gives up %v", r.plan.giveUp)
		}
	}
}
