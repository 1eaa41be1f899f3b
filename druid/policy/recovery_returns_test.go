package policy

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// TestReturnedMajorityEndsOrder: a majority that returns ends an order that is executed.
// Two members were off, and you approved the backup. They return while the chosen member restores it: their raft group continues.
func TestReturnedMajorityEndsOrder(t *testing.T) {
	x := fromBackup(t)
	for i := 1; i < 3; i++ {
		x.nodeReturns(i)
	}
	x.wants(t, "executing")
	x.report(1, leases.DiskIntact)
	x.report(2, leases.DiskIntact)
	x.continues(t, 2)
}

// One member returns while another one restores the backup. Its disk has more, so a later order selects it. It is not given up any more.
func TestNewerDiskSelectedOverBackup(t *testing.T) {
	start := func(t *testing.T) *rescue {
		x := fromBackup(t)
		x.nodeReturns(1)
		x.report(1, leases.DiskIntact)
		return x
	}
	checkRules(t, start, map[string]ruleTest{
		"more than the backup":      {func(*rescue) {}, "better-disk-report"},
		"less than the backup":      {func(x *rescue) { x.member(1).Reports.Disk.Revision = 30 }, "executing"},
		"older than it was":         {func(x *rescue) { x.member(1).Reports.Disk.State = leases.DiskStale }, "executing"},
		"without an acknowledgment": {func(x *rescue) { x.member(1).Reports.Disk.Order = "" }, "executing"},
		"without room for a copy":   {func(x *rescue) { x.member(1).Reports.Disk.Size, x.member(1).Reports.Disk.Free = 9, 8 }, "executing"},
	})
	x := start(t)
	x.apply(t, PrepareRecovery)
	x.wants(t, "await-acknowledgements")
	if o := x.o.Record.Order(); o.Epoch != 3 || o.Chosen != "demo-b" || len(o.GiveUp) > 0 || !o.Approved {
		t.Errorf("order %+v", o)
	}
	x.report(0, leases.DiskEmpty)
	x.report(1, leases.DiskIntact)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); o.Mode != leases.RecoverSurvivor || o.Chosen != "demo-b" {
		t.Errorf("order %+v", o)
	}
}

// The log of the selected disk is damaged, and can be read further than it is known to be committed. An intact disk that returns is
// compared with what the selected one holds.
func TestNewerDiskSelectedOverDamaged(t *testing.T) {
	for last, rule := range map[uint64]string{45: "executing", 46: "better-disk-report"} {
		x := newRescue(5)
		disks := func() {
			for i := range 3 {
				x.report(i, leases.DiskEmpty)
			}
			damaged := x.report(4, leases.DiskCorrupt)
			damaged.WholeDB, damaged.Applied, damaged.Tail, damaged.LastTerm, damaged.Last = true, 40, 5, 3, 200
		}
		disks()
		x.away(3)
		x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
		x.apply(t, PrepareRecovery)
		disks()
		x.apply(t, ExecuteRecovery)
		x.nodeReturns(3)
		x.report(3, leases.DiskIntact).Last = last
		x.wants(t, rule)
	}
}

// A disk that returns late and has more than the one that was selected is selected instead. One that has as much is not.
func TestNewerDiskSelectedOverDisk(t *testing.T) {
	for last, rule := range map[uint64]string{49: "executing", 50: "executing", 51: "better-disk-report"} {
		x := newRescue(5)
		x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions = true, nil
		for i := range 3 {
			x.report(i, leases.DiskEmpty)
		}
		x.away(3)
		x.apply(t, PrepareRecovery)
		for i := range 3 {
			x.report(i, leases.DiskEmpty)
		}
		x.report(4, leases.DiskIntact)
		x.apply(t, ExecuteRecovery)
		x.nodeReturns(3)
		x.report(3, leases.DiskIntact).Last = last
		x.wants(t, rule)
	}
}

// A promotion in the log of one disk, which is not committed as far as that disk knows, may never happen. Without it, the voters can need
// fewer members to serve: a member that is away is not lost then.
func TestUncommittedPromotionMayNotCount(t *testing.T) {
	start := func(*testing.T) *rescue {
		x := newRescue(4)
		x.o.Record.MemberList.Members[3].Learner, x.member(3).Reports.Role = true, leases.RoleLearner
		x.d.Recovery.Automatic = true
		x.report(1, leases.DiskEmpty)
		x.report(3, leases.DiskEmpty)
		x.away(2)
		return x
	}
	promoted := func(uncommitted string) func(*rescue) {
		return func(x *rescue) {
			c := x.report(0, leases.DiskIntact)
			c.Voters, c.Uncommitted = "a,b,c,d", uncommitted
		}
	}
	checkRules(t, start, map[string]ruleTest{
		"it is committed":     {promoted(""), "prepare"},
		"it is not committed": {promoted("d"), "give-up"},
	})
	x := start(t)
	promoted("d")(x)
	if r := x.decide(); len(r.plan.giveUp) != 1 || r.plan.giveUp[0] != "demo-c" {
		t.Errorf("the plan gives up %v, want demo-c", r.plan.giveUp)
	}
	if r := x.decide(); r.facts.acks != acksFew || len(r.lists) != 4 {
		t.Errorf("the lists of voters are %v", r.lists)
	}
}
