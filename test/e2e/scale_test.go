package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// scaleWithin is how long one change of spec.replicas may take on a machine that carries other stories too.
const scaleWithin = 3 * time.Minute

func TestClusterScalesThereAndBackUnderLoad(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Replicas(1))
	view := c.AwaitMembers(t, 1, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	e := c.Evict(t, s)
	for _, replicas := range []int{3, 5, 7, 5, 3, 1} {
		t.Run(fmt.Sprintf("%d to %d", len(view.Members), replicas), func(t *testing.T) {
			w.Gap()
			after := c.ScaleTo(t, replicas, scaleWithin)
			survived(t, view, after)
			if err := w.StoodStill(harness.NoticeableGap); err != nil {
				t.Error(err)
			}
			view = after
			c.AwaitEvictable(t, evictable(replicas))
		})
	}
	e.Stop(t)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// evictable is how many members of a cluster at rest may be evicted, each by itself: all, or where none can be spared, none.
func evictable(replicas int) int {
	if replicas < 3 {
		return 0
	}
	return replicas
}

// TestTwoNodeDrainsWhileMembersJoin: two nodes are drained at once while members join.
// Whatever is evicted at the same time as members join costs no quorum: the PodDisruptionBudget counts voters. It touches
// nodes, so it runs alone. The volumes are ones that follow a Pod to another node.
func TestTwoNodeDrainsWhileMembersJoin(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.StorageClass(lab.NetworkClass))
	before := c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	nodes := rig.Lab.Nodes()[:2]
	t.Cleanup(func() { uncordon(t, nodes) })

	c.Scale(t, 5)
	await(t, c, "a fourth member", joined(4))
	cluster, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var drains errgroup.Group
	for _, node := range nodes {
		drains.Go(func() error { return drain(t.Context(), cluster, node) })
	}
	if err := drains.Wait(); err != nil {
		t.Fatal(err)
	}
	after := c.AwaitMembers(t, 5, scaleWithin)
	survived(t, before, after)
	for name := range after.Members {
		if node := c.MustPod(t, name).Spec.NodeName; slices.Contains(nodes, node) {
			t.Errorf("%s runs on %s, which was drained", name, node)
		}
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// drain empties a node of the cluster's members, and of no others, as a user does, and asks again while the budget
// refuses.
func drain(ctx context.Context, cluster *v1alpha1.EtcdCluster, node string) error {
	_, err := rig.Lab.Kubectl(ctx, "drain", node, "--delete-emptydir-data", "--force", "--timeout=10m",
		"--pod-selector="+manifests.LabelClusterUID+"="+string(cluster.UID))
	return err
}

func uncordon(t *testing.T, nodes []string) {
	t.Helper()
	for _, node := range nodes {
		if _, err := rig.Lab.Kubectl(context.WithoutCancel(t.Context()), "uncordon", node); err != nil {
			t.Errorf("uncordon %s: %v", node, err)
		}
	}
}

// survived fails the test unless the cluster, and every member that is in both views, is who it was.
func survived(t *testing.T, before, after harness.View) {
	t.Helper()
	if after.ClusterID != before.ClusterID {
		harness.Unsafe(t, "got cluster ID %s, want %s as before", after.ClusterID, before.ClusterID)
	}
	both := 0
	for name, id := range before.IDs() {
		got, stayed := after.IDs()[name]
		if !stayed {
			continue
		}
		both++
		if got != id {
			harness.Unsafe(t, "got ID %s of %s, want %s as before", got, name, id)
		}
	}
	if want := min(len(before.Members), len(after.Members)); both < want {
		harness.Unsafe(t, "%d members of %v are in %v too, want %d: a change of scale replaces no member", both, before, after, want)
	}
}
