package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestBackupReadyOnlyIfKnown: BackupReady promises nothing that is not known.
func TestBackupReadyOnlyIfKnown(t *testing.T) {
	checkTable(t, backupRows, "backup", "The condition BackupReady: druid/policy.backupRows", func(f backupFacts, d rules.Decision[conditionVerdict]) string {
		status, reason := d.Verdict.parts()
		if f.paused == rules.Yes {
			if status != metav1.ConditionUnknown || reason != v1alpha1.ReasonPaused {
				return "reports backups although no member runs"
			}
			return ""
		}
		claimed := map[string]storeClaim{v1alpha1.ReasonBackupClaimMissing: storeClaimMissing, v1alpha1.ReasonBackupClaimNotShared: storeClaimNotShared}[reason]
		known := f.full == leases.Live || f.reported == BackupReportedGood || f.reported == BackupReportedDeltaFailed && f.full == leases.Unknown
		switch {
		case claimed != 0 && (f.claim != claimed || (f.full|f.delta)&leases.Stale != 0):
			return "blames the claim for what it is not"
		case status == metav1.ConditionTrue && f.claim != storeClaimGood:
			return "calls a backup good that some members cannot write"
		case status == metav1.ConditionTrue && (f.full|f.delta)&leases.Stale != 0:
			return "calls a backup good that stopped"
		case status == metav1.ConditionTrue && (f.full == leases.Never || !known):
			return "calls a backup good that was not reported"
		case reason == v1alpha1.ReasonDeltaBackupSucceeded && f.delta == leases.Never:
			return "calls changes saved that were not saved"
		case status == metav1.ConditionTrue && f.superseded == rules.Yes:
			return "calls a backup good that a restore of the latest would not take"
		case status == metav1.ConditionTrue && f.valid == rules.No:
			return "hides that the spec is not obeyed"
		case status != metav1.ConditionFalse && (f.full|f.delta)&leases.Stale != 0:
			return "hides a backup that stopped"
		case status == metav1.ConditionFalse && f.full == leases.Live && f.delta == leases.Live && f.claim == storeClaimGood && f.valid == rules.Yes &&
			f.superseded == rules.No:
			return "condemns a backup that goes on"
		case status == metav1.ConditionFalse && (f.full|f.delta)&leases.Stale == 0 && f.fullFailed == rules.No && f.deltaFailed == rules.No &&
			f.attached == rules.Yes && f.claim == storeClaimGood && f.valid == rules.Yes && f.superseded == rules.No &&
			f.reported&(BackupReportedGood|BackupReportedElse) != 0:
			return "condemns what is merely not known"
		}
		return ""
	})
}

// saved is a cluster of which a full backup and all changes are saved.
func saved(o *Observed) {
	o.Full = Snapshot{Lease: LeaseOurs, Reports: leases.Backup{Revision: 7}, Liveness: leases.Live}
	o.Delta = Snapshot{Lease: LeaseOurs, Reports: leases.Backup{Revision: 9}, Liveness: leases.Live}
}

// unsaved is one whose deltas stopped.
func unsaved(o *Observed) {
	saved(o)
	o.Delta.Liveness, o.Delta.Reports.Error = leases.Stale, "bucket backups: access denied"
}

