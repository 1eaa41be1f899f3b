package plan

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// BackupReported is what the status said of the backups before: an observer that just started goes on saying it.
type BackupReported uint8

// What the status may have said.
const (
	BackupReportedGood        BackupReported = 1 << iota // condition BackupReady was True
	BackupReportedFullFailed                             // it was False because of the full backups
	BackupReportedDeltaFailed                            // it was False because of the deltas
	BackupReportedElse                                   // something else, or nothing
)

func (b BackupReported) String() string {
	return rules.Word(b, "good", "full failed", "deltas failed", "else")
}

// BackupReportedBy reads it from the conditions.
func BackupReportedBy(conditions []metav1.Condition) BackupReported {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionBackupReady)
	switch {
	case c == nil:
		return BackupReportedElse
	case c.Status == metav1.ConditionTrue:
		return BackupReportedGood
	case c.Reason == v1alpha1.ReasonFullBackupFailed:
		return BackupReportedFullFailed
	case c.Reason == v1alpha1.ReasonIncrementalBackupFailed:
		return BackupReportedDeltaFailed
	default:
		return BackupReportedElse
	}
}

// PauseReportedBy reads from the conditions that the cluster is paused, or was and no quorum served since.
func PauseReportedBy(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return c != nil && (c.Reason == v1alpha1.ReasonPaused || c.Reason == v1alpha1.ReasonResuming)
}

// Snapshot is one of the two snapshot Leases.
type Snapshot struct {
	Lease LeaseState
	// Says is empty where the Lease cannot be read.
	Says leases.Backup
	// Verified is what a full backups' Lease says of proofs. Unreadable: it cannot be read.
	Verified   leases.Verification
	Unreadable bool
	// Liveness is Stale too of a Lease that no one renewed yet for as long as the first backup may take.
	Liveness leases.Liveness
}

// backupRows decide condition BackupReady. full and delta are the liveness of the two Leases: unchanged for longer than the
// schedule, or two periods, allow is stale. One that fails blocks maintenance that could lose the last good copy: evictions,
// and the removal of members. It never takes anything from clients.
var backupRows = rules.New(conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}, []rules.Row[backupFacts, conditionVerdict]{
	{Name: "paused", When: backupFacts{paused: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonPaused}},
	{Name: "full-overdue", When: backupFacts{paused: rules.No, full: leases.Stale}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed}},
	{Name: "store-not-attached", When: backupFacts{paused: rules.No, full: leases.Never, attached: rules.No}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupStoreNotAttached}},
	{Name: "full-never-succeeded", When: backupFacts{paused: rules.No, full: leases.Never, fullFailed: rules.Yes, attached: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed}},
	{Name: "full-still-overdue", When: backupFacts{paused: rules.No, full: leases.Unknown, notified: BackupReportedFullFailed}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed}},
	{Name: "delta-overdue", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: leases.Stale}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonIncrementalBackupFailed}},
	{Name: "delta-never-succeeded", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: leases.Never, deltaFailed: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonIncrementalBackupFailed}},
	{Name: "delta-still-overdue", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: leases.Unknown, notified: BackupReportedDeltaFailed}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonIncrementalBackupFailed}},
	{Name: "spec-invalid", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: anyLiveness &^ leases.Stale, valid: rules.No}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupSpecInvalid}},
	{Name: "superseded", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: anyLiveness &^ leases.Stale, valid: rules.Yes, superseded: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupSuperseded}},
	{Name: "saved", When: backupFacts{paused: rules.No, full: leases.Live, delta: leases.Live, valid: rules.Yes, superseded: rules.No}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupSucceeded}},
	{Name: "still-saved", When: backupFacts{paused: rules.No, full: leases.Live | leases.Unknown, delta: leases.Live | leases.Unknown, valid: rules.Yes, superseded: rules.No, notified: BackupReportedGood}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupSucceeded}},
	{Name: "saved-again", When: backupFacts{paused: rules.No, full: leases.Unknown, delta: leases.Live, valid: rules.Yes, superseded: rules.No, notified: BackupReportedDeltaFailed}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupSucceeded}},
	{Name: "full-saved", When: backupFacts{paused: rules.No, full: leases.Live, delta: leases.Never, deltaFailed: rules.No, valid: rules.Yes, superseded: rules.No}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonFullBackupSucceeded}},
	{Name: "full-still-saved", When: backupFacts{paused: rules.No, full: leases.Unknown, delta: leases.Never, deltaFailed: rules.No, valid: rules.Yes, superseded: rules.No, notified: BackupReportedGood}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonFullBackupSucceeded}},
	{Name: "backup-not-known", When: backupFacts{paused: rules.No, full: leases.Never | leases.Live | leases.Unknown, delta: leases.Never | leases.Live | leases.Unknown, valid: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}},
})

