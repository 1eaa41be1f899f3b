package policy

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// The record was rolled back to an order that the members do not carry out, because they acknowledged a later one. druid replaces
// it by one that they acknowledge, or releases it.
func TestRolledBackRecordsOrderReplaced(t *testing.T) {
	x := newRescue(3)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	for i, state := range []leases.DiskState{leases.DiskIntact, leases.DiskEmpty, leases.DiskEmpty} {
		x.report(i, state).Order = "7-ffff"
	}
	x.member(0).Reports.Disk.Prepared = 7
	x.apply(t, PrepareRecovery)
	if o := x.o.Record.Order(); o.Epoch != 8 {
		t.Errorf("order %+v", o)
	}
	for i, state := range []leases.DiskState{leases.DiskIntact, leases.DiskEmpty, leases.DiskEmpty} {
		x.report(i, state)
	}
	x.wants(t, "execute")

	// Both of a majority acknowledged the later order: their raft group continues.
	x = newRescue(3)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	for i := range 2 {
		c := x.report(i, leases.DiskIntact)
		c.Order, c.Prepared = "7-ffff", 7
	}
	for x.o.Record.Released < 7 {
		x.wants(t, "majority-returned")
		x.apply(t, ReleaseRecovery)
	}
	x.member(0).Liveness = leases.Live
	x.wants(t, "quorum-serves")
}

// diskOnly is the stage Execute, where only the disk of a member shows that the raft group was formed.
const diskOnly leases.Stage = "the disk"

// TestRecordBehindMemberCorrected: a record behind a formed member is corrected.
// The record was rolled back into the recovery that formed the raft group. The status does not know of it, because druid was
// down. The Lease of the member that formed it is enough: the order is not released, and not carried out again.
func TestRecordBehindMemberCorrected(t *testing.T) {
	for _, stage := range []leases.Stage{"", leases.StagePrepare, leases.StageExecute, diskOnly} {
		x := newRescue(3)
		x.d.Epoch = 1
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
		x.d.Recovery.Automatic = true
		if stage != "" {
			x.apply(t, PrepareRecovery)
			for i, state := range []leases.DiskState{leases.DiskIntact, leases.DiskEmpty, leases.DiskEmpty} {
				x.report(i, state)
			}
		} else {
			x.o.Record.PendingRemoval = &leases.PendingRemoval{Member: "demo-b", Mark: "m"}
		}
		if stage == leases.StageExecute || stage == diskOnly {
			x.apply(t, ExecuteRecovery)
		}
		m := x.member(0)
		if c := x.report(0, leases.DiskIntact); stage == diskOnly { // etcd did not run yet on the data that was put in place
			c.Cluster, c.Member, c.Epoch, c.Lineage, c.Voters, c.Order = "8", "63", 2, "00000002-ee", "63", ""
		} else {
			m.Reports.ClusterID, m.Reports.ID, m.Reports.Epoch, m.Reports.Lineage, m.Reports.Disk = 8, 99, 2, "00000002-ee", nil
		}
		x.wants(t, "record-behind")
		steps := Steps(Evaluate(x.d, x.o))
		if len(steps) != 1 || steps[0].Rule != "record-behind" || steps[0].Record == nil {
			t.Fatalf("stage %q: steps %+v", stage, steps)
		}
		record, ok := steps[0].RestoreRecord(x.o.Record, x.o.Record.Phase)
		if !ok || record.Phase != leases.PhaseFormed || record.ClusterID != 8 || record.FormedEpoch != 2 || record.Nonce != "ee" || record.MaxLearners != 16 ||
			record.Order() != nil || record.PendingRemoval != nil || record.MemberList != nil {
			t.Errorf("stage %q: record %+v", stage, record)
		}
	}
}

// Data that is in place on a disk says nothing if no raft group is known, because it can be that of a lost attempt to form the first one. It
// says nothing either if the order of its epoch was released.
func TestDiskAloneIdentifiesNoRaftGroup(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		id     uint64
	}{
		"a recovery formed it":     {func(*rescue) {}, 8},
		"the order was released":   {func(x *rescue) { x.o.Record.Released = 2 }, 7},
		"no raft group is known":   {func(x *rescue) { x.neverReported() }, 0},
		"the volume was replaced":  {func(x *rescue) { x.member(0).Reports.VolumeUID = "another" }, 7},
		"the data is not complete": {func(x *rescue) { x.member(0).Reports.Disk.State = leases.DiskStale }, 7},
	} {
		x := newRescue(3)
		c := x.report(0, leases.DiskIntact)
		c.Cluster, c.Member, c.Epoch, c.Lineage = "8", "63", 2, "00000002-ee"
		test.change(x)
		if got := recreated(x.d, x.o); got.ClusterID != test.id {
			t.Errorf("%s: the record is %+v, want cluster ID %x", name, got, test.id)
		}
	}
}

