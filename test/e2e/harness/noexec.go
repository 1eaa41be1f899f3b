package harness

import (
	"context"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
)

// MountAgentVolumeNoexec makes the emptyDir that the agent and etcd of a member share one from which nothing can be
// executed, as on nodes whose kubelet directory is mounted so. A container that starts later gets it.
func (c *Cluster) MountAgentVolumeNoexec(t testing.TB, member string) {
	t.Helper()
	pod := c.MustPod(t, member)
	name := ""
	for _, container := range pod.Spec.Containers {
		for _, m := range container.VolumeMounts {
			if m.MountPath == config.AgentDir {
				name = m.Name
			}
		}
	}
	dir := "/var/lib/kubelet/pods/" + string(pod.UID) + "/volumes/kubernetes.io~empty-dir/" + name
	for _, argv := range [][]string{
		{"mount", "--bind", dir, dir},
		{"mount", "-o", "remount,bind,noexec", dir},
	} {
		if out, err := c.Rig.Lab.ExecNode(t.Context(), pod.Spec.NodeName, argv...); err != nil {
			t.Fatalf("mount the volume of Pod %s noexec: %v: %s", member, err, out)
		}
	}
	t.Cleanup(func() { c.unmount(t, pod.Spec.NodeName, dir) })
}

// unmount lets the kubelet remove the volume, which it cannot while another mount lies on it.
func (c *Cluster) unmount(t testing.TB, node, dir string) {
	t.Helper()
	if out, err := c.Rig.Lab.ExecNode(context.WithoutCancel(t.Context()), node, "umount", "--lazy", dir); err != nil {
		t.Errorf("unmount %s on node %s: %v: %s", dir, node, err, out)
	}
}
