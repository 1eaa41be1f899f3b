package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

var (
	originSnapshotWords = []string{"absent", "unfinished", "failed", "blank", "saved"}
	originPlaceWords    = []string{"told by the spec", "where its cluster says", "left by its cluster", "its cluster is not backed up", "its cluster is gone"}
	originWords         = map[origin]string{originWait: "Wait", originStuck: "Degraded", originFound: "Restore"}
)

func TestWhatAClusterBeginsWithIsFoundOrWaitedFor(t *testing.T) {
	count := map[string]int{}
	for _, snapshot := range bits(anyOriginSnapshot) {
		for _, place := range bits(anyOriginPlace) {
			verdict, rule := judgeOrigin(OriginFacts{snapshot, place})
			count[rule]++
			placed := place&(OriginTold|OriginOwn) != 0
			if (verdict == originFound) != (snapshot == OriginSaved && placed) {
				t.Errorf("snapshot %d, place %d: %s says %d", snapshot, place, rule, verdict)
			}
			if passes := snapshot&(OriginAbsent|OriginUnfinished) != 0; passes != (verdict == originWait) {
				t.Errorf("snapshot %d, place %d: %s says %d of what passes: %t", snapshot, place, rule, verdict, passes)
			}
		}
	}
	var names []string
	var rows [][]string
	for _, r := range origins {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, cell(r.snapshot, anyOriginSnapshot, originSnapshotWords), cell(r.place, anyOriginPlace, originPlaceWords), bold(originWords[r.origin]), r.why,
		})
	}
	fired(t, count, names...)
	section(t, "restore-origin", "Whether the EtcdSnapshot can be restored that a new cluster begins with: druid/plan.origins",
		[]string{"the EtcdSnapshot", "its backup", "verdict", "why"}, rows, count)
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
