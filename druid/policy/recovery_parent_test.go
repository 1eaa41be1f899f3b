package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/leases"
)

// formedAgain is a cluster whose first member formed the raft group of epoch 2, which serves with it as the only voter. The others have
// the data of the one before, and wait for a quorum.
func formedAgain(mode leases.RecoveryMode) *rescue {
	x := newRescue(3)
	for i := 1; i < 3; i++ {
		x.report(i, leases.DiskIntact).Prepared = 2
	}
	x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch, x.o.Record.MemberList = 8, 2, 2, nil
	x.o.Record.Nonce, x.o.Record.Lineage = "bb", "00000002-bb"
	x.o.Record.Fork = &leases.Fork{Parent: "00000001-aa", Revision: 95, At: rescueStart.Add(-time.Hour)}
	x.o.Record.Recovered = &leases.Recovered{Epoch: 2, Mode: mode, Member: "demo-a", Revision: 1_000_000_095}
	m := x.member(0)
	m.Reports.ID, m.Reports.ClusterID, m.Reports.Epoch, m.Reports.Lineage, m.Reports.Revision = 99, 8, 2, "00000002-bb", 1_000_000_500
	x.d.ClusterID, x.d.Epoch, x.d.Backup = 8, 2, true
	x.o.Delta.Reports, x.o.SavedUntil = leases.Backup{Revision: 98, Lineage: "00000001-aa"}, rescueStart
	x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = true, nil, new(int64(1<<40))
	return x
}

// votersDisk reports the disk of the only voter of formedAgain, with its data.
func (x *rescue) votersDisk() {
	c := x.report(0, leases.DiskIntact)
	c.Cluster, c.Epoch, c.Lineage, c.Member, c.Voters = "8", 2, "00000002-bb", "63", "63"
}

// acknowledges adds the acknowledgement of the order to the disk that member i reported before.
func (x *rescue) acknowledges(i int) {
	disk, order := *x.member(i).Reports.Disk, x.o.Record.Order()
	disk.Order, disk.Prepared = order.Name(), order.Epoch
	x.member(i).Reports.Disk = &disk
}

