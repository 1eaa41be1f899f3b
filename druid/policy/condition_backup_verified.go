package policy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// VerificationReported is what the Lease of the full backups reports about the last verification.
type VerificationReported uint8

// What it may say.
const (
	VerificationUnknown VerificationReported = 1 << iota // the Lease cannot be read, or is not ours
	VerificationNever                                    // not verified yet
	VerificationVerified
	VerificationBroken
)

func (p VerificationReported) String() string {
	return rules.Word(p, "unknown", "never", "verified", "broken")
}

// verifiedRows decide condition BackupVerified. present: the verified backups belong to the lineage that is written
// now.
var verifiedRows = rules.New(conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}, []rules.Row[verifiedFacts, conditionVerdict]{
	{Name: "verification-unreadable", When: verifiedFacts{reported: VerificationUnknown, paused: rules.No},
		Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}},
	{Name: "never-verified", When: verifiedFacts{reported: VerificationNever, paused: rules.No},
		Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}},
	{Name: "another-history", When: verifiedFacts{reported: VerificationVerified | VerificationBroken, present: rules.No, paused: rules.No},
		Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified}},
	{Name: "verified", When: verifiedFacts{reported: VerificationVerified, present: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonVerificationSucceeded}},
	{Name: "broken", When: verifiedFacts{reported: VerificationBroken, present: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed}},
	{Name: "paused", When: verifiedFacts{paused: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonPaused}},
})

type verifiedFacts struct {
	reported VerificationReported
	present  rules.YesNo
	paused   rules.YesNo // no agent runs that could verify them
}

func verifiedFactsOf(s Snapshot) verifiedFacts {
	f := verifiedFacts{reported: VerificationUnknown, paused: rules.No,
		present: rules.YesNoOf(s.Verified.Lineage != "" && s.Verified.Lineage == s.Reports.Lineage)}
	switch {
	case s.Lease != LeaseOurs || s.Unreadable:
	case s.Verified.Verdict == leases.VerdictVerified:
		f.reported = VerificationVerified
	case s.Verified.Verdict == leases.VerdictBroken:
		f.reported = VerificationBroken
	default:
		f.reported = VerificationNever
	}
	return f
}

// backupVerified is condition BackupVerified. A cluster without backups does not have it.
func backupVerified(p messageContext) (metav1.Condition, bool) {
	if !p.Backup {
		return metav1.Condition{}, false
	}
	f := verifiedFactsOf(p.Full)
	f.paused = rules.YesNoOf(p.resting() == restingPaused)
	d := verifiedRows.Decide(f)
	return metav1.Condition{Status: d.Verdict.status, Reason: d.Verdict.reason, Message: verifiedSentence(d.Rule, p.Full)}, true
}

// verifiedSentence returns the message of the condition. The revision and the time of the verification are in the
// Lease, because they change while all is well.
func verifiedSentence(rule string, s Snapshot) string {
	words := map[string]string{
		"verification-unreadable": "the Lease of the full backups cannot be parsed",
		"never-verified":          "the backups are not verified yet",
		"another-history":         "the backups of this lineage are not verified yet",
		"paused":                  "the cluster is paused, and its backups are not verified until it is resumed",
		"verified":                "the newest backups were restored, and their data is equal to that of etcd",
		"broken":                  "the newest backups failed verification: " + s.Verified.Trouble + ". The leader's agent makes and verifies a new full backup",
	}[rule]
	if rule == "never-verified" && s.Verified.Trouble != "" {
		words += ": " + s.Verified.Trouble
	}
	return words
}
