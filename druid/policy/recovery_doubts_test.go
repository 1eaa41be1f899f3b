package policy

import (
	"strings"
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

// A backup that a verification found broken needs an approval, which says why. A disk is not affected, and neither are the backups of another
// lineage.
func TestBrokenBackupNeedsApproval(t *testing.T) {
	const own, other, newest = "00000001-aa", "00000000-zz", "ns/demo/00000001-aa/full/1"
	verdict := func(v leases.Verification) func(*rescue) {
		return func(x *rescue) { x.o.Full.Verified = v }
	}
	for name, test := range map[string]struct {
		change         func(*rescue)
		says           string // empty: druid recovers by itself
		disputed, disk bool
	}{
		"never verified": {change: verdict(leases.Verification{})},
		"verified":       {change: verdict(leases.Verification{Verdict: leases.VerdictVerified, Lineage: own})},
		"verified, and an older one is broken": {
			change: verdict(leases.Verification{Verdict: leases.VerdictVerified, Lineage: own, KnownBroken: []string{"old"}}),
		},
		"broken": {
			change: verdict(leases.Verification{Verdict: leases.VerdictBroken, Lineage: own, Full: newest, Broken: "delta", Trouble: "why"}),
			says:   "a verification found delta broken: the values in the backup can be wrong", disputed: true,
		},
		"broken, and no object is named": {
			change: verdict(leases.Verification{Verdict: leases.VerdictBroken, Lineage: own, Full: newest}), says: "found " + newest + " broken", disputed: true,
		},
		"the newest one is known to be broken": {
			change: verdict(leases.Verification{Lineage: own, KnownBroken: []string{newest}}), says: "found " + newest + " broken", disputed: true,
		},
		"broken, of another lineage": {change: verdict(leases.Verification{Verdict: leases.VerdictBroken, Lineage: other, Broken: "delta"})},
		"a Lease that cannot be parsed": {
			change: func(x *rescue) { x.o.Full.Unreadable = true }, says: "whether the backups are broken is unknown",
		},
		"broken, and a disk has as much": {disk: true,
			change: verdict(leases.Verification{Verdict: leases.VerdictBroken, Lineage: own, Full: newest, Broken: newest})},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3).backedUp()
			x.o.Full.Reports = leases.Backup{Revision: 100, Lineage: own, Object: newest}
			x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = true, nil, new(int64(1<<40))
			report := func() {
				for i := range 3 {
					x.report(i, leases.DiskEmpty)
				}
				if test.disk {
					x.report(0, leases.DiskIntact)
				}
			}
			report()
			test.change(x)
			r := x.decide()
			if source := r.plan.source; source.disputed(x.o) != test.disputed || (source.mode == leases.RecoverSurvivor) != test.disk {
				t.Errorf("the source is %s, disputed %t", source.mode, source.disputed(x.o))
			}
			if !strings.Contains(r.plan.words(), test.says) || r.is(recoverPrepare) != (test.says == "") {
				t.Errorf("by rule %s, the plan says %s", r.rule, r.plan.words())
			}
			x.d.Recovery.Approved = r.plan.hash
			x.apply(t, PrepareRecovery)
			report()
			x.wants(t, "execute")
		})
	}
}

// Automatic ordered to restore a backup, and a verification reported late that it is broken.
func TestOrderOfBrokenBackupIsApprovedAgain(t *testing.T) {
	x := newRescue(3).backedUp()
	x.o.Full.Reports.Revision = 100
	x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = true, nil, new(int64(1<<40))
	report := func() {
		for i := range 3 {
			x.report(i, leases.DiskEmpty)
		}
	}
	report()
	x.apply(t, PrepareRecovery)
	report()
	x.wants(t, "execute")
	x.o.Full.Verified = leases.Verification{Verdict: leases.VerdictBroken, Lineage: "00000001-aa", Broken: "full"}
	if r := x.decide(); r.is(recoverExecute) {
		t.Fatalf("by rule %s", r.rule)
	}
	x.d.Recovery.Approved = x.decide().plan.hash
	x.apply(t, ExecuteRecovery)
	if order := x.o.Record.Order(); !order.Disputed || !order.Approved {
		t.Errorf("order %+v", order)
	}
	x.wants(t, "executing")
}