// The raft group that was formed again is lost before its first backup. druid proposes what is left, and never takes it by itself.
func TestALostRaftGroupGoesBackToTheOneBefore(t *testing.T) {
	for name, test := range map[string]struct {
		mode     leases.RecoveryMode
		change   func(*rescue)
		source   leases.RecoveryMode // empty for a refusal
		member   string
		revision int64
		says     string
	}{
		"a disk of the raft group before": {leases.RecoverSurvivor, func(x *rescue) { x.o.Delta.Reports.Revision = 60 }, leases.RecoverSurvivor, "demo-b", 100,
			"Everything that was written since member demo-a formed it at 2026-11-24T11:00:00Z is lost"},
		"no report of the new raft group": {leases.RecoverSurvivor, func(x *rescue) { x.member(0).Reports.ID, x.member(0).Reports.ClusterID = 0, 0 },
			leases.RecoverSurvivor, "demo-b", 100, ""},
		"the volume is there and empty": {leases.RecoverSurvivor, func(x *rescue) {
			x.member(0).Claim, x.member(0).Pod = ClaimPresent, PodLive
			x.report(0, leases.DiskEmpty)
		}, leases.RecoverSurvivor, "demo-b", 100, ""},
		"a backup of the parent up to the fork": {leases.RecoverSurvivor, empty, leases.RecoverBackup, "demo-b", 95,
			"restore the backup of lineage 00000001-aa up to revision 95"},
		"a backup of the parent that ends before the fork": {leases.RecoverSurvivor, func(x *rescue) { empty(x); x.o.Delta.Reports.Revision = 60 },
			leases.RecoverBackup, "demo-b", 60,
			"at 2026-11-24T11:00:00Z is lost. The backup ends 35 revisions before the fork, and these are lost too"},
		"a parent that was restored": {leases.RecoverRestore, func(x *rescue) { x.o.Record.Fork.Parent = "00000000-zz" }, leases.RecoverBackup, "demo-b", 95,
			"restore the backup of lineage 00000000-zz up to revision 95"},
		"a disk that a restore undid": {leases.RecoverRestore, func(x *rescue) { x.d.Backup = false }, "", "", 0, ""},
		"a backup of the new raft group": {leases.RecoverSurvivor,
			func(x *rescue) { x.o.Full.Reports = leases.Backup{Revision: 1_000_000_400, Lineage: "00000002-bb"} }, leases.RecoverBackup, "demo-b", 1_000_000_400, ""},
		"a disk of another lineage": {leases.RecoverSurvivor, func(x *rescue) {
			x.d.Backup, x.member(1).Reports.Disk.Lineage, x.member(2).Reports.Disk = false, "00000001-yy", nil
		}, "", "", 0, ""},
		"a disk that is away":   {leases.RecoverSurvivor, func(x *rescue) { x.d.Backup = false; x.away(1); x.away(2) }, "", "", 0, ""},
		"a disk that two claim": {leases.RecoverSurvivor, func(x *rescue) { x.d.Backup, x.member(2).Reports.Disk.Member = false, "b" }, "", "", 0, ""},
		"a learner": {leases.RecoverSurvivor, func(x *rescue) {
			c := x.member(2).Reports.Disk
			c.Cluster, c.Epoch, c.Lineage, c.Member, c.Voters, c.Revision, c.Last = "8", 2, "00000002-bb", "77", "63", 1_000_000_300, 40
		}, leases.RecoverSurvivor, "demo-c", 1_000_000_300, "demo-c was a learner"},
	} {
		t.Run(name, func(t *testing.T) {
			x := formedAgain(test.mode)
			x.gone(0)
			test.change(x)
			r := x.decide()
			if test.source == "" {
				if !r.is(recoverRefuse) {
					t.Fatalf("by rule %s: plan %+v", r.rule, r.plan)
				}
				return
			}
			if r.plan == nil || r.plan.source.mode != test.source || r.plan.source.member.Name != test.member || r.plan.kept != test.revision {
				t.Fatalf("by rule %s, the obstacle is %q, the plan %+v", r.rule, r.obstacle, r.plan)
			}
			if n := strings.Count(r.plan.words(), "the loss is unknown"); r.plan.source.lost != "" && n != 1 {
				t.Errorf("the plan says %d times that the loss is unknown: %s", n, r.plan.words())
			}
			if !strings.Contains(r.plan.words(), test.says) || r.plan.source.lost != "" && r.plan.measured {
				t.Errorf("the plan says %s", r.plan.words())
			}
			if newBackup := r.plan.source.lost == ""; r.is(recoverPrepare) != newBackup {
				t.Errorf("druid approves the plan by itself: %t", !newBackup)
			}
		})
	}
}

// The member that formed the raft group again reported an empty disk before it put the data in place. That is no evidence of a loss.
func TestAReportBeforeTheDataIsInPlace(t *testing.T) {
	for order, rule := range map[string]string{"": "propose", "2-bb": "give-up", "3-cc": "propose"} {
		x := formedAgain(leases.RecoverBackup)
		x.member(0).Reports.ID, x.member(0).Reports.ClusterID = 0, 0
		x.report(0, leases.DiskEmpty).Order = order
		x.wants(t, rule)
		x.gone(0)
		x.wants(t, "propose")
	}
}

// empty leaves no disk with data.
func empty(x *rescue) {
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
}

// The order to go back is carried out by a member without a vote, and superseded if its volume is lost.
func TestGoBackOrderNeedsNoVote(t *testing.T) {
	x := formedAgain(leases.RecoverSurvivor)
	x.gone(0)
	x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
	x.apply(t, PrepareRecovery)
	if o := x.o.Record.Order(); o.Epoch != 3 || o.Chosen != "demo-b" || !o.Unmeasured || o.Known < 1_000_000_500 {
		t.Fatalf("order %+v", o)
	}
	x.wants(t, "await-acknowledgements")
	x.acknowledges(1)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	x.wants(t, "executing")
	x.gone(1)
	x.wants(t, "chosen-lost-refused")
	x.acknowledges(2)
	x.wants(t, "chosen-lost")
	x.apply(t, PrepareRecovery)
	if o := x.o.Record.Order(); o.Chosen != "demo-c" || o.Epoch != 4 {
		t.Errorf("order %+v", o)
	}
}

