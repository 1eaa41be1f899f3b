package policy

import (
	"strings"
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestRestorePreconditions: a restore needs a plan, an approval and a backup.
func TestRestorePreconditions(t *testing.T) {
	const cuts = restoreCutOff | restoreSave | restorePrepare
	checkTable(t, restoreRows, "restore", "A restore in place: druid/policy.restoreRows", func(f restoreFacts, d rules.Decision[restoreVerdict]) string {
		v := d.Verdict
		ordered := f.order&restoreOrdered != 0
		switch {
		case v != restoreNothing && (f.applies == rules.No || f.corrects == rules.Yes || f.order == restoreOrderOther):
			return "acts on a cluster that is not druid's to restore, or that recovers from a lost quorum"
		case v&(cuts|restoreExecute) != 0 && f.wanted == rules.No:
			return "restores what is not requested"
		case v&cuts != 0 && (f.plan != planMade || f.approved == rules.No || f.quorum != rules.Yes || f.obstacle == rules.Yes || f.done == rules.Yes):
			return "cuts clients off without an approved plan, or without a quorum"
		case v == restorePrepare && (f.saved != SaveDone || f.clients != clientsNone):
			return "stops etcd without the final backup"
		case v == restoreSave && f.clients != clientsNone:
			return "makes the final backup while clients write"
		case f.clients&clientsMarked != 0 && v&(restoreWait|restoreRefuse|restorePropose) != 0 && !ordered && (f.plan == planMade || f.approved == rules.No):
			return "keeps clients cut off for a plan that is not carried out"
		case v == restoreExecute && (f.order != restoreOrderPrepare || f.acks != acksEnough || f.chosen == rules.No || f.overdue == rules.Yes):
			return "executes without fences, or too late"
		case f.order == restoreOrderExecute && f.failed == rules.Yes && v != restoreRelease && f.applies == rules.Yes && f.corrects == rules.No:
			return "keeps clients cut off for a restore that fails"
		case v == restoreRelease && !ordered:
			return "releases what does not stand"
		case ordered && (f.wanted == rules.No || f.overdue == rules.Yes) && v != restoreRelease && f.applies == rules.Yes && f.corrects == rules.No:
			return "keeps clients cut off for a restore that ended"
		case v&cuts != 0 && ordered:
			return "begins again what stands"
		}
		return ""
	})
}

// A restore is planned, approved, saved and ordered. It is carried out once, also if the request stays, and again after it was removed.
func TestARestoreIsCarriedOutOnce(t *testing.T) {
	x := restored()
	x.planned(t)
	r := x.rule(t, "propose")
	s := x.status(nil)
	if s.Phase != v1alpha1.RecoveryProposed || !strings.HasSuffix(s.Approve, "recover="+r.hash) || s.Plan == nil ||
		s.Plan.Backup != "00000001-aa@40" || *s.Plan.LostRevisions != 60 {
		t.Fatalf("status %+v, plan %+v", s, s.Plan)
	}
	x.d.Recovery.Approved = "0123456789ab"
	x.rule(t, "propose")
	x.d.Recovery.Approved = r.hash
	x.rule(t, "cut-off")
	x.member(0).Voter, x.member(1).Voter, x.member(2).Voter = true, true, true
	for i := range x.o.Members {
		step := x.step(t, LabelPod)
		if step.Member != x.member(i).Name || step.Serving == nil || *step.Serving || step.Mark == nil || *step.Mark != "n1" || !step.MustConfirm() ||
			!step.Guarded() {
			t.Fatalf("step %+v, want one that cuts clients off", step)
		}
		if s := x.status(nil); s.Phase != v1alpha1.RecoverySaving {
			t.Errorf("status %+v", s)
		}
		x.cutOff(i)
	}
	x.o.RestoreSave = Save{State: SaveAbsent, Name: "demo-before-restore-2"}
	if step := x.step(t, CreateSnapshot); step.Object != "demo-before-restore-2" || !step.Final {
		t.Fatalf("step %+v", step)
	}
	x.o.RestoreSave.State = SaveComing
	x.rule(t, "await-save")
	x.o.RestoreSave.State = SaveDone
	x.write(t, PrepareRecovery)
	order := x.o.Record.Order()
	if !order.Restores() || order.Target.Revision != 40 || order.Lineage != "00000001-aa" || order.Plan != r.hash || order.Epoch != 2 {
		t.Fatalf("order %+v", order)
	}
	x.stops(0)
	x.stops(1)
	x.rule(t, "await-acknowledgements") // the third one still runs its etcd
	x.stops(2)
	x.member(1).Reports.Disk.Free, x.member(0).Reports.Disk.Free = 9, 3
	if rule := x.decide().rule; rule != "restore-ordered" {
		t.Errorf("the recovery of a lost quorum decides by rule %s", rule)
	}
	x.write(t, ExecuteRecovery)
	if order = x.o.Record.Order(); order.Stage != leases.StageExecute || order.Report != x.member(0).Reports.Disk.Digest() || order.Known < 100 {
		t.Fatalf("order %+v", order)
	}
	x.rule(t, "executing")
	if s = x.status(s); s.Phase != v1alpha1.RecoveryExecuting || s.Plan.Member != "demo-a" {
		t.Errorf("status %+v", s)
	}
	x.formed(t)
	x.rule(t, "restored")
	s = x.status(s)
	if s.Phase != v1alpha1.RecoveryRecovered || s.Last.Source != v1alpha1.RecoveryFromRestore || s.Last.Replaced != "00000001-aa" ||
		!strings.Contains(s.Message, "undo it") {
		t.Errorf("status %+v, last %+v", s, s.Last)
	}
	x.d.Recovery.LastEpoch, x.d.Recovery.LastRequest = 2, s.Last.Request
	x.rule(t, "restored")
	// The request is removed, and made again: it needs another plan and another approval.
	target := x.d.Recovery.Restore
	x.d.Recovery.Restore = nil
	if step := x.step(t, ForgetRestorePlan); step.Restore.Nonce != "" {
		t.Errorf("step %+v", step)
	}
	if s = x.status(s); s.Last.Request != "" {
		t.Errorf("the status still names the request: %+v", s.Last)
	}
	x.o.Record.Restore, x.o.RestoreSave, x.d.Recovery.LastRequest = leases.Restore{}, Save{}, ""
	x.d.Recovery.Restore = target
	x.planned(t)
	x.rule(t, "propose")
}

// TestEarlyEndedRestoreChangesNothing: a restore that ends early leaves the cluster as it was.
func TestEarlyEndedRestoreChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		executes bool
		change   func(*rescue)
		rule     string
	}{
		"the request is removed":                    {false, func(x *rescue) { x.d.Recovery.Restore = nil }, "withdrawn"},
		"another state is requested":                {false, func(x *rescue) { x.d.Recovery.Restore = &leases.RestoreTarget{Revision: 41} }, "withdrawn"},
		"the request is removed while it is read":   {true, func(x *rescue) { x.d.Recovery.Restore = nil }, "withdrawn"},
		"the order is older than the limit":         {false, func(x *rescue) { x.o.RestoreOverdue = true }, "too-late"},
		"the restore takes longer than the limit":   {true, func(x *rescue) { x.o.RestoreOverdue = true }, "too-late"},
		"the disk of the selected member changes":   {true, func(x *rescue) { x.member(0).Reports.Disk.Last++ }, "no-restorer"},
		"the selected member cannot restore":        {true, func(x *rescue) { x.member(0).Reports.Disk.Failed = leases.FailedBackups }, "cannot-restore"},
		"it reports a failure that is not known":    {true, func(x *rescue) { x.member(0).Reports.Disk.Failed = "later" }, "cannot-restore"},
		"the volume of the selected member is gone": {true, func(x *rescue) { x.member(0).Claim, x.member(0).Pod = ClaimAbsent, PodAbsent }, "no-restorer"},
	} {
		t.Run(name, func(t *testing.T) {
			x := restored()
			x.saved(t)
			x.write(t, PrepareRecovery)
			for i := range 3 {
				x.stops(i)
			}
			if test.executes {
				x.write(t, ExecuteRecovery)
			}
			test.change(x)
			x.rule(t, test.rule)
			hash := x.d.Recovery.Approved
			x.write(t, ReleaseRecovery)
			if x.o.Record.Phase != leases.PhaseFormed || x.o.Record.ClusterID != 7 || x.o.Record.Released != 2 {
				t.Errorf("record %+v", x.o.Record)
			}
			x.o.RestoreOverdue = false
			for i := range 3 {
				x.serves(i)
			}
			if r := restoreOf(x.d, x.o, x.o.listed()); r.cutsOff() || r.hash == hash {
				t.Errorf("the same approval begins the restore again, by rule %s", r.rule)
			}
		})
	}
}

