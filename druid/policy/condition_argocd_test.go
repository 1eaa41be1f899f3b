package policy

import (
	"cmp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/gitops"
)

// argoHealth is what the health check of Argo CD says about the object.
func argoHealth(t *testing.T, u *unstructured.Unstructured) (status, message string) {
	t.Helper()
	return gitops.ArgoHealth(t, "../..", u)
}

// TestArgoAgreesWithKstatus: Argo CD also knows a pause, which kstatus calls InProgress.
func TestArgoAgreesWithKstatus(t *testing.T) {
	same := map[string]string{"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded"}
	for _, s := range toolSituations() {
		u := s.cluster(t)
		got, message := argoHealth(t, u)
		kstatus := kstatusOf(t, u)
		want := same[kstatus]
		if toolReadings[s] == readsWaits {
			want = "Suspended"
		}
		if got != want {
			t.Errorf("%v: Argo CD says %s, want %s as kstatus says %s", s, got, want, kstatus)
		}
		if got != "Healthy" && got != "Suspended" && message != "The message." {
			t.Errorf("%v: Argo CD says %s: %q, want the message of the condition", s, got, message)
		}
	}
}

func TestArgoWaitsForDruid(t *testing.T) {
	well := toolSituation{v1alpha1.ConditionReady, "True", v1alpha1.ReasonQuorate}
	for name, change := range map[string]func(*unstructured.Unstructured){
		"edited":         func(u *unstructured.Unstructured) { u.SetGeneration(3) },
		"without status": func(u *unstructured.Unstructured) { delete(u.Object, "status") },
		"with the default": func(u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"observedGeneration": int64(-1)}
		},
		"without conditions": func(u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"observedGeneration": int64(2)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := well.cluster(t)
			change(u)
			if got, message := argoHealth(t, u); got != "Progressing" || message != "druid has not accepted the spec yet" {
				t.Errorf("Argo CD says %s: %q", got, message)
			}
		})
	}
}

func TestArgoReadsSnapshots(t *testing.T) {
	for phase, want := range map[v1alpha1.SnapshotPhase]string{
		"": "Progressing", v1alpha1.SnapshotPending: "Progressing", v1alpha1.SnapshotRunning: "Progressing",
		v1alpha1.SnapshotSucceeded: "Healthy", v1alpha1.SnapshotFailed: "Degraded",
	} {
		snapshot := &v1alpha1.EtcdSnapshot{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdSnapshot"}}
		if phase != "" {
			snapshot.Status = v1alpha1.EtcdSnapshotStatus{Phase: phase, Message: "It is " + string(phase)}
		}
		message := cmp.Or(snapshot.Status.Message, "druid has not accepted the EtcdSnapshot yet")
		if got, words := argoHealth(t, untyped(t, snapshot)); got != want || words != message {
			t.Errorf("phase %q: Argo CD says %s: %q, want %s: %q", phase, got, words, want, message)
		}
	}
}
