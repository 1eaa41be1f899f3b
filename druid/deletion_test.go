package druid

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/leases"
)

// phases bring a cluster called name to where it is deleted.
var phases = map[string]func(s *stage, name string){
	"paused":  func(s *stage, name string) { s.createCluster(name, 0) },
	"forming": func(s *stage, name string) { s.createCluster(name, 3); s.members(name, 3) },
	"formed":  func(s *stage, name string) { s.formed(name, 3) },
	"scaling-up": func(s *stage, name string) {
		s.formed(name, 1)
		s.scale(name, 3)
		s.members(name, 3)
	},
	"draining": func(s *stage, name string) {
		names := s.formed(name, 5)
		s.scale(name, 3)
		for i, state := range []string{"requested", "removing", "done"} {
			s.editLease(names[i], func(l *coordinationv1.Lease) {
				l.Annotations[leases.AnnotationRemoval] = fmt.Sprintf(`{"state":%q,"mark":"test"}`, state)
			})
		}
	},
	"degraded": func(s *stage, name string) { s.kubelet(s.formed(name, 3)[0], false) },
	"record-unreadable": func(s *stage, name string) {
		s.formed(name, 1)
		s.editLease(leases.RecordName(name), func(l *coordinationv1.Lease) { l.Annotations["etcd.druid.dev/epoch"] = "many" })
		s.condition(name, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonRecordUnreadable)
	},
	"record-not-owned": func(s *stage, name string) {
		foreign := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: leases.RecordName(name)}}
		if err := s.Create(s.Context(), foreign); err != nil {
			s.Fatal(err)
		}
		s.createCluster(name, 3)
		s.condition(name, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonObjectNotOwned)
	},
	"record-lost": func(s *stage, name string) {
		s.createCluster(name, 3)
		s.members(name, 3)
		s.deleteLease(leases.RecordName(name))
		s.condition(name, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonRecordLost)
	},
}

// formed makes a formed cluster called name.
func (s *stage) formed(name string, count int32) []string {
	s.Helper()
	s.createCluster(name, count)
	names := s.members(name, int(count))
	s.form(name, names)
	s.condition(name, v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	return names
}

func (s *stage) scale(cluster string, replicas int32) {
	s.Helper()
	s.eventually("scale "+cluster, func() error {
		var c v1alpha1.EtcdCluster
		if err := s.fetch(cluster, &c); err != nil {
			return err
		}
		c.Spec.Replicas = replicas
		return s.Update(s.Context(), &c)
	})
}

func (s *stage) editLease(name string, change func(*coordinationv1.Lease)) {
	s.Helper()
	s.eventually("edit Lease "+name, func() error {
		var lease coordinationv1.Lease
		if err := s.fetch(name, &lease); err != nil {
			return err
		}
		change(&lease)
		return s.Update(s.Context(), &lease)
	})
}

// Whatever a cluster is at when it is deleted: druid makes nothing any more, writes nothing and deletes nothing. The
// garbage collector alone takes what it owned.
func TestDeletedInAnyPhaseAClusterIsLeftToGo(t *testing.T) {
	t.Parallel()
	for _, propagation := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(propagation), func(t *testing.T) {
			s := newStage(t)
			s.startDruid()
			for name, reach := range phases {
				reach(s, name)
			}
			s.eventually("rest before the deletion", func() error { return s.rests() })
			for name := range phases {
				s.delete(name, propagation)
			}
			s.eventually("see the deletion", func() error { return s.rests() })
			before := s.calls.writes()
			for name := range phases {
				for _, object := range s.belongingsOf(name) {
					if object.Kind == "PersistentVolumeClaim" {
						continue
					}
					if err := client.IgnoreNotFound(s.Delete(t.Context(), &object, client.GracePeriodSeconds(0))); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.eventually("rest after all is gone", func() error { return s.rests() })
			if after := s.calls.writes(); len(after) != len(before) {
				t.Errorf("druid wrote after the deletion: %v", after[len(before):])
			}
			if deletes := s.calls.matching("DELETE", ""); len(deletes) != 0 {
				t.Errorf("druid deleted %v", deletes)
			}
			for name := range phases {
				for _, object := range s.belongingsOf(name) {
					if object.Kind != "PersistentVolumeClaim" {
						t.Errorf("%s: %s %s is there again", name, object.Kind, object.Name)
					} else if len(object.OwnerReferences) > 0 || object.DeletionTimestamp != nil {
						t.Errorf("%s: claim %s does not stay: %+v", name, object.Name, object.ObjectMeta)
					}
				}
			}
		})
	}
}

func TestNamespaceThatGoesIsLeftInPeace(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	stop()
	s.createCluster("unborn", 1)
	if err := s.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}); err != nil {
		t.Fatal(err)
	}
	// What the namespace controller deletes before the EtcdCluster.
	s.end(names[0])
	s.deleteLease(names[1])
	s.deleteLease(leases.RecordName("demo"))
	r := s.reconciler(s.Client)
	for _, name := range []string{"demo", "unborn"} {
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: s.namespace, Name: name}})
		if err != nil || result.RequeueAfter != control.NamePause {
			t.Errorf("%s: got %+v and error %v, want to look again in %s without a word", name, result, err, control.NamePause)
		}
		var cluster v1alpha1.EtcdCluster
		if err := s.fetch(name, &cluster); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDegraded); c != nil && c.Reason == v1alpha1.ReasonAPIRequestRejected {
			t.Errorf("%s: a namespace that goes is reported as something to repair: %s", name, c.Message)
		}
	}
}

// behind is a client whose cache has not heard that the cluster was deleted, and of an API server that lacks what the
// garbage collector took already: a Pod needs its ServiceAccount.
type behind struct {
	client.Client
	cluster v1alpha1.EtcdCluster
}

func (b behind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if cluster, ok := object.(*v1alpha1.EtcdCluster); ok {
		b.cluster.DeepCopyInto(cluster)
		return nil
	}
	return b.Client.Get(ctx, key, object, options...)
}

func (behind) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, object.GetName(), errors.New("no such ServiceAccount"))
}

// TestDeletionDuringPassIsNoError: a cluster that is deleted during a pass is no error.
func TestDeletionDuringPassIsNoError(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	stop()
	r := s.reconciler(s.Client)
	stale := behind{Client: s.Client}
	if err := s.fetch("demo", &stale.cluster); err != nil {
		t.Fatal(err)
	}
	s.end(names[0])
	r.client = stale
	if err := s.reconcile(r); !apierrors.IsForbidden(err) {
		t.Errorf("a Pod is refused: got %v, want that error", err)
	}
	s.delete("demo", metav1.DeletePropagationForeground)
	if err := s.reconcile(r); err != nil {
		t.Errorf("the cluster is being deleted: %v", err)
	}
	s.released("demo")
	if err := s.reconcile(r); err != nil {
		t.Errorf("the cluster is gone: %v", err)
	}
}

// belongings are the kinds of objects that a cluster has, in the worst order in which they could be deleted: what the
// agents read goes before the agents.
var belongings = []schema.GroupVersionKind{
	coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
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
	return slices.DeleteFunc(slices.Clone(c.made), reads)
}

func reads(call string) bool { return strings.HasPrefix(call, "GET ") }

// writes says whether one of the calls writes.
func writes(calls []string) bool {
	return slices.ContainsFunc(calls, func(call string) bool { return !reads(call) })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
