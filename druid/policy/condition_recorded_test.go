package policy

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/situations"
)

// Tests of what people see use recorded situations. A real cluster in that situation has the conditions for tools, too.
func TestRecordedSituationsAreThoseOfDruid(t *testing.T) {
	kinds := []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled}
	for _, s := range situations.All() {
		recorded := s.Objects.Cluster.Status.Conditions
		if len(recorded) == 0 {
			continue // druid has not observed the cluster
		}
		own := slices.DeleteFunc(slices.Clone(recorded), func(c metav1.Condition) bool { return slices.Contains(kinds, c.Type) })
		setToolConditions(&own, s.Objects.Cluster.Generation, metav1.Now())
		for _, kind := range kinds {
			got, want := meta.FindStatusCondition(recorded, kind), meta.FindStatusCondition(own, kind)
			switch {
			case (got == nil) != (want == nil):
				t.Errorf("%s has %s %+v, and druid sets %+v", s.Name, kind, got, want)
			case got != nil && (got.Status != want.Status || got.Reason != want.Reason || got.Message != want.Message):
				t.Errorf("%s has %s %+v, and druid sets %+v", s.Name, kind, got, want)
			default: // as recorded
			}
		}
	}
}

// Flux and Helm 4, and Argo CD, read each of the recorded situations as docs/how-to/install/gitops.md says.
func TestToolsReadRecordedSituations(t *testing.T) {
	want := map[string][2]string{
		"serving": {"Current", "Healthy"}, "without-backup": {"Current", "Healthy"}, "tls": {"Current", "Healthy"},
		"member-down": {"InProgress", "Progressing"}, "quorum-lost": {"InProgress", "Progressing"}, "quorum-lost-with-a-plan": {"Failed", "Degraded"},
		"backups-failing": {"InProgress", "Progressing"}, "backup-broken": {"Failed", "Degraded"}, "authority-lost": {"Failed", "Degraded"},
		"paused": {"InProgress", "Suspended"}, "hands-off": {"Failed", "Degraded"}, "forming": {"InProgress", "Progressing"},
		"not-accepted": {"InProgress", "Progressing"},
	}
	for _, s := range situations.All() {
		state, named := want[s.Name]
		if !named {
			continue
		}
		delete(want, s.Name)
		u := untyped(t, &s.Objects.Cluster)
		argo, _ := argoHealth(t, u)
		if got := [2]string{kstatusOf(t, u), argo}; got != state {
			t.Errorf("%s: kstatus and Argo CD say %v, want %v", s.Name, got, state)
		}
	}
	if len(want) > 0 {
		t.Errorf("no situation is called %v", want)
	}
}
