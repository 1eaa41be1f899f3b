package plan

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// ProofReported is what the Lease of the full backups says of the last proof.
type ProofReported uint8

// What it may say.
const (
	ProofUnknown ProofReported = 1 << iota // the Lease cannot be read, or is not ours
	ProofNever                             // no one found out
	ProofProven
	ProofBroken
)

func (p ProofReported) String() string {
	return rules.Word(p, "unknown", "never", "proven", "broken")
}

// verifiedRows decide condition BackupVerified. present: the backups that were looked at are of the history that is saved now.
var verifiedRows = rules.New(conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}, []rules.Row[verifiedFacts, conditionVerdict]{
	{Name: "proof-unreadable", When: verifiedFacts{notified: ProofUnknown, paused: rules.No}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}},
	{Name: "never-verified", When: verifiedFacts{notified: ProofNever, paused: rules.No}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}},
	{Name: "another-history", When: verifiedFacts{notified: ProofProven | ProofBroken, present: rules.No, paused: rules.No}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}},
	{Name: "proven", When: verifiedFacts{notified: ProofProven, present: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonVerificationSucceeded}},
	{Name: "broken", When: verifiedFacts{notified: ProofBroken, present: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed}},
	{Name: "paused", When: verifiedFacts{paused: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonPaused}},
})

type verifiedFacts struct {
	notified ProofReported
	present  rules.YesNo
	paused   rules.YesNo // no one runs who could prove them
}

func verifiedFactsOf(s Snapshot) verifiedFacts {
	f := verifiedFacts{notified: ProofUnknown, paused: rules.No, present: rules.YesNoOf(s.Verified.Lineage != "" && s.Verified.Lineage == s.Says.Lineage)}
	switch {
	case s.Lease != LeaseOurs || s.Unreadable:
	case s.Verified.Verdict == leases.VerdictProven:
		f.notified = ProofProven
	case s.Verified.Verdict == leases.VerdictBroken:
		f.notified = ProofBroken
	default:
		f.notified = ProofNever
	}
	return f
}

// setBackupVerified writes the condition, or takes it away from a cluster that is not backed up.
func setBackupVerified(p picture, conditions *[]metav1.Condition, generation int64, now metav1.Time) {
	if !p.Backup {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionBackupVerified)
		return
	}
	f := verifiedFactsOf(p.Full)
	f.paused = rules.YesNoOf(restingOf(p.Desired, p.Observed) == restingPaused)
	d := verifiedRows.Decide(f)
	setCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionBackupVerified, Status: d.Verdict.status, Reason: d.Verdict.reason, Message: verifiedSentence(d.Rule, p.Full),
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// verifiedSentence is the condition's message. What was proven, and when, stands in the Lease: it changes while all is well.
func verifiedSentence(rule string, s Snapshot) string {
	words := map[string]string{
		"proof-unreadable": "its Lease cannot be read",
		"never-verified":   "the backups are not verified yet",
		"another-history":  "the backups of this lineage are not verified yet",
		"paused":           "the cluster is paused, and its backups are not verified until it is resumed",
		"proven":           "the newest backups were restored, and hold what etcd reported",
		"broken":           "a new full backup is being made and verified: " + s.Verified.Trouble,
	}[rule]
	if rule == "never-verified" && s.Verified.Trouble != "" {
		words += ": " + s.Verified.Trouble
	}
	return words
}