// backupFacts is all that the policy may look at.
type backupFacts struct {
	paused      rules.YesNo     // no one runs who could back up, and no one who could write
	full        leases.Liveness `fact:"full Lease is"`
	delta       leases.Liveness `fact:"delta Lease is"`
	fullFailed  rules.YesNo     `fact:"error of full"` // the last attempt ended with an error
	deltaFailed rules.YesNo     `fact:"error of delta"`
	attached    rules.YesNo     `fact:"all Pods have the store"` // all Pods have the volumes that the store needs
	valid       rules.YesNo     `fact:"spec is valid"`           // druid can make sense of spec.backup
	superseded  rules.YesNo     // the latest backup in this place is another cluster's
	notified    BackupReported  `fact:"reported before"`
}

func backupFactsOf(d Desired, o Observed) backupFacts {
	notified := d.BackupReported
	if notified == 0 {
		notified = BackupReportedElse
	}
	return backupFacts{
		paused: rules.No,
		full:   cmp.Or(o.Full.Liveness, leases.Unknown), delta: cmp.Or(o.Delta.Liveness, leases.Unknown),
		fullFailed: rules.YesNoOf(o.Full.Says.Error != ""), deltaFailed: rules.YesNoOf(o.Delta.Says.Error != ""),
		attached: rules.YesNoOf(len(o.Unattached) == 0), valid: rules.YesNoOf(d.BackupProblem == ""), superseded: rules.YesNoOf(o.Full.Says.SupersededBy != ""), notified: notified,
	}
}

// backupBlocks says whether backups fail, so that what could lose the last good copy has to wait. What is merely not known
// hinders no one.
func backupBlocks(d Desired, o Observed) bool {
	if !d.Backup {
		return false
	}
	reason := backupRows.Decide(backupFactsOf(d, o)).Verdict.reason
	return reason == v1alpha1.ReasonFullBackupFailed || reason == v1alpha1.ReasonIncrementalBackupFailed
}

// setBackupReady writes the condition, or takes it away from a cluster that is not backed up.
func setBackupReady(p picture, conditions *[]metav1.Condition, generation int64, now metav1.Time) {
	if !p.Backup {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionBackupReady)
		return
	}
	f := backupFactsOf(p.Desired, p.Observed)
	f.paused = rules.YesNoOf(restingOf(p.Desired, p.Observed) == restingPaused)
	v := backupRows.Decide(f).Verdict
	setCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionBackupReady, Status: v.status, Reason: v.reason, Message: backupSentence(v.reason, p),
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// backupSteps make the Leases in which the agents report backups, and take them away with the backups.
func backupSteps(d Desired, o Observed, add func(Step)) {
	for _, s := range []struct {
		component leases.Component
		snapshot  Snapshot
	}{{leases.ComponentFullSnapshot, o.Full}, {leases.ComponentDeltaSnapshot, o.Delta}} {
		switch {
		case d.Backup && s.snapshot.Lease == LeaseAbsent:
			add(Step{Kind: CreateSnapshotLease, Rule: "snapshot-lease-missing", Stage: StageShared, Object: string(s.component)})
		case !d.Backup && s.snapshot.Lease == LeaseOurs:
			add(Step{Kind: DeleteSnapshotLease, Rule: "backup-ended", Stage: StageLate, Object: string(s.component)})
		}
	}
}
