package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// restored is a cluster that serves, with backups.
func restored() *rescue {
	x := newRescue(3)
	x.d.Backup, x.d.Version, x.o.QuorumOverdue = true, "3.6.5", false
	x.o.Full.Reports = leases.Backup{Revision: 90, Lineage: "00000001-aa"}
	for i := range 3 {
		x.serves(i)
		x.member(i).Reports.Version = "3.6.5"
	}
	x.d.Recovery.Restore = &leases.RestoreTarget{Revision: 40}
	return x
}

// serves makes member i serve clients.
func (x *rescue) serves(i int) {
	m := x.member(i)
	m.Liveness, m.EtcdReady, m.Serving, m.Reports.Disk = leases.Live, true, true, nil
}

// stops makes the agent of member i stop etcd for the order.
func (x *rescue) stops(i int) {
	x.report(i, leases.DiskIntact)
	x.member(i).Liveness, x.member(i).EtcdReady, x.member(i).Serving = leases.Stale, false, false
}

// planned answers the request for a plan.
func (x *rescue) planned(t *testing.T) {
	t.Helper()
	x.rule(t, "ask")
	step := x.step(t, RequestRestorePlan)
	x.draws++
	step.Restore.Nonce = fmt.Sprintf("n%d", x.draws)
	x.o.Record.Restore = leases.Restore{Request: *step.Restore}
	x.rule(t, "await-plan")
	x.o.Record.Restore.Plan = leases.RestorePlan{Nonce: step.Restore.Nonce, Lineage: "00000001-aa", Full: "full", Deltas: 2, Revision: 40}
}

// cutOff takes member i out of the client Service, as druid does for the request in the record.
func (x *rescue) cutOff(i int) {
	x.member(i).Serving, x.member(i).CutFor = false, x.o.Record.Restore.Request.Nonce
}

// step returns the only step of that kind.
func (x *rescue) step(t *testing.T, kind Kind) Step {
	t.Helper()
	steps := Steps(Evaluate(x.d, x.o))
	i := slices.IndexFunc(steps, func(s Step) bool { return s.Kind == kind })
	if i < 0 {
		t.Fatalf("no step %s by rule %s: %+v", kind, restoreOf(x.d, x.o, x.o.listed()).rule, steps)
	}
	return steps[i]
}

func (x *rescue) rule(t *testing.T, rule string) restore {
	t.Helper()
	r := restoreOf(x.d, x.o, x.o.listed())
	if r.rule != rule {
		t.Fatalf("rule %s, want %s: facts %+v, obstacle %q", r.rule, rule, r.facts, r.obstacle)
	}
	return r
}

// write takes the step that writes the order to the record.
func (x *rescue) write(t *testing.T, kind Kind) {
	t.Helper()
	step := x.step(t, kind)
	record, ok := step.ChangeRecovery(x.o.Record, "0123")
	if !ok {
		t.Fatalf("%+v does not apply to %+v", step, x.o.Record)
	}
	x.o.Record = record
	x.o.RecordState = map[leases.Phase]RecordState{leases.PhaseFormed: RecordFormed, leases.PhaseRecovering: RecordRecovering}[record.Phase]
}

// saved brings an approved restore to the final backup.
func (x *rescue) saved(t *testing.T) {
	t.Helper()
	x.planned(t)
	x.d.Recovery.Approved = x.rule(t, "propose").hash
	x.rule(t, "cut-off")
	for i := range x.o.Members {
		x.cutOff(i)
	}
	x.rule(t, "save")
	x.o.RestoreSave = Save{State: SaveDone, Name: "demo-before-restore-2"}
}

func (x *rescue) status(before *v1alpha1.RecoveryStatus) *v1alpha1.RecoveryStatus {
	return recoveryStatus(Evaluate(x.d, x.o), before, metav1.NewTime(rescueStart))
}

// formed is the record after an agent restored the backup.
func (x *rescue) formed(t *testing.T) {
	t.Helper()
	order := x.o.Record.Order()
	a := leases.RecoveryAttempt{Order: order.Name(), Nonce: "ff", PodUID: "pod-demo-a", ClusterID: "8"}
	claimed, err := x.o.Record.Claimed(a)
	if err != nil {
		t.Fatal(err)
	}
	record, err := claimed.Reformed(a, leases.Recovered{Epoch: order.Epoch, Mode: order.Mode, Member: order.Chosen, Revision: 1000},
		leases.Fork{Parent: "00000001-aa", Revision: 40})
	if err != nil {
		t.Fatal(err)
	}
	record.Restore = x.o.Record.Restore
	x.o.Record, x.o.RecordState = record, RecordFormed
	for i := range x.o.Members {
		x.serves(i)
		m := x.member(i)
		m.Reports.ClusterID, m.Reports.Epoch = 8, order.Epoch
	}
}

// plansAgain checks that the request for the next plan says why the approval does not count any more, and that the next plan needs another.
func (x *rescue) plansAgain(t *testing.T, approved, why string) {
	t.Helper()
	step := x.step(t, RequestRestorePlan)
	step.Restore.Nonce = "again"
	x.o.Record.Restore, x.o.RestoreSave = leases.Restore{Request: *step.Restore}, Save{}
	if s := x.status(nil); s.Phase != v1alpha1.RecoveryPlanning || !strings.Contains(s.Message, why) {
		t.Errorf("status %+v, want it to say %q", s, why)
	}
	x.o.Record.Restore.Plan = leases.RestorePlan{Nonce: "again", Lineage: "00000001-aa", Full: "full", Deltas: 2, Revision: 40}
	if r := x.rule(t, "propose"); r.hash == approved {
		t.Error("the new plan has the approved hash")
	}
	s := x.status(nil)
	if s.Phase != v1alpha1.RecoveryProposed || !strings.Contains(s.Message, why) || !strings.Contains(s.Message, "status.recovery.approve") ||
		!strings.Contains(s.Approve, s.Plan.Hash) {
		t.Errorf("status %+v, want it to say %q, and how to approve the plan", s, why)
	}
}
