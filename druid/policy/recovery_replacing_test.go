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

// The Pod of a member that replaced itself does not come back. Its slot is freed when the leader's agent has published the member list, and is
// evidence until then.
func TestSlotStaysUntilTheListIsPublished(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		frees  bool
	}{
		"the quorum is lost":      {func(*rescue) {}, false},
		"only a follower reports": {func(x *rescue) { x.member(0).Liveness = leases.Live }, false},
		"only kubelets report":    {func(x *rescue) { x.member(0).EtcdReady, x.member(1).EtcdReady = true, true }, false},
		"the leader reports":      {func(x *rescue) { x.leads() }, true},
		"one of an earlier group": {func(x *rescue) { x.leads(); x.member(0).Reports.ClusterID = 6 }, false},
		"an external member leads": {func(x *rescue) {
			x.member(0).Liveness, x.o.Record.Externals = leases.Live, []string{"e"}
			x.unknownVoters("e")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.o.Record.Replacing = &leases.Replacing{Member: "demo-c", PodUID: "earlier", MemberID: "c"}
			x.member(2).Lingers = true
			test.change(x)
			step, ok := recordStep(Evaluate(x.d, x.o))
			if got := ok && step.Release != nil; got != test.frees {
				t.Errorf("the step is %+v", step)
			}
		})
	}
}

// leads lets the first member report that it leads.
func (x *rescue) leads() {
	x.member(0).Liveness, x.member(0).Reports.Role = leases.Live, leases.RoleLeader
}

// A drain does not take the slot of a name that is not desired as long as the published list can be older than the removal of that member.
func TestDrainKeepsAnUnpublishedRemoval(t *testing.T) {
	step := Step{Kind: OpenSlot, Member: "demo-b", Slot: &leases.PendingRemoval{Member: "demo-b"}}
	for name, test := range map[string]struct {
		change func(*leases.Record)
		takes  bool
	}{
		"listed by its ID":    {func(*leases.Record) {}, false},
		"no list":             {func(r *leases.Record) { r.MemberList = nil }, false},
		"not listed any more": {func(r *leases.Record) { r.MemberList.Members = r.MemberList.Members[:2] }, true},
		"no slot":             {func(r *leases.Record) { r.Replacing = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			record := newRescue(3).o.Record
			record.Members, record.Replacing = record.Members[:2], &leases.Replacing{Member: "demo-c", MemberID: "c"}
			test.change(&record)
			if got, ok := step.ChangeSlot(record, "m"); ok != test.takes || !ok && got.Replacing == nil {
				t.Errorf("it takes the slot %t: %+v", ok, got)
			}
		})
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