// The name of the only voter was taken out of the record. An approval gives it up once.
func TestUnlistedSoleVoterIsGivenUp(t *testing.T) {
	x := formedAgain(leases.RecoverSurvivor)
	x.d.Backup = true
	x.member(0).Listed, x.o.Record.Members = false, x.o.Record.Members[1:]
	r := x.decide()
	if r.plan == nil || !slices.Equal(r.plan.giveUp, []string{"demo-a"}) || !strings.Contains(r.plan.words(), "does not list member demo-a: approve") {
		t.Fatalf("by rule %s, the obstacle is %q, the plan %+v", r.rule, r.obstacle, r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	x.acknowledges(1)
	x.acknowledges(2)
	x.wants(t, "execute")
}

// TestGoBackNeedsApprovalAndLostVoter: going back needs an approval and a lost voter.
// No combination of what is left leads back without an approval, or while the only voter is not known to be lost. If it is lost and
// there is a source, a plan is shown.
func TestGoBackNeedsApprovalAndLostVoter(t *testing.T) {
	voter := []string{"runs", "away", "gone", "empty", "intact"}
	other := []string{"gone", "away", "empty", "before", "before, acknowledged"}
	planned := 0
	for n := range len(voter) * len(other) * len(other) * 8 {
		a, b, c := voter[n%5], other[n/5%5], other[n/25%5]
		reported, backup, approved := n/125&1 > 0, n/125&2 > 0, n/125&4 > 0
		x := formedAgain(leases.RecoverSurvivor)
		x.d.Backup = backup
		if !reported {
			x.member(0).Reports.ID, x.member(0).Reports.ClusterID = 0, 0
		}
		switch a {
		case "away":
			x.away(0)
		case "gone":
			x.gone(0)
		case "empty":
			x.report(0, leases.DiskEmpty)
		case "intact":
			x.votersDisk()
		}
		for i, state := range []string{b, c} {
			switch m := i + 1; state {
			case "gone":
				x.gone(m)
			case "away":
				x.away(m)
			case "empty":
				x.report(m, leases.DiskEmpty)
			}
		}
		words := fmt.Sprintf("voter %s, others %s and %s, reported %t, backup %t", a, b, c, reported, backup)
		r := x.decide()
		lost := a == "gone" || a == "empty"
		if r.is(recoverPrepare | recoverExecute | recoverRelease) {
			t.Errorf("%s: druid acts by itself, by rule %s", words, r.rule)
		}
		if !lost && r.plan != nil && len(r.plan.giveUp) == 0 && r.plan.source.lost != "" {
			t.Errorf("%s: the plan goes back, and the voter is not lost", words)
		}
		restorer := a == "empty" || strings.HasPrefix(b, "before") || b == "empty" || strings.HasPrefix(c, "before") || c == "empty"
		source := strings.HasPrefix(b, "before") || strings.HasPrefix(c, "before") || backup && restorer
		if lost && source != r.is(recoverPropose) {
			t.Errorf("%s: a plan is proposed: %t, by rule %s, the obstacle is %q", words, !source, r.rule, r.obstacle)
		}
		if !approved || r.plan == nil || !r.is(recoverPropose) || !lost {
			continue
		}
		x.d.Recovery.Approved = r.plan.hash
		x.apply(t, PrepareRecovery)
		planned++
		x.member(0).Claim, x.member(0).Pod, x.member(0).NodeLost = ClaimPresent, PodLive, false
		x.votersDisk() // the voter is back, with its data
		if r = x.decide(); !r.is(recoverRelease) {
			t.Errorf("%s: the voter is back, and rule %s applies", words, r.rule)
		}
	}
	if planned < 20 {
		t.Errorf("only %d combinations are ordered", planned)
	}
}
