package druid

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/test/env"
)

// Without the policy or its binding, a stolen token of an agent reports for another member. The plugin says so, and the installation puts
// both back. It has an API server of its own, because its policies hold for all namespaces.
func TestAGonePolicyIsReported(t *testing.T) {
	t.Parallel()
	s := stageOn(t, env.OwnAPIServer(t))
	s.startDruid()
	names := s.whole(3)
	var pod corev1.Pod
	if err := s.fetch(names[0], &pod); err != nil {
		t.Fatal(err)
	}
	agent, forged := s.asAgent(&pod), attempt{lease: names[1], patch: `{"metadata":{"annotations":{"etcd.druid.dev/revision":"9"}}}`}
	refused := func(want bool) {
		t.Helper()
		s.eventually(fmt.Sprintf("the forged report is refused: %t", want), func() error {
			err := s.patchLease(agent, forged, client.DryRunAll)
			if err != nil && !apierrors.IsForbidden(err) || apierrors.IsForbidden(err) != want {
				return fmt.Errorf("it is answered with %w", err)
			}
			return nil
		})
	}
	const policy = "druid-agent-leases"
	plugin, kubeconfig := env.Program(t, "./cmd/kubectl-druid"), s.kubeconfigOf("")
	reports := func(want string) {
		t.Helper()
		output, _ := exec.CommandContext(t.Context(), plugin, "--kubeconfig="+kubeconfig, "check").CombinedOutput() // other checks fail here
		for line := range strings.Lines(string(output)) {
			if strings.HasPrefix(line, "Policies ") && strings.Contains(line, want) {
				return
			}
		}
		t.Errorf("kubectl druid check does not say %q of the policies:\n%s", want, output)
	}
	meta := metav1.ObjectMeta{Name: policy}
	refused(true)
	reports("OK")
	for name, object := range map[string]client.Object{
		"the binding": &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta},
		"the policy":  &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta},
	} {
		if err := s.Delete(t.Context(), object); err != nil {
			t.Fatalf("delete %s: %v", name, err)
		}
		refused(false)
		reports(policy)
		s.install("admission.yaml")
		refused(true)
		reports("OK")
	}
	// druid runs as another user than the one that the policies name.
	labels := map[string]string{"app.kubernetes.io/name": "druid"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "druid-system", Name: "druid", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{ServiceAccountName: "druid", Containers: []corev1.Container{{Name: "druid", Image: "druid"}}},
		}},
	}
	if err := s.Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	reports("OK")
	deployment.Spec.Template.Spec.ServiceAccountName = "operator"
	if err := s.Update(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	reports("Not about each user of druid, system:serviceaccount:druid-system:operator: druid-authorities, druid-certificates")
}
