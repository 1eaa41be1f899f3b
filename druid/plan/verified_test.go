package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestBackupVerifiedCallsNothingGoodThatWasNotProven(t *testing.T) {
	checkTable(t, verifiedRows, "backup-verified", "Condition BackupVerified: druid/plan.verifiedRows", func(f verifiedFacts, d rules.Decision[conditionVerdict]) string {
		status, reason := d.Verdict.parts()
		switch {
		case f.paused == rules.Yes:
			if status == metav1.ConditionUnknown && reason != v1alpha1.ReasonPaused {
				return "is for a reason by which an alert is raised, although the cluster is paused"
			}
		case status == metav1.ConditionTrue && (f.notified != ProofProven || f.present != rules.Yes):
			return "calls backups good that no one proved"
		case status == metav1.ConditionFalse && (f.notified != ProofBroken || f.present != rules.Yes):
			return "condemns backups that no one found broken"
		case (f.notified == ProofProven || f.notified == ProofBroken) && f.present == rules.Yes && status == metav1.ConditionUnknown:
			return "hides what was found"
		case (status == metav1.ConditionUnknown) != (reason == v1alpha1.ReasonNotYetVerified):
			return "has another reason than its status"
		}
		return ""
	})
}

func TestBackupVerifiedIsReportedAPerson(t *testing.T) {
	proofOf := func(v leases.Verification) func(*Observed) {
		return func(o *Observed) {
			saved(o)
			o.Full.Says.Lineage, o.Full.Verified = "a", v
		}
	}
	on := Desired{Replicas: 3, Backup: true}
	for name, test := range map[string]struct {
		desired Desired
		change  func(*Observed)
		status  metav1.ConditionStatus
		reason  string
		words   string
	}{
		"proven": {on, proofOf(leases.Verification{Verdict: leases.VerdictProven, Lineage: "a"}), metav1.ConditionTrue, v1alpha1.ReasonVerificationSucceeded, "what etcd reported"},
		"broken, and which": {
			on, proofOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "a", Trouble: "full x is damaged"}),
			metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed, "full x is damaged",
		},
		"another history": {on, proofOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "b"}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "this lineage"},
		"no room":         {on, proofOf(leases.Verification{Lineage: "a", Trouble: "not enough space"}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not enough space"},
		"never":           {on, proofOf(leases.Verification{}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not verified yet"},
		"unreadable":      {on, func(o *Observed) { saved(o); o.Full.Unreadable = true }, metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "cannot be read"},
		"not backed up":   {Desired{Replicas: 3}, saved, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var conditions []metav1.Condition
			if !test.desired.Backup {
				conditions = []metav1.Condition{{Type: v1alpha1.ConditionBackupVerified, Status: metav1.ConditionTrue, Reason: "Before"}}
			}
			setBackupVerified(picture{Desired: test.desired, Observed: whole(test.change)}, &conditions, 1, metav1.Now())
			if test.status == "" {
				if len(conditions) > 0 {
					t.Errorf("it has %+v", conditions)
				}
				return
			}
			if c := conditions[0]; c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.words) {
				t.Errorf("got %+v", c)
			}
		})
	}
}