// neverReported takes away that druid and the agents reported a raft group.
func (x *rescue) neverReported() {
	x.d.ClusterID = 0
	for i := range x.o.Members {
		m := x.member(i)
		m.Reports.ID, m.Reports.ClusterID, m.Reports.Epoch, m.Reports.Lineage = 0, 0, 0, ""
	}
}

// TestOneMemberMovesNoServingRecord: one member does not move the record of a cluster that serves.
// A compromised agent reports a later raft group. While a quorum serves in the record's raft group, that moves no record.
func TestOneMemberMovesNoServingRecord(t *testing.T) {
	const live, stale, unknown = leases.Live, leases.Stale, leases.Unknown
	for _, c := range []struct {
		members [2]leases.Liveness
		moves   bool
	}{
		{[2]leases.Liveness{stale, stale}, true}, {[2]leases.Liveness{live, stale}, true}, {[2]leases.Liveness{leases.Never, live}, true},
		{[2]leases.Liveness{live, live}, false}, {[2]leases.Liveness{unknown, live}, false}, {[2]leases.Liveness{unknown, unknown}, false},
	} {
		x := newRescue(3)
		x.d.Epoch = 1
		for i, liveness := range c.members {
			m := x.member(i)
			m.Reports.Role, m.Reports.ClusterID, m.Reports.Epoch, m.Liveness = leases.RoleMember, x.o.Record.ClusterID, 1, liveness
			m.EtcdReady = liveness == live
		}
		m := x.member(2)
		m.Reports.Role, m.Reports.ClusterID, m.Reports.Epoch, m.Reports.Lineage, m.Liveness = leases.RoleLeader, 8, 2, "00000002-ee", leases.Live
		moves := slices.ContainsFunc(Steps(Evaluate(x.d, x.o)), func(s Step) bool { return s.Rule == "record-behind" && s.Record != nil })
		if moves != c.moves {
			t.Errorf("with Leases %v: the record moves: %v, want %v", c.members, moves, c.moves)
		}
	}
}

// The record was rolled back to its copy from before a recovery, and the earlier raft group has a quorum again. The status names the later one.
func TestStatusCorrectsARolledBackRecord(t *testing.T) {
	for name, c := range map[string]struct {
		id    uint64
		epoch uint32
		moves bool
	}{
		"the status is as old": {7, 1, false}, "the raft group of the recovery": {8, 2, true}, "another one, no later epoch": {8, 1, false},
		"the epoch is unknown": {8, 0, false}, "the same raft group, a later epoch": {7, 2, false},
	} {
		x := newRescue(3)
		x.d.ClusterID, x.d.Epoch = c.id, c.epoch
		for i := range 3 {
			m := x.member(i)
			m.Reports.Role, m.Reports.ClusterID, m.Reports.Epoch, m.Liveness, m.EtcdReady = leases.RoleMember, 7, 1, leases.Live, true
		}
		x.member(2).Reports.ClusterID, x.member(2).Reports.Epoch, x.member(2).Reports.Lineage = 8, 2, "00000002-ee"
		steps := Steps(Evaluate(x.d, x.o))
		i := slices.IndexFunc(steps, func(s Step) bool { return s.Rule == "record-behind" && s.Record != nil })
		if (i >= 0) != c.moves {
			t.Errorf("%s: the record moves: %t, want %t: %+v", name, i >= 0, c.moves, steps)
			continue
		}
		if !c.moves {
			continue
		}
		if r, ok := steps[i].RestoreRecord(x.o.Record, x.o.Record.Phase); !ok || r.ClusterID != 8 || r.FormedEpoch != 2 || r.Nonce != "ee" {
			t.Errorf("%s: record %+v", name, r)
		}
	}
}

