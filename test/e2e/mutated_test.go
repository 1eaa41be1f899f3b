package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/images"
)

// sidecar is the container that addSidecar adds.
const sidecar = "proxy"

// The admission of a service mesh adds a label and a container to each Pod. druid does not take that for an edit: the Pods stay, and it writes
// nothing. `kubectl scale` then adds two members and removes two, under a writer.
func TestScaleCommandOfChangedPods(t *testing.T) {
	stories.Begin(t)
	namespace := rig.MakeNamespace(t)
	addSidecar(t, namespace)
	c := rig.ApplyIn(t, namespace)
	view := c.AwaitMembers(t, 3, formWithin)
	hasSidecar(t, c)
	before := podsOf(t, c, view)
	version := quiet(t, c)
	if after := podsOf(t, c, view); !maps.Equal(after, before) {
		t.Errorf("the Pods are %v, and were %v", after, before)
	}
	w, s := harness.Write(t, c.EtcdService(t)), c.Sample(t)
	if cluster, err := c.Get(t.Context()); err != nil || cluster.ResourceVersion != version {
		t.Errorf("the EtcdCluster changed at rest: %v", err)
	}
	for _, replicas := range []int{5, 3} {
		kubectl(t, "", "scale", "etcdcluster", c.Name, "--namespace="+namespace, fmt.Sprint("--replicas=", replicas))
		after := c.AwaitMembers(t, replicas, scaleWithin)
		survived(t, view, after)
		hasSidecar(t, c)
		view = after
		selector := kubectl(t, "", "get", "etcdcluster", c.Name, "--namespace="+namespace, "--output=jsonpath={.status.selector}")
		selected := kubectl(t, "", "get", "pods", "--namespace="+namespace, "--selector="+selector, "--output=name")
		if got := len(strings.Fields(selected)); got != replicas {
			t.Errorf("the selector %q of the scale has %d Pods, want %d, for a HorizontalPodAutoscaler reads it", selector, got, replicas)
		}
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// hasSidecar says that each Pod of the cluster was changed.
func hasSidecar(t *testing.T, c *harness.Cluster) {
	t.Helper()
	for _, member := range c.MemberNames(t) {
		pod := c.MustPod(t, member)
		if last := pod.Spec.Containers[len(pod.Spec.Containers)-1]; pod.Labels["mesh.example.com"] != "on" || last.Name != sidecar {
			t.Errorf("Pod %s has the labels %v, and ends with the container %s", member, pod.Labels, last.Name)
		}
	}
}

// addSidecar has the API server change each new Pod of a namespace, until the test ends.
func addSidecar(t *testing.T, namespace string) {
	t.Helper()
	manifest := strings.NewReplacer("NAMESPACE", namespace, "SIDECAR", sidecar, "IMAGE", images.Pause).Replace(meshPolicy)
	kubectl(t, manifest, "apply", "--filename=-")
	t.Cleanup(func() {
		cmd := rig.Lab.KubectlCmd(context.WithoutCancel(t.Context()), "delete", "--filename=-")
		cmd.Stdin = strings.NewReader(manifest)
		_ = cmd.Run() // the rig ends with the stories
	})
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"app": "probe"}},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "probe", Image: images.Pause, SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	harness.Eventually(t, formWithin, "the API server changes Pods", func(ctx context.Context) error {
		changed := probe.DeepCopy()
		if err := rig.Client.Create(ctx, changed, client.DryRunAll); err != nil {
			return err
		}
		if len(changed.Spec.Containers) != 2 {
			return fmt.Errorf("the Pod has %d containers", len(changed.Spec.Containers))
		}
		return nil
	})
}

// kubectl returns what the command prints.
func kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := rig.Lab.KubectlCmd(t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

const meshPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAMESPACE-mesh}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [
          JSONPatch{op: "add", path: "/metadata/labels/mesh.example.com", value: "on"},
          JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{
            name: "SIDECAR", image: "IMAGE", imagePullPolicy: "Never",
            securityContext: Object.spec.containers.securityContext{
              allowPrivilegeEscalation: false,
              capabilities: Object.spec.containers.securityContext.capabilities{drop: ["ALL"]}
            }
          }}
        ]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAMESPACE-mesh}
spec: {policyName: NAMESPACE-mesh}
`
