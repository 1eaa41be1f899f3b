package druid

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// belongings are the kinds of objects that a cluster has, in the worst order in which they could be deleted: what the
// agents read goes before the agents.
var belongings = []schema.GroupVersionKind{
	coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	corev1.SchemeGroupVersion.WithKind("Pod"),
}

// belongingsOf are the objects that bear the cluster's name as a label, anyone who owns them.
func (s *stage) belongingsOf(cluster string) []metav1.PartialObjectMetadata {
	s.Helper()
	var all []metav1.PartialObjectMetadata
	for _, kind := range belongings {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := s.List(s.Context(), list, client.InNamespace(s.namespace), client.MatchingLabels{leases.LabelCluster: cluster})
		if err != nil {
			s.Fatalf("list %s: %v", kind.Kind, err)
		}
		for _, object := range list.Items {
			object.SetGroupVersionKind(kind)
			all = append(all, object)
		}
	}
	return all
}

// versions of the objects by kind and name: equal ones were not written in between.
func versions(objects []metav1.PartialObjectMetadata) map[string]string {
	found := map[string]string{}
	for _, object := range objects {
		found[object.Kind+"/"+object.Name] = string(object.UID) + " " + object.ResourceVersion
	}
	return found
}

// delete deletes an EtcdCluster and returns its UID.
func (s *stage) delete(cluster string, propagation metav1.DeletionPropagation) types.UID {
	s.Helper()
	var c v1alpha1.EtcdCluster
	if err := s.fetch(cluster, &c); err != nil {
		s.Fatal(err)
	}
	if err := s.Delete(s.Context(), &c, client.PropagationPolicy(propagation)); err != nil {
		s.Fatalf("delete EtcdCluster %s: %v", cluster, err)
	}
	return c.UID
}

// collect does what the garbage collector does with what an EtcdCluster owned that was deleted.
func (s *stage) collect(cluster string, owner types.UID) {
	s.Helper()
	for _, object := range s.belongingsOf(cluster) {
		if !slices.ContainsFunc(object.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner }) {
			continue
		}
		if err := client.IgnoreNotFound(s.Delete(s.Context(), &object, client.GracePeriodSeconds(0))); err != nil {
			s.Fatalf("delete %s %s: %v", object.Kind, object.Name, err)
		}
	}
}

// orphan does what the garbage collector does with what an EtcdCluster owned that was deleted without it.
func (s *stage) orphan(cluster string) {
	s.Helper()
	for _, object := range s.belongingsOf(cluster) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))
		if err := s.Patch(s.Context(), &object, patch); err != nil {
			s.Fatalf("orphan %s %s: %v", object.Kind, object.Name, err)
		}
	}
	s.released(cluster)
}

// released ends the EtcdCluster that only waited for the garbage collector.
func (s *stage) released(cluster string) {
	s.Helper()
	s.eventually("the end of EtcdCluster "+cluster, func() error {
		var c v1alpha1.EtcdCluster
		if err := s.fetch(cluster, &c); err != nil {
			return client.IgnoreNotFound(err)
		}
		c.Finalizers = nil
		if err := s.Update(s.Context(), &c); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// owners of each claim of the cluster, by name.
func (s *stage) owners(cluster string) map[string][]metav1.OwnerReference {
	s.Helper()
	found := map[string][]metav1.OwnerReference{}
	for _, object := range s.belongingsOf(cluster) {
		if object.Kind == "PersistentVolumeClaim" {
			found[object.Name] = object.OwnerReferences
		}
	}
	return found
}

// retain edits what becomes of the claims when the EtcdCluster is deleted.
func (s *stage) retain(policy v1alpha1.PersistentVolumeClaimRetention) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec":{"storage":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":%q}}}}`, policy)
	target := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo"}}
	if err := s.Patch(s.Context(), target, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// writes are the calls by which druid changed something, the status of an EtcdCluster included.
func (c *calls) writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.made), func(call string) bool { return strings.HasPrefix(call, "GET ") })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