// Before the order, clients come back by themselves when the restore cannot begin. If they were cut off, the record ends the request first.
func TestUnstartableRestoreKeepsClients(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(*rescue)
		ends, rule string // with clients cut off, and with clients served
		message    string
	}{
		"no backups": {func(x *rescue) { x.d.Backup = false }, "refused-cut-off", "refused", "spec.backup is not set"},
		"members of another system": {func(x *rescue) { x.o.Record.Externals, x.o.Record.MemberList = []string{"1"}, nil }, "refused-cut-off",
			"refused", "external members"},
		"the store has no such state": {func(x *rescue) {
			x.o.Record.Restore.Plan = leases.RestorePlan{Nonce: x.o.Record.Restore.Request.Nonce, Error: "the backups begin at revision 50"}
		}, "cut-off-ended", "plan-failed", "begin at revision 50"},
		"another approval":              {func(x *rescue) { x.d.Recovery.Approved = "another" }, "cut-off-ended", "propose", "needs your approval"},
		"an older agent":                {func(x *rescue) { x.member(2).Agent = AgentOutdated }, "busy-cut-off", "busy", "agent of member demo-c"},
		"an agent that does not report": {func(x *rescue) { x.member(2).Liveness = leases.Stale }, "busy-cut-off", "busy", "demo-c does not report"},
		"an upgrade":                    {func(x *rescue) { x.member(2).Reports.Version = "3.5.21" }, "busy-cut-off", "busy", "demo-c runs etcd 3.5.21"},
	} {
		t.Run(name, func(t *testing.T) {
			x := restored()
			x.saved(t)
			test.change(x)
			x.rule(t, test.ends)
			if step := x.step(t, ForgetRestorePlan); step.Restore.Nonce != "" {
				t.Errorf("step %+v", step)
			}
			for _, s := range Steps(Evaluate(x.d, x.o)) {
				if s.Serving != nil && *s.Serving {
					t.Errorf("%s serves clients before the record ends the request", s.Member)
				}
			}
			for i := range 3 {
				x.member(i).CutFor = ""
			}
			x.o.RestoreSave = Save{}
			x.rule(t, test.rule)
			if s := x.status(nil); !strings.Contains(s.Message, test.message) {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// A final backup that fails ends the plan. The next one says why, and needs another approval.
func TestAFailedFinalBackupEndsThePlan(t *testing.T) {
	x := restored()
	x.saved(t)
	hash := x.d.Recovery.Approved
	x.o.RestoreSave = Save{State: SaveFailed, Name: "s", Message: "the store is full"}
	x.rule(t, "save-failed")
	step := x.step(t, RequestRestorePlan)
	step.Restore.Nonce = "again"
	x.o.Record.Restore, x.o.RestoreSave = leases.Restore{Request: *step.Restore}, Save{}
	if s := x.status(nil); s.Phase != v1alpha1.RecoveryPlanning || !strings.Contains(s.Message, "the store is full. Correct the cause. The leader") {
		t.Errorf("status %+v", s)
	}
	x.o.Record.Restore.Plan = leases.RestorePlan{Nonce: "again", Lineage: "00000001-aa", Full: "full", Deltas: 2, Revision: 40}
	if r := x.rule(t, "propose"); r.hash == hash {
		t.Error("the new plan has the approved hash")
	}
	if s := x.status(nil); !strings.Contains(s.Message, "the store is full") {
		t.Errorf("status %+v", s)
	}
	// Clients are served again, and the mark goes.
	x.member(0).Serving, x.member(0).EtcdReady = false, true
	step = x.step(t, LabelPod)
	if step.Serving == nil || !*step.Serving || step.Mark == nil || *step.Mark != "" || !step.MustConfirm() {
		t.Errorf("step %+v", step)
	}
}

// TestOnlyRequestMarkCutsClientsOff: only the mark of the request cuts clients off.
// A Pod with another mark, or without one, is not cut off: another druid could have sent clients to it.
func TestOnlyRequestMarkCutsClientsOff(t *testing.T) {
	for _, mark := range []string{"", "n0"} {
		x := restored()
		x.saved(t)
		x.rule(t, "prepare")
		x.member(1).CutFor = mark
		x.rule(t, "interrupted")
		x.o.RestoreSave = Save{}
		x.rule(t, "cut-off")
		x.member(0).Voter = true
		if step := x.step(t, LabelPod); step.Member != "demo-b" || step.Mark == nil || *step.Mark != "n1" || step.Object != "n1" {
			t.Errorf("step %+v", step)
		}
	}
}

// The order is not written to a record whose request is another one than that for which clients were cut off.
func TestAnOrderNeedsTheRequestOfItsCutOff(t *testing.T) {
	x := restored()
	x.saved(t)
	step := x.step(t, PrepareRecovery)
	record := x.o.Record
	record.Restore.Request.Nonce = "another"
	if changed, ok := step.ChangeRecovery(record, "0123"); ok {
		t.Errorf("the record becomes %+v", changed)
	}
}

// A final backup before which clients were cut off, and after which they were served again, is not the last state.
func TestAnOldFinalBackupBeginsNoRestore(t *testing.T) {
	x := restored()
	x.saved(t)
	x.rule(t, "prepare")
	hash := x.d.Recovery.Approved
	x.member(1).Serving = true
	x.rule(t, "interrupted")
	x.plansAgain(t, hash, "the Pod of demo-b ended, was replaced or served clients")
}

// TestOnlyMemberEvictionEndsApproval: an eviction of the only member says why it ends the approval.
// The only Pod is evicted during the final backup. No Pod has the mark any more, so it is unknown whether clients were served since.
func TestOnlyMemberEvictionEndsApproval(t *testing.T) {
	x := restored()
	x.d.Replicas, x.o.Record.Members, x.o.Members = 1, x.o.Record.Members[:1], x.o.Members[:1]
	x.saved(t)
	x.o.RestoreSave = Save{State: SaveComing, Name: "s"}
	x.rule(t, "await-save")
	hash := x.d.Recovery.Approved
	m := x.member(0)
	m.Pod, m.PodUID, m.CutFor, m.EtcdReady = PodAbsent, "", "", false
	x.rule(t, "interrupted")
	step := x.step(t, RequestRestorePlan)
	if !strings.Contains(step.Restore.Failed, "the Pod of demo-a ended") {
		t.Errorf("the request says %q", step.Restore.Failed)
	}
	m.Pod, m.PodUID, m.EtcdReady, m.Serving = PodLive, "next", true, true
	x.plansAgain(t, hash, "the Pod of demo-a ended, was replaced or served clients after EtcdSnapshot s")
}

// TestRepeatedRequestNeedsNewApproval: a request that is made again needs another approval.
// A restore that is requested again after it was removed is another request.
func TestRepeatedRequestNeedsNewApproval(t *testing.T) {
	x := restored()
	x.planned(t)
	hash := x.rule(t, "propose").hash
	x.d.Recovery.Approved = hash
	target := x.d.Recovery.Restore
	x.d.Recovery.Restore = nil
	x.rule(t, "request-ends")
	x.o.Record.Restore = leases.Restore{}
	x.d.Recovery.Restore = target
	x.planned(t)
	if r := x.rule(t, "propose"); r.hash == hash {
		t.Error("the same approval begins the restore")
	}
	// The plan is about the raft group and the store for which it was made.
	x.o.Record.Restore.Request.ClusterID = "9"
	x.rule(t, "ask")
	x.o.Record.Restore.Request.ClusterID = "7"
	x.d.Recovery.Store = "another"
	x.rule(t, "ask")
}

// A cluster that is to be paused does not stay stopped by an order.
func TestAPauseEndsARestore(t *testing.T) {
	x := restored()
	x.saved(t)
	x.write(t, PrepareRecovery)
	x.stops(0)
	x.d.Replicas = 0
	x.rule(t, "withdrawn")
	x.write(t, ReleaseRecovery)
}

// The member that the order names first may be lost before it acknowledged: any other member can restore the backup.
func TestAnyMemberRestoresTheBackup(t *testing.T) {
	x := restored()
	x.saved(t)
	x.write(t, PrepareRecovery)
	first := x.o.Record.Order().Chosen
	for i := range 3 {
		if x.member(i).Name == first {
			x.member(i).Liveness, x.member(i).EtcdReady = leases.Stale, false
			x.away(i)
			continue
		}
		x.stops(i)
	}
	x.write(t, ExecuteRecovery)
	if chosen := x.o.Record.Order().Chosen; chosen == first {
		t.Fatalf("%s is away and is to restore", chosen)
	}
	for i := range 3 {
		if x.member(i).Name == x.o.Record.Order().Chosen {
			x.away(i)
		}
	}
	x.rule(t, "no-restorer")
}

// TestLostQuorumEndsUnstartedRestore: a lost quorum ends a restore that did not begin.
func TestLostQuorumEndsUnstartedRestore(t *testing.T) {
	x := restored()
	x.saved(t)
	x.stops(0)
	x.stops(1)
	x.stops(2)
	x.rule(t, "no-quorum")
	if s := x.status(nil); s.Phase != v1alpha1.RecoveryWaiting {
		t.Errorf("status %+v", s)
	}
}