func TestBackupSteps(t *testing.T) {
	on, off := Desired{Replicas: 3, Backup: true}, Desired{Replicas: 3}
	goingOn := Desired{Replicas: 3, Backup: true, WhenFailing: WhenFailingContinue}
	absent := func(o *Observed) {
		o.Full, o.Delta = Snapshot{Lease: LeaseAbsent, Liveness: leases.Unknown}, Snapshot{Lease: LeaseAbsent, Liveness: leases.Unknown}
	}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
	}{
		"a backup is asked for": {on, []func(*Observed){absent}, []string{
			"CreateSnapshotLease snapshot-lease-missing full-snapshot", "CreateSnapshotLease snapshot-lease-missing delta-snapshot",
		}},
		"it goes on":        {on, []func(*Observed){saved}, []string{}},
		"none is asked for": {off, []func(*Observed){absent}, []string{}},
		"none any more": {off, []func(*Observed){saved},
			[]string{"DeleteSnapshotLease backup-ended full-snapshot", "DeleteSnapshotLease backup-ended delta-snapshot"}},
		"not someone else's": {off, []func(*Observed){saved, func(o *Observed) { o.Full.Lease = LeaseForeign }}, []string{
			"DeleteSnapshotLease backup-ended delta-snapshot",
		}},
		"one that fails allows no eviction":                   {on, []func(*Observed){unsaved}, []string{"ApplyBudget budget-raised  3"}},
		"one that fails allows evictions if the spec says so": {goingOn, []func(*Observed){unsaved}, []string{}},
		"one that is well again does": {on, []func(*Observed){saved, func(o *Observed) { o.BudgetMin = 3 }},
			[]string{"ApplyBudget budget-lowered  2"}},
		"what is not known blocks nothing": {on, []func(*Observed){saved, func(o *Observed) {
			o.Full.Liveness, o.Delta.Liveness = leases.Unknown, leases.Unknown
		}}, []string{}},
		"a store that the Pods do not reach yet blocks nothing: an eviction would repair it": {on, []func(*Observed){saved, func(o *Observed) {
			o.Full.Liveness, o.Full.Reports, o.Unattached = leases.Never, leases.Backup{Error: "no credentials"}, []string{"c-a"}
		}}, []string{}},
		"one of a cluster that is not backed up any more blocks nothing": {off, []func(*Observed){unsaved}, []string{
			"DeleteSnapshotLease backup-ended full-snapshot", "DeleteSnapshotLease backup-ended delta-snapshot",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSteps(t, test.want, short(Steps(Evaluate(test.desired, whole(test.change...)))))
		})
	}
}

// onNodes binds the Pods of the members to nodes.
func onNodes(nodes ...string) func(*Observed) {
	return func(o *Observed) {
		for i, node := range nodes {
			o.Members[i].On = node
		}
	}
}

func TestClaimOfTheStoreIsForAllMembers(t *testing.T) {
	of := func(modes ...string) func(*Observed) {
		return func(o *Observed) { o.StoreClaim = StoreClaim{Name: "archive", Modes: modes} }
	}
	waits := func(o *Observed) { o.Members[2].Pod = PodUnstarted }
	three, one := Desired{Replicas: 3, Backup: true}, Desired{Replicas: 1, Backup: true}
	alone := func(o *Observed) { o.Members, o.Record.Members = o.Members[:1], o.Record.Members[:1] }
	apart := onNodes("n1", "n2", "n3")
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    storeClaim
	}{
		"a bucket":            {three, []func(*Observed){apart, waits}, storeClaimGood},
		"no backups any more": {Desired{Replicas: 3}, []func(*Observed){of("ReadOnlyMany")}, storeClaimGood},
		"it does not exist": {three,
			[]func(*Observed){func(o *Observed) { o.StoreClaim = StoreClaim{Name: "archive", Missing: true} }}, storeClaimMissing},
		"it is being deleted": {three, []func(*Observed){of("ReadWriteMany"), func(o *Observed) { o.StoreClaim.Missing = true }},
			storeClaimMissing},
		"for many nodes":                          {three, []func(*Observed){of("ReadWriteMany"), apart, waits}, storeClaimGood},
		"for one node, or for many to read":       {three, []func(*Observed){of("ReadWriteOnce", "ReadOnlyMany"), apart, waits}, storeClaimNotShared},
		"for one node, and the Pods are on three": {three, []func(*Observed){of("ReadWriteOnce"), apart, waits}, storeClaimNotShared},
		"for one node, and all Pods run with it":  {three, []func(*Observed){of("ReadWriteOnce"), apart}, storeClaimGood},
		"for one node, and a Pod does not have it": {three,
			[]func(*Observed){of("ReadWriteOnce"), apart, func(o *Observed) { o.Unattached = []string{"c-b"} }}, storeClaimNotShared},
		"for one node, on which all Pods are":     {three, []func(*Observed){of("ReadWriteOnce"), onNodes("n1", "n1", "n1"), waits}, storeClaimGood},
		"for one node, and no node is chosen yet": {three, []func(*Observed){of("ReadWriteOnce"), onNodes("n1", "", ""), waits}, storeClaimGood},
		"for one node, for one member":            {one, []func(*Observed){alone, of("ReadWriteOnce")}, storeClaimGood},
		"for one Pod, for one member":             {one, []func(*Observed){alone, of("ReadWriteOncePod")}, storeClaimGood},
		"for one Pod, for three members":          {three, []func(*Observed){of("ReadWriteOncePod"), onNodes("n1", "n1", "n1")}, storeClaimNotShared},
		"for one Pod, and more members are due":   {three, []func(*Observed){alone, of("ReadWriteOncePod")}, storeClaimNotShared},
		"read-only":                               {one, []func(*Observed){alone, of("ReadOnlyMany")}, storeClaimNotShared},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := storeClaimOf(test.desired, whole(test.change...)); got != test.want {
				t.Errorf("the claim is %s, want %s", got, test.want)
			}
		})
	}
}

