package policy

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// All logs are damaged. The members have different amounts of data, and what can be read of their logs ends elsewhere.
func TestTheDataDecidesWhereAllLogsAreDamaged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(first, second *leases.DiskReport)
		want   string
	}{
		"the database that has more, although its log ends earlier": {func(first, second *leases.DiskReport) {
			first.Applied, first.Revision, first.Last, first.Commit = 50, 100, 10, 9
			second.Applied, second.Revision, second.Last, second.Commit = 30, 60, 40, 29
		}, "demo-a"},
		"the log that is known to be committed further": {func(first, second *leases.DiskReport) {
			first.Applied, first.Revision, first.Last, first.Commit = 30, 60, 50, 31
			second.Applied, second.Revision, second.Last, second.Commit = 30, 60, 48, 47
			first.Tail, second.Tail = 1, 17
		}, "demo-b"},
		"no entry that an earlier leader did not commit": {func(first, second *leases.DiskReport) {
			first.Applied, first.Revision, first.LastTerm, first.Last, first.Commit = 30, 60, 2, 40, 40
			second.Applied, second.Revision, second.LastTerm, second.Last, second.Commit = 30, 60, 3, 41, 30
			first.Tail = 10
		}, "demo-a"},
		"no entry that stands after a missing one": {func(first, second *leases.DiskReport) {
			first.Applied, first.Revision, first.Last, first.Commit = 30, 60, 49, 48
			second.Applied, second.Revision, second.Last, second.Commit = 40, 80, 40, 40
		}, "demo-b"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			for i := range 3 {
				x.report(i, leases.DiskCorrupt).WholeDB = true
			}
			third := x.member(2).Reports.Disk
			third.Applied, third.Revision, third.Last, third.Commit = 1, 1, 1, 1
			test.change(x.member(0).Reports.Disk, x.member(1).Reports.Disk)
			r := x.wants(t, "propose")
			if s := r.plan.source; s.mode != leases.RecoverSurvivor || s.member.Name != test.want || r.plan.measured {
				t.Errorf("the source is %s (%s), want the disk of %s, with a loss that is unknown", s.member.Name, s.mode, test.want)
			}
		})
	}
}

// One disk is intact, and the log of another one is damaged. What the damaged one holds is committed.
func TestDamagedDiskWithMoreIsUsed(t *testing.T) {
	for name, test := range map[string]struct {
		tail uint64
		want string
	}{
		"the intact disk lacks committed entries": {tail: 21, want: "demo-b"},
		"the intact disk has as much":             {tail: 20, want: "demo-a"},
		"the intact disk has more":                {tail: 19, want: "demo-a"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.d.Recovery.Automatic = true
			x.report(0, leases.DiskIntact)
			damaged := x.report(1, leases.DiskCorrupt)
			damaged.WholeDB, damaged.Applied, damaged.Tail = true, 30, test.tail
			x.report(2, leases.DiskEmpty)
			r := x.decide()
			if s := r.plan.source; s.member.Name != test.want {
				t.Errorf("the source is %s, want %s", s.member.Name, test.want)
			}
			if test.want == "demo-b" && (r.plan.measured || r.rule != "propose") {
				t.Errorf("a loss that is unknown needs an approval: %s", r.rule)
			}
		})
	}
}
