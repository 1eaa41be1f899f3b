package druid

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// snapshotCount is the flag of the agent in the member's Pod.
func (c *clocked) snapshotCount(name string) string {
	c.Helper()
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	for _, container := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if container.Name != manifests.ContainerAgent {
			continue
		}
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if value, ok := strings.CutPrefix(arg, "--snapshot-count="); ok {
				return value
			}
		}
	}
	return ""
}

// A count that is too large for a change of version is lowered while the edit of the version stands, and at once: each Pod gets it as the version that
// it runs, and only then the version.
func TestASmallerSnapshotCountReachesThePodsBeforeTheVersion(t *testing.T) {
	const why = "a member has 200000"
	c, names := renewed(t)
	for i := range names {
		c.runsVersion(names, i, "3.6.16")
	}
	c.patchCluster(`{"spec":{"version":"3.6.16"}}`)
	for _, i := range []int{1, 2, 0} {
		c.pass()
		c.after(settled)
		c.isGoing("for an image of the version that all run", names, names[i])
		c.replace(names[i])
		c.kubelet(names[i], true)
		c.runsVersion(names, i, "3.6.16")
	}
	c.pass()
	c.after(settled)
	c.patchCluster(`{"spec":{"version":"3.7.4"}}`)
	c.pass()
	c.after(settled)
	c.compares(leases.UpgradeAwaitsEdit, why)
	c.pass()
	c.progresses(v1alpha1.ReasonUpgradeBlocked, why)
	c.isGoing("while the count is too large", names)

	c.patchCluster(`{"spec":{"etcd":{"snapshotCount":10000}}}`)
	c.pass()
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil || cluster.Status.ObservedGeneration != cluster.Generation {
		t.Fatalf("generation %d of the spec is adopted, want %d: %v", cluster.Status.ObservedGeneration, cluster.Generation, err)
	}
	// The Pod of an eviction comes with it, and says nothing of the others.
	if err := c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: names[2]}}); err != nil {
		t.Fatal(err)
	}
	c.pass()
	comes := func(i int, version string) {
		t.Helper()
		c.replace(names[i])
		if is, count := c.etcdImage(names[i]), c.snapshotCount(names[i]); !strings.HasSuffix(is, ":v"+version) || count != "10000" {
			t.Fatalf("the Pod of %s comes with %s and snapshot count %q, want %s and 10000", names[i], is, count, version)
		}
		c.kubelet(names[i], true)
		c.runsVersion(names, i, version)
		c.pass()
		c.after(settled)
	}
	comes(2, "3.6.16")
	for _, i := range []int{1, 0} {
		c.isGoing("before the members were asked", names)
		c.compares(leases.UpgradeAwaitsEdit, why)
		c.pass()
		c.isGoing("with the count of before", names, names[i])
		comes(i, "3.6.16")
	}
	c.isGoing("before the members were compared", names)
	c.compares(leases.UpgradeAgree, "")
	c.pass()
	c.isGoing("when they were equal", names, names[1])
	comes(1, "3.7.4")
}
