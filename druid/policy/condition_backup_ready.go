package policy

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// BackupReported is what the previous status said about the backups. A druid that has just started keeps it.
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
	case c.Reason == v1alpha1.ReasonDeltaBackupFailed:
		return BackupReportedDeltaFailed
	default:
		return BackupReportedElse
	}
}

// backupRows decide condition BackupReady. full and delta are the liveness of the two Leases. A Lease is stale if it
// is unchanged for longer than the schedule, or two periods, allow. A failing backup blocks maintenance that can lose
// the last good copy: evictions and the removal of members. It never affects clients.
var backupRows = rules.New(conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}, []rules.Row[backupFacts, conditionVerdict]{
	{Name: "paused", When: backupFacts{paused: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonPaused}},
	{Name: "full-overdue", When: backupFacts{paused: rules.No, full: leases.Stale},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed}},
	{Name: "store-not-attached", When: backupFacts{paused: rules.No, full: leases.Never, attached: rules.No, claim: storeClaimGood},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupStoreNotAttached}},
	{Name: "full-never-succeeded", When: backupFacts{paused: rules.No, full: leases.Never, fullFailed: rules.Yes, attached: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed}},
	{Name: "full-still-overdue", When: backupFacts{paused: rules.No, full: leases.Unknown, reported: BackupReportedFullFailed},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonFullBackupFailed}},
	{Name: "delta-overdue", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: leases.Stale},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonDeltaBackupFailed}},
	{Name: "delta-never-succeeded", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: leases.Never, deltaFailed: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonDeltaBackupFailed}},
	{Name: "delta-still-overdue", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: leases.Unknown,
		reported: BackupReportedDeltaFailed},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonDeltaBackupFailed}},
	{Name: "claim-missing", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: anyLiveness &^ leases.Stale, claim: storeClaimMissing},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupClaimMissing}},
	{Name: "claim-not-shared", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: anyLiveness &^ leases.Stale,
		claim: storeClaimNotShared},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupClaimNotShared}},
	{Name: "spec-invalid", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: anyLiveness &^ leases.Stale, valid: rules.No},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupSpecInvalid}},
	{Name: "superseded", When: backupFacts{paused: rules.No, full: anyLiveness &^ leases.Stale, delta: anyLiveness &^ leases.Stale,
		valid: rules.Yes, superseded: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBackupSuperseded}},
	{Name: "saved", When: backupFacts{paused: rules.No, full: leases.Live, delta: leases.Live, valid: rules.Yes, superseded: rules.No},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded}},
	{Name: "still-saved", When: backupFacts{paused: rules.No, full: leases.Live | leases.Unknown, delta: leases.Live | leases.Unknown, valid: rules.Yes,
		superseded: rules.No, reported: BackupReportedGood},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded}},
	{Name: "saved-again", When: backupFacts{paused: rules.No, full: leases.Unknown, delta: leases.Live, valid: rules.Yes, superseded: rules.No,
		reported: BackupReportedDeltaFailed},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded}},
	{Name: "full-saved", When: backupFacts{paused: rules.No, full: leases.Live, delta: leases.Never, deltaFailed: rules.No, valid: rules.Yes,
		superseded: rules.No},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonFullBackupSucceeded}},
	{Name: "full-still-saved", When: backupFacts{paused: rules.No, full: leases.Unknown, delta: leases.Never, deltaFailed: rules.No,
		valid: rules.Yes, superseded: rules.No, reported: BackupReportedGood},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonFullBackupSucceeded}},
	{Name: "backup-not-known", When: backupFacts{paused: rules.No, full: leases.Never | leases.Live | leases.Unknown,
		delta: leases.Never | leases.Live | leases.Unknown, valid: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}},
})

