package policy

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// Another member restores the backup if it has what the selected one lacks. druid does not alternate between two members.
func TestAnotherMemberRestoresTheBackup(t *testing.T) {
	for name, test := range map[string]struct {
		failure leases.RestoreFailure
		change  func(selected, other *Member)
		another bool
	}{
		"more free space":          {leases.FailedSpace, func(_, other *Member) { other.Reports.Disk.Free = 5 + newLogSpace }, true},
		"a little more free space": {leases.FailedSpace, func(_, other *Member) { other.Reports.Disk.Free = 9 }, false},
		"more free space, and an outdated Pod": {leases.FailedSpace, func(_, other *Member) {
			other.Reports.Disk.Free, other.Make = 5+newLogSpace, MakeOutdated
		}, false},
		"more free space, and both Pods are outdated": {leases.FailedSpace, func(selected, other *Member) {
			other.Reports.Disk.Free, other.Make, selected.Make = 5+newLogSpace, MakeOutdated, MakeOutdated
		}, true},
		"as much free space":       {leases.FailedSpace, func(_, other *Member) { other.Reports.Disk.Free = 5 }, false},
		"less free space":          {leases.FailedSpace, func(_, other *Member) { other.Reports.Disk.Free = 4 }, false},
		"a Pod of the new version": {leases.FailedVersion, func(selected, _ *Member) { selected.Make = MakeOutdated }, true},
		"two Pods of the new one":  {leases.FailedVersion, func(_, _ *Member) {}, false},
		"two Pods of the old one":  {leases.FailedVersion, func(selected, other *Member) { selected.Make, other.Make = MakeOutdated, MakeOutdated }, false},
		"a Pod of the new quota":   {leases.FailedQuota, func(selected, _ *Member) { selected.Make = MakeOutdated }, true},
		"no key":                   {leases.FailedKey, func(selected, other *Member) { selected.Make, other.Reports.Disk.Free = MakeOutdated, 5+newLogSpace }, false},
		"no volume": {leases.FailedSpace, func(_, other *Member) {
			other.Reports.Disk.Free, other.Claim, other.Pod = 5+newLogSpace, ClaimAbsent, PodAbsent
		}, false},
		"no acknowledgement": {leases.FailedSpace, func(_, other *Member) { other.Reports.Disk.Free, other.Reports.Disk.Order = 5+newLogSpace, "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := allWiped(t)
			selected, other := x.member(0), x.member(1)
			x.member(2).Reports.Disk.Order = "" // there are two to choose from
			selected.Reports.Disk.Free, selected.Reports.Disk.Failed = 5, test.failure
			test.change(selected, other)
			if !test.another {
				x.wants(t, "cannot-execute")
				return
			}
			x.wants(t, "cannot-execute-otherwise")
			x.apply(t, PrepareRecovery)
			if o := x.o.Record.Order(); o.Mode != leases.RecoverBackup || o.Chosen != "demo-b" {
				t.Fatalf("order %+v", o)
			}
			free := other.Reports.Disk.Free
			x.report(0, leases.DiskEmpty).Free = 5
			x.report(1, leases.DiskEmpty).Free = free
			x.report(2, leases.DiskEmpty)
			x.wants(t, "execute")
			x.apply(t, ExecuteRecovery)
			if o := x.o.Record.Order(); o.Chosen != "demo-b" {
				t.Fatalf("order %+v", o)
			}
			other.Reports.Disk.Failed = test.failure
			x.wants(t, "cannot-execute")
		})
	}
}

// allWiped is a cluster without any data, whose first member restores the backup by an order that you approved.
func allWiped(t *testing.T) *rescue {
	t.Helper()
	x := newRescue(3).backedUp()
	return x.executes(t, leases.RecoverBackup, func() {
		for i := range 3 {
			x.report(i, leases.DiskEmpty)
		}
	})
}
