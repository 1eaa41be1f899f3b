package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The containers of a member's Pod.
const (
	ContainerEtcd  = "etcd"
	ContainerAgent = "agent"
)

// Restarts is how often a container of a member's Pod was started again.
func (c *Cluster) Restarts(t testing.TB, member, container string) int32 {
	t.Helper()
	pod := c.MustPod(t, member)
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container {
			return s.RestartCount
		}
	}
	t.Fatalf("Pod %s has no status of container %s", member, container)
	return 0
}

// AwaitPodReady waits until a successor of the Pod with the former UID is ready.
func (c *Cluster) AwaitPodReady(t testing.TB, member, formerUID string, within time.Duration) {
	t.Helper()
	Eventually(t, within, "a ready successor of Pod "+member, func(ctx context.Context) error {
		pod, err := c.Pod(ctx, member)
		switch {
		case err != nil:
			return err
		case string(pod.UID) == formerUID:
			return errors.New("the former Pod still exists")
		case !has(pod, ContainerEtcd, func(s corev1.ContainerStatus) bool { return s.Ready }):
			return errors.New("its etcd is not ready")
		}
		return nil
	})
}

// SetImage changes the image of a running Pod's container in place, and returns the image that it had.
func (c *Cluster) SetImage(t testing.TB, member, container, image string) (before string) {
	t.Helper()
	pod := c.MustPod(t, member)
	list, i := "containers", slices.IndexFunc(pod.Spec.Containers, named(container))
	containers := pod.Spec.Containers
	if i < 0 {
		list, containers = "initContainers", pod.Spec.InitContainers
		i = slices.IndexFunc(containers, named(container))
	}
	if i < 0 {
		t.Fatalf("Pod %s has no container %s", member, container)
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": fmt.Sprintf("/spec/%s/%d/name", list, i), "value": container},
		{"op": "replace", "path": fmt.Sprintf("/spec/%s/%d/image", list, i), "value": image},
	})
	if err != nil {
		t.Fatalf("patch of Pod %s: %v", member, err)
	}
	if err := c.Rig.Client.Patch(t.Context(), pod, client.RawPatch("application/json-patch+json", patch)); err != nil {
		t.Fatalf("set the image of %s in Pod %s: %v", container, member, err)
	}
	return containers[i].Image
}

func named(name string) func(corev1.Container) bool {
	return func(c corev1.Container) bool { return c.Name == name }
}

// helperUser is the user of the Pods that the tests run next to a cluster.
const helperUser = int64(65532)

// awaitContainer waits until the only container of a Pod is ready, and reads the Pod.
func (r *Rig) awaitContainer(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	Eventually(t, maxWait, "Pod "+pod.Namespace+"/"+pod.Name+" is ready", func(ctx context.Context) error {
		if err := r.Client.Get(ctx, Key(pod.Namespace, pod.Name), pod); err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
}

// unprivilegedPod and unprivileged are what the restricted Pod Security Standard requires of a Pod and of its container.
func unprivilegedPod() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(helperUser), RunAsGroup: new(helperUser), FSGroup: new(helperUser),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
