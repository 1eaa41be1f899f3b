package plan

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// BackupTold is what the status said of the backups before: an observer that just started goes on saying it.
type BackupTold uint8

// What the status may have said.
const (
	BackupToldGood        BackupTold = 1 << iota // condition BackupReady was True
	BackupToldFullFailed                         // it was False because of the full backups
	BackupToldDeltaFailed                        // it was False because of the deltas
	BackupToldElse                               // something else, or nothing

	anyTold = BackupToldGood | BackupToldFullFailed | BackupToldDeltaFailed | BackupToldElse
)

// BackupToldBy reads it from the conditions.
func BackupToldBy(conditions []metav1.Condition) BackupTold {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionBackupReady)
	switch {
	case c == nil:
		return BackupToldElse
	case c.Status == metav1.ConditionTrue:
		return BackupToldGood
	case c.Reason == v1alpha1.ReasonFullBackupFailed:
		return BackupToldFullFailed
	case c.Reason == v1alpha1.ReasonIncrementalBackupFailed:
		return BackupToldDeltaFailed
	default:
		return BackupToldElse
	}
}

// PauseToldBy reads from the conditions that the cluster is paused, or was and no quorum served since.
func PauseToldBy(conditions []metav1.Condition) bool {
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
	// Liveness is Stale too of a Lease that nobody renewed yet for as long as the first backup may take.
	Liveness leases.Liveness
}

// backupRows decide condition BackupReady. full and delta are the liveness of the two Leases: unchanged for longer than the
// schedule, or two periods, allow is stale. One that fails blocks maintenance that could lose the last good copy: evictions,
// and the removal of members. It never takes anything from clients.
var backupRows = []struct {
	name        string
	paused      rules.YesNo
	full        leases.Liveness
	delta       leases.Liveness
	fullFailed  rules.YesNo // the last attempt ended with an error
	deltaFailed rules.YesNo
	attached    rules.YesNo // all Pods have the volumes that the store needs
	valid       rules.YesNo // druid can make sense of spec.backup
	superseded  rules.YesNo // the latest backup in this place is another cluster's
	told        BackupTold
	status      metav1.ConditionStatus
	reason      string
}{
	{"paused", rules.Yes, anyLiveness, anyLiveness, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyTold, metav1.ConditionUnknown, v1alpha1.ReasonPaused},
	{"full-overdue", rules.No, leases.Stale, anyLiveness, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyTold, metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed},
	{"store-not-attached", rules.No, leases.Never, anyLiveness, anyAnswer, anyAnswer, rules.No, anyAnswer, anyAnswer, anyTold, metav1.ConditionFalse, v1alpha1.ReasonBackupStoreNotAttached},
	{"full-never-succeeded", rules.No, leases.Never, anyLiveness, rules.Yes, anyAnswer, rules.Yes, anyAnswer, anyAnswer, anyTold, metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed},
	{"full-still-overdue", rules.No, leases.Unknown, anyLiveness, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, BackupToldFullFailed, metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed},
	{"delta-overdue", rules.No, anyLiveness &^ leases.Stale, leases.Stale, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyTold, metav1.ConditionFalse, v1alpha1.ReasonIncrementalBackupFailed},
	{"delta-never-succeeded", rules.No, anyLiveness &^ leases.Stale, leases.Never, anyAnswer, rules.Yes, anyAnswer, anyAnswer, anyAnswer, anyTold, metav1.ConditionFalse, v1alpha1.ReasonIncrementalBackupFailed},
	{"delta-still-overdue", rules.No, anyLiveness &^ leases.Stale, leases.Unknown, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, BackupToldDeltaFailed, metav1.ConditionFalse, v1alpha1.ReasonIncrementalBackupFailed},
	{"spec-invalid", rules.No, anyLiveness &^ leases.Stale, anyLiveness &^ leases.Stale, anyAnswer, anyAnswer, anyAnswer, rules.No, anyAnswer, anyTold, metav1.ConditionFalse, v1alpha1.ReasonBackupSpecInvalid},
	{"superseded", rules.No, anyLiveness &^ leases.Stale, anyLiveness &^ leases.Stale, anyAnswer, anyAnswer, anyAnswer, rules.Yes, rules.Yes, anyTold, metav1.ConditionFalse, v1alpha1.ReasonBackupSuperseded},
	{"saved", rules.No, leases.Live, leases.Live, anyAnswer, anyAnswer, anyAnswer, rules.Yes, rules.No, anyTold, metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupSucceeded},
	{"still-saved", rules.No, leases.Live | leases.Unknown, leases.Live | leases.Unknown, anyAnswer, anyAnswer, anyAnswer, rules.Yes, rules.No, BackupToldGood, metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupSucceeded},
	{"saved-again", rules.No, leases.Unknown, leases.Live, anyAnswer, anyAnswer, anyAnswer, rules.Yes, rules.No, BackupToldDeltaFailed, metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupSucceeded},
	{"full-saved", rules.No, leases.Live, leases.Never, anyAnswer, rules.No, anyAnswer, rules.Yes, rules.No, anyTold, metav1.ConditionTrue, v1alpha1.ReasonFullBackupSucceeded},
	{"full-still-saved", rules.No, leases.Unknown, leases.Never, anyAnswer, rules.No, anyAnswer, rules.Yes, rules.No, BackupToldGood, metav1.ConditionTrue, v1alpha1.ReasonFullBackupSucceeded},
	{"backup-not-known", rules.No, leases.Never | leases.Live | leases.Unknown, leases.Never | leases.Live | leases.Unknown, anyAnswer, anyAnswer, anyAnswer, rules.Yes, anyAnswer, anyTold, metav1.ConditionUnknown, v1alpha1.ReasonUnknown},
}

