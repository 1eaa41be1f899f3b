package harness

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

// Claim is the kind of object that holds a member's data.
const Claim = "PersistentVolumeClaim"

// belongings are the kinds of objects that a cluster has.
var belongings = []schema.GroupVersionKind{
	coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	corev1.SchemeGroupVersion.WithKind("Pod"),
	corev1.SchemeGroupVersion.WithKind(Claim),
	corev1.SchemeGroupVersion.WithKind("Service"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
}

// Belongings are the objects that bear the cluster's name as a label, as sorted Kind/name.
func (c *Cluster) Belongings(ctx context.Context) ([]string, error) {
	var all []string
	for _, kind := range belongings {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := c.Rig.Client.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabels{leases.LabelCluster: c.Name})
		if err != nil {
			return nil, fmt.Errorf("list %s of %s: %w", kind.Kind, c, err)
		}
		for _, object := range list.Items {
			all = append(all, kind.Kind+"/"+object.Name)
		}
	}
	slices.Sort(all)
	return all, nil
}

// AwaitLeft waits until nothing is left of the cluster but the objects named as Kind/name.
func (c *Cluster) AwaitLeft(t testing.TB, within time.Duration, left ...string) time.Duration {
	t.Helper()
	want := slices.Sorted(slices.Values(left))
	return Eventually(t, within, fmt.Sprintf("only %v left of %s", want, c), func(ctx context.Context) error {
		got, err := c.Belongings(ctx)
		if err == nil && !slices.Equal(got, want) {
			err = differ("what is left", got, want)
		}
		return err
	})
}