// A record names a raft group that was not formed, while a quorum serves. druid takes it back. It takes back no raft group of a
// recovery, although the members that stopped for it still count as live, and none that a member reports.
func TestARecordAheadOfAQuorumIsCorrected(t *testing.T) {
	const highest = 1<<32 - 1
	for name, c := range map[string]struct {
		change func(*rescue)
		moves  bool
	}{
		"another raft group": {func(x *rescue) {
			x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch = 0xdead, highest, highest
		}, true},
		"another one, no epoch more": {func(x *rescue) { x.o.Record.ClusterID = 0xdead }, true},
		"a later epoch":              {func(x *rescue) { x.o.Record.Epoch = highest }, true},
		"as it is":                   {func(*rescue) {}, false},
		"a recovery formed it": {func(x *rescue) {
			x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch = 8, 2, 2
			x.o.Record.Recovered = &leases.Recovered{Epoch: 2}
		}, false},
		"a member reports it": {func(x *rescue) {
			x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch = 8, 2, 2
			x.member(2).Reports.ClusterID, x.member(2).Reports.Epoch = 8, 2
		}, false},
		"the status has it": {func(x *rescue) {
			x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch = 8, 2, 2
			x.d.ClusterID, x.d.Epoch = 8, 2
		}, false},
		"one member is left": {func(x *rescue) {
			x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch = 0xdead, highest, highest
			x.member(1).Liveness = leases.Stale
		}, false},
		"one member reports a third raft group": {func(x *rescue) {
			x.o.Record.ClusterID = 0xdead
			x.member(1).Reports.ClusterID = 0xbeef
		}, false},
		"one member reports an earlier epoch": {func(x *rescue) {
			x.o.Record.ClusterID = 0xdead
			x.member(1).Reports.Epoch = 0
		}, false},
		"with external members they are no quorum": {func(x *rescue) {
			x.o.Record.ClusterID = 0xdead
			x.o.Record.Externals = []string{"e", "f"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.d.Epoch = 1
			formed := x.o.Record.ClusterID
			for i := range 2 {
				m := x.member(i)
				m.Reports.Role, m.Reports.ClusterID, m.Reports.Epoch, m.Reports.Lineage, m.Liveness, m.EtcdReady = leases.RoleMember, formed, 1,
					"00000001-aa", leases.Live, true
			}
			c.change(x)
			e := Evaluate(x.d, x.o)
			steps := Steps(e)
			i := slices.IndexFunc(steps, func(s Step) bool { return s.Rule == "record-ahead" && s.Record != nil })
			if (i >= 0) != c.moves {
				t.Fatalf("the record moves: %t, want %t: %+v", i >= 0, c.moves, steps)
			}
			// A recovery and a restore in place wait until the record is right.
			for what, rule := range map[string]string{"recovery": e.recovery.rule, "restore": e.restore.rule} {
				if (rule == "record-behind") != c.moves {
					t.Errorf("the %s is decided by %s", what, rule)
				}
			}
			if !c.moves {
				return
			}
			record, ok := steps[i].RestoreRecord(x.o.Record, x.o.Record.Phase)
			if !ok || record.ClusterID != formed || record.Epoch != 1 || record.FormedEpoch != 1 || record.Nonce != "aa" || record.MaxLearners != 16 {
				t.Errorf("record %+v", record)
			}
			before := v1alpha1.EtcdClusterStatus{ClusterID: leases.FormatID(formed), Epoch: 1}
			if s := Status(e, before, nil, 1, metav1.Now()); s.ClusterID != before.ClusterID || s.Epoch != 1 {
				t.Errorf("the status follows the record: %s, epoch %d", s.ClusterID, s.Epoch)
			}
		})
	}
}

// The spec requests a pause while the members acknowledge an order. The order ends first, and the pause follows.
func TestAPauseWaitsForTheOrder(t *testing.T) {
	x := newRescue(1)
	x.report(0, leases.DiskStale)
	x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
	x.apply(t, PrepareRecovery)
	x.d.Replicas = 0
	phase := func(want v1alpha1.RecoveryPhase) {
		t.Helper()
		if s := recoveryStatus(Evaluate(x.d, x.o), nil, metav1.NewTime(rescueStart)); s == nil || s.Phase != want || !QuorumLost(x.d, x.o) {
			t.Errorf("the status is %+v, want %s; the quorum is lost: %t", s, want, QuorumLost(x.d, x.o))
		}
	}
	x.wants(t, "await-acknowledgements")
	phase(v1alpha1.RecoveryPreparing)
	x.report(0, leases.DiskStale)
	x.apply(t, ExecuteRecovery)
	phase(v1alpha1.RecoveryExecuting)
	a := leases.RecoveryAttempt{Order: x.o.Record.Order().Name(), Nonce: "ff", PodUID: "pod-demo-a", ClusterID: "8"}
	claimed, err := x.o.Record.Claimed(a)
	if err != nil {
		t.Fatal(err)
	}
	done := leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "demo-a", Revision: 1000}
	if x.o.Record, err = claimed.Reformed(a, done, leases.Fork{Parent: "00000001-aa", Revision: 7}); err != nil {
		t.Fatal(err)
	}
	m := x.member(0)
	x.o.RecordState, x.o.Record.MemberList = RecordFormed, &leases.MemberList{Members: []leases.ListedMember{{ID: "b", Name: m.Name}}}
	m.Liveness, m.EtcdReady, m.Reports.Disk = leases.Live, true, nil
	m.Reports.ID, m.Reports.ClusterID, m.Reports.Epoch, m.Reports.Role = 11, 8, 2, leases.RoleLeader
	if e := Evaluate(x.d, x.o); e.pause.rule != "pause" || e.recovery.rule != "not-applicable" {
		t.Errorf("the pause is decided by rule %s, the recovery by %s", e.pause.rule, e.recovery.rule)
	}
}