// backupFacts is the complete input of backupRows.
type backupFacts struct {
	paused      rules.YesNo     // no member runs, so there is nothing to back up
	full        leases.Liveness `fact:"full Lease is"`
	delta       leases.Liveness `fact:"delta Lease is"`
	fullFailed  rules.YesNo     `fact:"error of full"` // the last attempt ended with an error
	deltaFailed rules.YesNo     `fact:"error of delta"`
	attached    rules.YesNo     `fact:"all Pods have the store"` // all Pods have the volumes that the store needs
	claim       storeClaim      `fact:"PVC of the store"`
	valid       rules.YesNo     `fact:"spec is valid"` // druid can make sense of spec.backup
	superseded  rules.YesNo     // the latest backup in this place is another cluster's
	reported    BackupReported  `fact:"reported before"`
}

func backupFactsOf(d Desired, o Observed) backupFacts {
	reported := d.BackupReported
	if reported == 0 {
		reported = BackupReportedElse
	}
	return backupFacts{
		paused: rules.No,
		full:   cmp.Or(o.Full.Liveness, leases.Unknown), delta: cmp.Or(o.Delta.Liveness, leases.Unknown),
		fullFailed: rules.YesNoOf(o.Full.Reports.Error != ""), deltaFailed: rules.YesNoOf(o.Delta.Reports.Error != ""),
		attached: rules.YesNoOf(len(o.Unattached) == 0), valid: rules.YesNoOf(d.BackupProblem == ""),
		superseded: rules.YesNoOf(o.Full.Reports.SupersededBy != ""), reported: reported,
		claim: storeClaimOf(d, o),
	}
}

// backupReady is condition BackupReady. A cluster without backups does not have it.
func backupReady(p messageContext) (metav1.Condition, bool) {
	if !p.Backup {
		return metav1.Condition{}, false
	}
	f := backupFactsOf(p.Desired, p.Observed)
	f.paused = rules.YesNoOf(p.resting() == restingPaused)
	v := backupRows.Decide(f).Verdict
	return metav1.Condition{Status: v.status, Reason: v.reason, Message: backupSentence(v.reason, p)}, true
}

// backupSentences are the messages of condition BackupReady, by reason. They contain nothing that changes with each
// backup: the revision and the time of the last backup are in the Leases.
var backupSentences = map[string]func(messageContext) string{
	v1alpha1.ReasonFullBackupSucceeded: func(messageContext) string {
		return "a full backup is saved. Changes since then are not saved yet"
	},
	v1alpha1.ReasonDeltaBackupSucceeded: func(messageContext) string {
		return "a full backup and all changes since then are saved, within spec.backup.delta.period"
	},
	v1alpha1.ReasonFullBackupFailed: func(p messageContext) string {
		if p.Full.Reports.EverSaved() {
			return "the newest full backup" + takenAt(p.Full) + " is older than spec.backup.full allows" + because(p.Full) + p.unsaved() + p.blocked()
		}
		return "the first full backup failed" + because(p.Full) + p.blocked()
	},
	v1alpha1.ReasonDeltaBackupFailed: func(p messageContext) string {
		return "changes" + p.since() + " are not saved" + because(p.Delta) + p.blocked()
	},
	v1alpha1.ReasonPaused: func(p messageContext) string {
		if len(p.listed) == 0 {
			return "no member was created yet, so there is nothing to back up"
		}
		return "the cluster is paused, and no backup is made until it is resumed"
	},
	v1alpha1.ReasonBackupStoreNotAttached: func(messageContext) string { return "no backup exists yet" },
	v1alpha1.ReasonBackupClaimMissing:     func(messageContext) string { return "the members cannot mount the backup store" },
	v1alpha1.ReasonBackupClaimNotShared:   func(messageContext) string { return "not all members can write to the backup store" },
	v1alpha1.ReasonBackupSpecInvalid:      func(p messageContext) string { return p.BackupProblem },
	v1alpha1.ReasonBackupSuperseded: func(p messageContext) string {
		return "a restore of the latest backup would restore lineage " + p.Full.Reports.SupersededBy +
			" of another cluster. Backups continue, and nothing is deleted. Set another prefix for this cluster"
	},
	v1alpha1.ReasonUnknown: func(p messageContext) string {
		switch {
		case p.Full.Lease == LeaseForeign || p.Delta.Lease == LeaseForeign:
			return "the Leases of the backups have another owner"
		case p.Full.Liveness == leases.Never:
			return "the first full backup does not exist yet"
		default:
			return "it is not known yet whether backups succeed"
		}
	},
}

