package v1alpha1_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/etcd-druid/druid/internal/versions"
)

// testAgreesWithTheRulesOfVersions holds that what the API server refuses is what druid refuses, for each pair of versions.
func testAgreesWithTheRulesOfVersions(t *testing.T, clusters dynamic.ResourceInterface) {
	all := []string{"3.5.30", "3.5.31", "3.5.33", "3.5.35", "3.6.11", "3.6.12", "3.6.14", "3.6.16", "3.7.0", "3.7.1", "3.7.3"}
	for _, from := range all {
		was, _ := versions.Parse(from)
		before := edited(t, edit{"spec.version", from})
		before.SetName("")
		before.SetGenerateName("version-")
		created, err := clusters.Create(t.Context(), before, metav1.CreateOptions{})
		if refused := versions.JudgeRelease(was).Verdict == versions.Refused; refused != (err != nil) {
			t.Fatalf("create with %s said %v, the rules refuse it: %t", from, err, refused)
		}
		if err != nil {
			continue
		}
		for _, to := range all {
			is, _ := versions.Parse(to)
			after := edited(t, edit{"spec.version", to})
			after.SetName(created.GetName())
			after.SetResourceVersion(created.GetResourceVersion())
			_, err := clusters.Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			refused := versions.JudgeRelease(is).Verdict == versions.Refused || versions.JudgeStep(was, is).Verdict == versions.Refused
			if refused != (err != nil) {
				t.Errorf("%s to %s said %v, the rules refuse it: %t", from, to, err, refused)
			}
		}
	}
}
