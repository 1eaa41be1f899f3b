package policy

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// returned is a cluster of seven whose third member forms the raft group from its disk. The first one returned after that, and has the same
// data.
func returned(t *testing.T) *rescue {
	t.Helper()
	x := newRescue(7)
	report := func() {
		for i := range 7 {
			x.report(i, map[bool]leases.DiskState{true: leases.DiskIntact, false: leases.DiskEmpty}[i == 2]).Free = newLogSpace
		}
		x.away(0)
		x.member(0).Reports.Disk = nil
	}
	report()
	x.d.Recovery.Approved = x.decide().plan.hash
	x.apply(t, PrepareRecovery)
	report()
	x.apply(t, ExecuteRecovery)
	x.nodeReturns(0)
	x.report(0, leases.DiskIntact).Free = newLogSpace
	return x
}

// A disk with an earlier name returned after the order, and the data of the selected one cannot be used. druid goes back to the disk that
// returned, and not again to the one that failed.
func TestReturnedDiskOfSameDataIsUsed(t *testing.T) {
	const otherwise, same = "cannot-execute-otherwise", "cannot-execute"
	for name, test := range map[string]struct {
		failure leases.RestoreFailure
		change  func(x *rescue)
		rule    string
	}{
		"data that cannot be used":         {leases.FailedData, func(*rescue) {}, otherwise},
		"less space":                       {leases.FailedSpace, func(x *rescue) { x.member(0).Reports.Disk.Free *= 9 }, same},
		"a Pod of an earlier version":      {leases.FailedVersion, func(x *rescue) { x.member(2).Make = MakeOutdated }, same},
		"it failed before":                 {leases.FailedData, func(x *rescue) { x.o.Record.Recovery.Unable = []string{"demo-a"} }, same},
		"its agent is older":               {leases.FailedData, func(x *rescue) { x.member(0).Agent = AgentOutdated }, same},
		"the agent that failed is older":   {leases.FailedData, func(x *rescue) { x.member(2).Agent = AgentOutdated }, same},
		"it did not acknowledge the order": {leases.FailedData, func(x *rescue) { x.member(0).Reports.Disk.Order = "" }, same},
	} {
		t.Run(name, func(t *testing.T) {
			x := returned(t)
			x.wants(t, "executing")
			x.member(2).Reports.Disk.Failed = test.failure
			test.change(x)
			if x.wants(t, test.rule); test.rule != otherwise {
				return
			}
			x.apply(t, PrepareRecovery)
			for i := range 7 {
				x.acknowledges(i)
				x.member(i).Reports.Disk.Failed = ""
			}
			x.wants(t, "execute")
			x.apply(t, ExecuteRecovery)
			if o := x.o.Record.Order(); o.Chosen != "demo-a" || !slices.Equal(o.Unable, []string{"demo-c"}) {
				t.Fatalf("order %+v", o)
			}
			x.member(0).Reports.Disk.Failed = leases.FailedData
			x.wants(t, same)
		})
	}
}

// Whatever fails, druid orders no member twice, and then says what you can do. Each member fails in the same way in each order.
func TestNoFailedMemberIsOrderedTwice(t *testing.T) {
	for mode, failures := range map[leases.RecoveryMode][]leases.RestoreFailure{
		leases.RecoverSurvivor: {leases.FailedSpace, leases.FailedVersion, leases.FailedData},
		leases.RecoverBackup:   {leases.FailedSpace, leases.FailedVersion, leases.FailedBackups},
	} {
		kinds, longest := len(failures)*2, 0
		for n := range 3 * power(kinds, 3) {
			kind := func(i int) int { return n / 3 / power(kinds, i%3) % kinds }
			x := orderedFrom(t, mode, n%3)
			for i := range 3 {
				better := kind(i) / len(failures)
				x.member(i).Reports.Disk.Free, x.member(i).Make = int64(1+better)*newLogSpace, []PodMake{MakeOutdated, MakeCurrent}[better]
			}
			longest = max(longest, x.failsInTurn(t, func(i int) leases.RestoreFailure { return failures[kind(i)%len(failures)] }))
		}
		if longest != 3 {
			t.Errorf("%s: at most %d members were ordered, want 3", mode, longest)
		}
	}
}

// orderedFrom is a cluster of seven with an order of the mode for a member. In the mode Survivor, the first three members have the same data.
func orderedFrom(t *testing.T, mode leases.RecoveryMode, chosen int) *rescue {
	t.Helper()
	x := newRescue(7)
	order := leases.Recovery{Epoch: 2, Nonce: "ab", Mode: mode, Chosen: x.member(chosen).Name, Unmeasured: true, Approved: true}
	if mode == leases.RecoverBackup {
		x.backedUp()
		order.Lineage, order.Revision = "00000001-aa", 40
	}
	for i := range 7 {
		x.report(i, map[bool]leases.DiskState{true: leases.DiskIntact, false: leases.DiskEmpty}[i < 3 && mode == leases.RecoverSurvivor]).Free = newLogSpace
	}
	record, err := x.o.Record.Prepare(order)
	if err != nil {
		t.Fatal(err)
	}
	x.o.Record, x.o.RecordState = record, RecordRecovering
	return x
}

// failsInTurn lets each member that is ordered fail, and returns how many were ordered.
func (x *rescue) failsInTurn(t *testing.T, failure func(i int) leases.RestoreFailure) int {
	t.Helper()
	var ordered []string
	for {
		for i := range x.o.Members {
			x.acknowledges(i)
			x.member(i).Reports.Disk.Failed = ""
		}
		x.wants(t, "execute")
		x.apply(t, ExecuteRecovery)
		chosen := x.o.Record.Order().Chosen
		if slices.Contains(ordered, chosen) {
			t.Fatalf("%s is ordered again after %v", chosen, ordered)
		}
		ordered = append(ordered, chosen)
		i := slices.IndexFunc(x.o.Members, func(m Member) bool { return m.Name == chosen })
		x.member(i).Reports.Disk.Failed = failure(i)
		if x.decide().rule != "cannot-execute-otherwise" {
			x.wants(t, "cannot-execute")
			return len(ordered)
		}
		x.apply(t, PrepareRecovery)
	}
}
