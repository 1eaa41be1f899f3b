package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

func TestWhatAClusterBeginsWithIsFoundOrWaitedFor(t *testing.T) {
	checkTable(t, origins, "restore-origin", "Whether the EtcdSnapshot can be restored that a new cluster begins with: druid/plan.origins", func(f OriginFacts, d rules.Decision[origin]) string {
		placed := f.Place&(OriginReported|OriginOwn) != 0
		passes := f.Snapshot&(OriginAbsent|OriginUnfinished) != 0
		switch {
		case (d.Verdict == originFound) != (f.Snapshot == OriginSaved && placed):
			return "begins with what is not saved or not found, or does not with what is"
		case passes != (d.Verdict == originWait):
			return "waits for what does not pass, or does not for what does"
		}
		return ""
	})
}

func TestTheStatusSaysWhichSnapshotIsWaitedFor(t *testing.T) {
	words := func(rule string) string { return "words of " + rule }
	for name, c := range map[string]struct {
		facts    OriginFacts
		degraded metav1.ConditionStatus
	}{
		"not there yet":             {OriginFacts{OriginAbsent, OriginGone}, metav1.ConditionFalse},
		"failed":                    {OriginFacts{OriginFailed, OriginOwn}, metav1.ConditionTrue},
		"of a cluster that is gone": {OriginFacts{OriginSaved, OriginGone}, metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{RecordState: RecordAbsent, Origin: JudgeOrigin(c.facts, words)}
			d := Desired{Replicas: 3}
			if got := Adopt(d, o, Edit{Seen: SeenFirst}); got.Rule != "" {
				t.Errorf("it was adopted by %s", got.Rule)
			}
			s := Status(d, o, v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.NewTime(someTime))
			is := condition(s, v1alpha1.ConditionProgressing)
			if is.Status != metav1.ConditionTrue || is.Reason != v1alpha1.ReasonWaitingForSnapshot || is.Message != "words of "+o.Origin.Rule {
				t.Errorf("Progressing is %+v", is)
			}
			worse := condition(s, v1alpha1.ConditionDegraded)
			if worse.Status != c.degraded || c.degraded == metav1.ConditionTrue && (worse.Reason != v1alpha1.ReasonSnapshotUnusable || worse.Message != is.Message) {
				t.Errorf("Degraded is %+v", worse)
			}
		})
	}
}