func TestWhatTheStatusReportedIsReadBack(t *testing.T) {
	for reported, c := range map[BackupReported]metav1.Condition{
		BackupReportedGood:        {Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFullBackupSucceeded},
		BackupReportedFullFailed:  {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFullBackupFailed},
		BackupReportedDeltaFailed: {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeltaBackupFailed},
		BackupReportedElse:        {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBackupSpecInvalid},
	} {
		c.Type = v1alpha1.ConditionBackupReady
		if got := BackupReportedBy([]metav1.Condition{c}); got != reported {
			t.Errorf("%s %s: got %d, want %d", c.Status, c.Reason, got, reported)
		}
	}
	if got := BackupReportedBy(nil); got != BackupReportedElse {
		t.Errorf("no condition: got %d", got)
	}
}

// TestFailingBackupKeepsMembers: a failing backup keeps members and reports so.
func TestFailingBackupKeepsMembers(t *testing.T) {
	for _, whenFailing := range []WhenFailing{0, WhenFailingBlock, WhenFailingContinue} {
		o := whole(aged, unsaved)
		status := Status(Evaluate(Desired{Replicas: 1, Backup: true, WhenFailing: whenFailing}, o), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
		got := condition(status, v1alpha1.ConditionProgressing)
		want := "3 members, 1 requested: member c-c cannot be removed, because backups fail (see condition BackupReady)."
		if got.Reason != v1alpha1.ReasonScaleDownBlocked || got.Message != want {
			t.Errorf("%s: got %s %q, want %q", whenFailing, got.Reason, got.Message, want)
		}
	}
}

// TestFailingBackupStopsCopyDeletion: failing backups hold back what deletes a copy.
func TestFailingBackupStopsCopyDeletion(t *testing.T) {
	checkTable(t, backupHolds, "backup-holds", "What waits while backups fail: druid/policy.backupHolds",
		func(f backupHoldFacts, d rules.Decision[backupHold]) string {
			waits := d.Verdict == holdWaits
			switch {
			case waits && f.failing == rules.No:
				return "waits for a backup that does not fail"
			case !waits && f.failing == rules.Yes && f.action == actionRemove:
				return "deletes a copy of the data while backups fail"
			case !waits && f.failing == rules.Yes && f.whenFailing == WhenFailingBlock:
				return "goes on although the spec says Block"
			case waits && f.action != actionRemove && f.whenFailing == WhenFailingContinue:
				return "waits although the spec says Continue"
			}
			return ""
		})
}

// TestBackupVerifiedOnlyIfVerified: BackupVerified calls nothing good that was not verified.
func TestBackupVerifiedOnlyIfVerified(t *testing.T) {
	checkTable(t, verifiedRows, "backup-verified", "Condition BackupVerified: druid/policy.verifiedRows",
		func(f verifiedFacts, d rules.Decision[conditionVerdict]) string {
			status, reason := d.Verdict.parts()
			switch {
			case f.paused == rules.Yes:
				if status == metav1.ConditionUnknown && reason != v1alpha1.ReasonPaused {
					return "is for a reason by which an alert is raised, although the cluster is paused"
				}
			case status == metav1.ConditionTrue && (f.reported != VerificationVerified || f.present != rules.Yes):
				return "calls backups good that were not verified"
			case status == metav1.ConditionFalse && (f.reported != VerificationBroken || f.present != rules.Yes):
				return "calls backups broken that no verification found broken"
			case (f.reported == VerificationVerified || f.reported == VerificationBroken) && f.present == rules.Yes && status == metav1.ConditionUnknown:
				return "hides what was found"
			case (status == metav1.ConditionUnknown) != (reason == v1alpha1.ReasonNotYetVerified):
				return "has another reason than its status"
			}
			return ""
		})
}