// coarseTime is the format of times in messages about failing backups, in UTC. A minute is enough to estimate a loss.
const coarseTime = "2006-01-02 15:04 UTC"

// takenAt says when the newest full backup was taken. It changes only with a full backup.
func takenAt(full Snapshot) string {
	if full.Reports.Taken.IsZero() {
		return ""
	}
	return " of " + full.Reports.Taken.UTC().Format(coarseTime)
}

// since says from when on changes are not saved. The time is the last one at which an agent reported that all changes were saved, so it
// stays the same while backups fail. It is not what the Lease reports as lag, which grows.
func (p messageContext) since() string {
	at := p.savedUntil()
	if at.IsZero() {
		return ""
	}
	return " since about " + at.UTC().Format(coarseTime)
}

// savedUntil is when all changes were last known to be saved, zero for never.
func (p messageContext) savedUntil() time.Time {
	if p.Delta.Reports.EverSaved() && p.Delta.Reports.Revision >= p.Full.Reports.Revision {
		return p.Delta.Renewed
	}
	return p.Full.Reports.Taken
}

// unsaved says from when on changes are not saved, where the delta backups fail too. A druid that has just started knows that from the
// error in the Lease, so that its message is the same.
func (p messageContext) unsaved() string {
	if p.Delta.Liveness == leases.Stale || p.Delta.Liveness == leases.Unknown && p.Delta.Reports.Error != "" {
		return ". Changes" + p.since() + " are not saved"
	}
	return ""
}

// blocked is the consequence of a failing backup.
func (p messageContext) blocked() string {
	if p.backups.block(actionEvict) {
		return ". Until a backup succeeds, druid removes no member and allows no eviction"
	}
	return ". Until a backup succeeds, druid removes no member. It replaces Pods and allows evictions, because spec.backup.whenFailing is Continue"
}

// because names the cause and the error of the last attempt, and what to do about the cause.
func because(s Snapshot) string {
	cause, failure := s.Reports.Cause, s.Reports.Error
	switch advice := backupAdvice[cause]; {
	case failure == "":
		return ". No agent reported an error: check that the cluster has a leader and that its agent runs"
	case cause == "":
		return ": " + failure
	case advice == "":
		return ": " + string(cause) + ": " + failure
	default:
		return ": " + string(cause) + ": " + advice + ". The error is: " + failure
	}
}

// backupAdvice is what to do, by the cause that the agent reported. The error itself can be cut off before its advice.
var backupAdvice = map[leases.BackupCause]string{
	leases.BackupUnauthorized: "correct the credentials of the backup store, or their permissions",
	leases.BackupNotFound:     "create the bucket or the directory, or correct spec.backup.store",
	leases.BackupUnreachable:  "check the endpoint of the backup store, and the network and the NetworkPolicies on the path to it",
	leases.BackupThrottled:    "raise the request limit of the backup store, or increase spec.backup.delta.period",
	leases.BackupFull:         "enlarge the backup store or its quota, or keep fewer backups with spec.backup.retention",
	leases.BackupKeyMissing:   "restore the key in the Secret of spec.backup.encryption.keySecretRef, or the key of spec.backup.store.s3.sse",
}

// backupSentence returns the message of the condition. Each message says what is wrong with the claim of the store, or it
// names the Pods without access to the store, because backups stop when one of them leads.
func backupSentence(reason string, p messageContext) string {
	words := v1alpha1.ConditionBackupReady + " is " + reason
	if say, ok := backupSentences[reason]; ok {
		words = say(p)
	}
	if advice := storeClaimAdvice(p.Desired, p.Observed); advice != "" {
		return words + ". " + advice
	}
	if len(p.Unattached) > 0 {
		words += ". These Pods have no access to the backup store, because they are older than its configuration: " + strings.Join(p.Unattached, ", ") +
			". Delete them one at a time while all members are ready. Their data stays"
	}
	return words
}
