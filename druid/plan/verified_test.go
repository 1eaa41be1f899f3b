package plan

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/golden"
)

func TestBackupVerifiedCallsNothingGoodThatWasNotProven(t *testing.T) {
	count := map[string]int{}
	for _, told := range bits(anyProof) {
		for _, present := range bits(anyAnswer) {
			status, reason, rule := judgeVerified(verifiedFacts{told, present, rules.Yes})
			if count[rule]++; status == metav1.ConditionUnknown && reason != v1alpha1.ReasonPaused {
				t.Errorf("%d %d, paused: %s is for %s, by which an alert is raised", told, present, rule, reason)
			}
			status, reason, rule = judgeVerified(verifiedFacts{told, present, rules.No})
			count[rule]++
			switch {
			case rule == "uncovered":
				t.Errorf("%d %d: no row covers it", told, present)
			case status == metav1.ConditionTrue && (told != ProofProven || present != rules.Yes):
				t.Errorf("%d %d: %s calls backups good that nobody proved", told, present, rule)
			case status == metav1.ConditionFalse && (told != ProofBroken || present != rules.Yes):
				t.Errorf("%d %d: %s condemns backups that nobody found broken", told, present, rule)
			case (told == ProofProven || told == ProofBroken) && present == rules.Yes && status == metav1.ConditionUnknown:
				t.Errorf("%d %d: %s hides what was found", told, present, rule)
			case (status == metav1.ConditionUnknown) != (reason == v1alpha1.ReasonNotYetVerified):
				t.Errorf("%d %d: %s is %s for %s", told, present, rule, status, reason)
			}
		}
	}
	var names []string
	var rows [][]string
	toldNames := map[ProofTold]string{ProofUnknown: "unknown", ProofNever: "never", ProofProven: "proven", ProofBroken: "broken"}
	for _, r := range verifiedRows {
		names = append(names, r.name)
		var told []string
		for _, b := range bits(r.told) {
			if r.told&b != 0 {
				told = append(told, toldNames[b])
			}
		}
		rows = append(rows, []string{r.name, strings.Join(told, ", "), cell(r.present, anyAnswer, []string{"no", "yes"}), answer(r.paused), string(r.status), r.reason, fmt.Sprint(count[r.name])})
	}
	fired(t, count, names...)
	golden.Section(t, "../../docs/decisions.md", "backup-verified", "## Condition BackupVerified: plan.verifiedRows\n\n"+
		"`told`: what the Lease of the full backups says of the last proof; `present`: of the history that is saved now.\n\n"+
		golden.Table([]string{"rule", "told", "present", "paused", "status", "reason", "cases"}, rows))
}

func TestBackupVerifiedIsToldAPerson(t *testing.T) {
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
		"proven": {on, proofOf(leases.Verification{Verdict: leases.VerdictProven, Lineage: "a"}), metav1.ConditionTrue, v1alpha1.ReasonBackupProven, "what etcd said"},
		"broken, and which": {
			on, proofOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "a", Trouble: "full x is damaged"}),
			metav1.ConditionFalse, v1alpha1.ReasonBackupBroken, "full x is damaged",
		},
		"another history": {on, proofOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "b"}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "this history"},
		"no room":         {on, proofOf(leases.Verification{Lineage: "a", Trouble: "not enough space"}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not enough space"},
		"never":           {on, proofOf(leases.Verification{}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not proven yet"},
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
