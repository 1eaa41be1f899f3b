package policy

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// druid is updated after the members acknowledged an order, and updates no agent before the order ends. An alarm that a later disk decided over
// still does not stand, and the approval of the plan does.
func TestUpdateOfDruidKeepsTheApproval(t *testing.T) {
	x := newRescue(5)
	report := func() {
		for i := range 5 {
			x.report(i, leases.DiskEmpty)
		}
		earlier := x.report(1, leases.DiskStale)
		earlier.Last, earlier.Commit, earlier.Applied, earlier.Corrupt = 40, 40, 40, "c"
		x.report(2, leases.DiskIntact)
	}
	report()
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	report()
	x.wants(t, "execute")
	for i := range 5 {
		x.member(i).Agent = AgentOutdated
	}
	x.wants(t, "execute")
	if x.member(2).Reports.Disk.Order = "1-aa"; !x.member(2).calledCorrupt(x.o) {
		t.Error("an older agent that does not acknowledge the order decides")
	}
}
