package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// inMemory stores the members' data in the memory of their nodes.
func inMemory(c *v1alpha1.EtcdCluster) {
	c.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("256Mi"), Medium: v1alpha1.StorageMemory}
	c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
}

func TestMembersInMemoryHealFromEachOther(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, inMemory)
	view := c.Agree(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	var claims corev1.PersistentVolumeClaimList
	if err := rig.Client.List(t.Context(), &claims, client.InNamespace(c.Namespace)); err != nil || len(claims.Items) > 0 {
		t.Errorf("there are claims: %v, %v", claims.Items, err)
	}
	t.Run("an etcd that ends resumes on what its Pod holds", func(t *testing.T) {
		member := view.Follower()
		c.Kill(t, member, harness.Etcd)
		w.AwaitWrites(t, 100, scaleWithin)
		after := c.Agree(t, 3, scaleWithin)
		same(t, view, after)
	})
	t.Run("a member whose Pod is lost gets its data from the others", func(t *testing.T) {
		member := view.Follower()
		uid := string(c.MustPod(t, member).UID)
		c.Delete(t, &corev1.Pod{}, member)
		c.AwaitPodReady(t, member, uid, scaleWithin)
		harness.Eventually(t, scaleWithin, member+" under a new ID", func(ctx context.Context) error {
			says, err := c.Member(ctx, member)
			if err == nil && fmt.Sprintf("%x", says.ID) == view.IDs()[member] {
				err = errors.New("it has its former ID")
			}
			return err
		})
		after := c.Agree(t, 3, scaleWithin)
		if after.ClusterID != view.ClusterID {
			harness.Unsafe(t, "cluster ID is %s, want %s", after.ClusterID, view.ClusterID)
		}
		view = after
	})
	t.Run("an edit replaces one member after another, never two", func(t *testing.T) {
		before := podsOf(t, c, view)
		c.Edit(t, `{"spec":{"resources":{"requests":{"cpu":"101m"}}}}`)
		harness.Eventually(t, 2*scaleWithin, "other Pods", func(ctx context.Context) error {
			for member, uid := range before {
				if pod, err := c.Pod(ctx, member); err != nil || string(pod.UID) == uid {
					return errors.Join(err, fmt.Errorf("Pod %s is the one that was there before", member))
				}
			}
			return nil
		})
		c.AwaitCondition(t, 2*scaleWithin, "Progressing", "False", "Reconciled")
		if after := c.Agree(t, 3, scaleWithin); after.ClusterID != view.ClusterID {
			harness.Unsafe(t, "cluster ID is %s, want %s", after.ClusterID, view.ClusterID)
		}
	})
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}
