package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

// ScaleTo sets spec.replicas and waits until the cluster has stable at that.
func (c *Cluster) ScaleTo(t testing.TB, replicas int, within time.Duration) View {
	t.Helper()
	begun := time.Now()
	c.Scale(t, int32(replicas))
	view := c.AwaitMembers(t, replicas, within)
	t.Logf("stable at %d after %s", replicas, time.Since(begun).Round(100*time.Millisecond))
	return view
}

// AwaitMembers waits until all agree on so many members, and there is one Lease, one PersistentVolumeClaim and one Pod of each
// and none of anybody else.
func (c *Cluster) AwaitMembers(t testing.TB, replicas int, within time.Duration) View {
	t.Helper()
	view := c.Agree(t, replicas, within)
	Eventually(t, within, fmt.Sprintf("nothing left of others than the %d members of %s", replicas, c), func(ctx context.Context) error {
		for what, list := range map[string]client.ObjectList{
			"Leases": &coordinationv1.LeaseList{}, "PersistentVolumeClaims": &corev1.PersistentVolumeClaimList{}, "Pods": &corev1.PodList{},
		} {
			got, err := c.namesOf(ctx, list)
			if err != nil {
				return err
			}
			if want := slices.Sorted(maps.Keys(view.Members)); !slices.Equal(got, want) {
				return differ("the members with "+what, got, want)
			}
		}
		return nil
	})
	return view
}

// namesOf are the names of the members that have an object in a list, sorted.
func (c *Cluster) namesOf(ctx context.Context, list client.ObjectList) ([]string, error) {
	err := c.Rig.Client.List(ctx, list, client.InNamespace(c.Namespace),
		client.MatchingLabels{leases.LabelCluster: c.Name}, client.HasLabels{leases.LabelMember})
	if err != nil {
		return nil, err
	}
	var names []string
	err = meta.EachListItem(list, func(object runtime.Object) error {
		names = append(names, object.(client.Object).GetName())
		return nil
	})
	slices.Sort(names)
	return names, err
}