// backupFacts is all that the policy may look at.
type backupFacts struct {
	paused                  rules.YesNo // nobody runs who could back up, and nobody who could write
	full, delta             leases.Liveness
	fullFailed, deltaFailed rules.YesNo
	attached, valid         rules.YesNo
	superseded              rules.YesNo
	told                    BackupTold
}

func judgeBackup(f backupFacts) (status metav1.ConditionStatus, reason, rule string) {
	for _, r := range backupRows {
		if r.paused&f.paused != 0 && r.full&f.full != 0 && r.delta&f.delta != 0 && r.fullFailed&f.fullFailed != 0 && r.deltaFailed&f.deltaFailed != 0 &&
			r.attached&f.attached != 0 && r.valid&f.valid != 0 && r.superseded&f.superseded != 0 && r.told&f.told != 0 {
			return r.status, r.reason, r.name
		}
	}
	return metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "uncovered"
}

func backupFactsOf(d Desired, o Observed) backupFacts {
	told := d.BackupTold
	if told == 0 {
		told = BackupToldElse
	}
	return backupFacts{
		paused: rules.No,
		full:   o.Full.Liveness, delta: o.Delta.Liveness,
		fullFailed: rules.YesNoOf(o.Full.Says.Error != ""), deltaFailed: rules.YesNoOf(o.Delta.Says.Error != ""),
		attached: rules.YesNoOf(len(o.Unattached) == 0), valid: rules.YesNoOf(d.BackupProblem == ""), superseded: rules.YesNoOf(o.Full.Says.SupersededBy != ""), told: told,
	}
}

// backupBlocks says whether backups fail, so that what could lose the last good copy has to wait. What is merely not known
// hinders nobody.
func backupBlocks(d Desired, o Observed) bool {
	if !d.Backup {
		return false
	}
	_, reason, _ := judgeBackup(backupFactsOf(d, o))
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
	status, reason, _ := judgeBackup(f)
	setCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionBackupReady, Status: status, Reason: reason, Message: backupSentence(reason, p),
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// backupSteps make the Leases in which the agents tell of backups, and take them away with the backups.
func backupSteps(d Desired, o Observed, add func(Step)) {
	for _, s := range []struct {
		component leases.Component
		snapshot  Snapshot
	}{{leases.ComponentFullSnapshot, o.Full}, {leases.ComponentDeltaSnapshot, o.Delta}} {
		switch {
		case d.Backup && s.snapshot.Lease == LeaseAbsent:
			add(Step{Kind: CreateSnapshotLease, Rule: "snapshot-lease-missing", Stage: StageShared, Object: string(s.component)})
		case !d.Backup && s.snapshot.Lease == LeaseOurs:
			add(Step{Kind: DeleteSnapshotLease, Rule: "backup-ended", Stage: StageLate, Object: string(s.component), Irreversible: true})
		}
	}
}
