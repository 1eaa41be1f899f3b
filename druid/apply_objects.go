package druid

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func (r *Reconciler) applyObject(ctx context.Context, o *observation, step policy.Step) error {
	state := policy.ObjectOutdated
	for _, object := range o.observed.Objects {
		if object.Kind+"/"+object.Name == step.Object {
			state = object.State
		}
	}
	defer crash.Around("apply-object")()
	return r.applyOurs(ctx, o, o.shared[step.Object], state)
}

func (r *Reconciler) applyBudget(ctx context.Context, o *observation, step policy.Step) error {
	budget, err := manifests.DisruptionBudget(o.cluster, int32(step.MinAvailable), step.Explanation)
	if err != nil {
		return err
	}
	defer crash.Around("apply-budget")()
	return r.applyOurs(ctx, o, budget, o.observed.Budget)
}

// deleteBudget deletes the PodDisruptionBudget of a cluster without Pods.
func (r *Reconciler) deleteBudget(ctx context.Context, o *observation, _ policy.Step) error {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: manifests.DisruptionBudgetName(o.cluster.Name)}}
	return r.deleteOurs(ctx, o, "PodDisruptionBudget", budget)
}

// deleteObject deletes an object that the spec does not request any more.
func (r *Reconciler) deleteObject(ctx context.Context, o *observation, step policy.Step) error {
	for _, object := range optionals(o.cluster) {
		if object.kind+"/"+object.name == step.Object {
			object.live.SetName(object.name)
			return r.deleteOurs(ctx, o, object.kind, object.live)
		}
	}
	return fmt.Errorf("delete %s: the cluster does not work without this object", step.Object)
}

// deleteOurs deletes the object with that name, if the cluster owns it.
func (r *Reconciler) deleteOurs(ctx context.Context, o *observation, kind string, object client.Object) error {
	name := object.GetName()
	if err := r.live.Get(ctx, key(o, name), object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !ours(o.cluster, object) {
		return &foreignError{kind: kind, name: name}
	}
	defer crash.Around("delete-object")()
	return client.IgnoreNotFound(r.client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}))
}

// applyOurs writes the object with server-side apply. It only creates an object that the caches do not have. It reads
// an existing object live first, so that it never takes over an object with another owner.
func (r *Reconciler) applyOurs(ctx context.Context, o *observation, a manifests.Applied, state policy.ObjectState) error {
	if state == policy.ObjectAbsent {
		if err := r.applyNew(ctx, a); !apierrors.IsConflict(err) {
			return err
		}
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(a.Kind)
	switch err := r.live.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, live); {
	case client.IgnoreNotFound(err) != nil:
		return err
	case err != nil:
		return r.applyNew(ctx, a)
	case !ours(o.cluster, live):
		return &foreignError{kind: a.Kind.Kind, name: a.Name}
	}
	apply := func() error {
		object, err := unstructuredOf(a)
		if err != nil {
			return err
		}
		return r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(control.FieldOwner), client.ForceOwnership)
	}
	refused := apply()
	if !apierrors.IsInvalid(refused) {
		return refused
	}
	switch made, err := r.resolveConflict(ctx, o, a); {
	case err != nil:
		return err
	case !made:
		return refused
	}
	return apply()
}

// resolveConflict removes fields that someone set by hand on an object of the cluster and that the API server does not
// accept together with the applied fields. It says whether there were any. Apply alone never removes fields of others
// and would be rejected permanently. The object is not replaced, so that no client loses an address and the budget
// always exists.
func (r *Reconciler) resolveConflict(ctx context.Context, o *observation, a manifests.Applied) (bool, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(a.Kind)
	if err := r.live.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, live); err != nil {
		return false, err
	}
	if !ours(o.cluster, live) {
		return false, &foreignError{kind: a.Kind.Kind, name: a.Name}
	}
	patch, err := a.ConflictPatch(live)
	if err != nil || patch == nil {
		return false, err
	}
	// The rest of the object, and its owner, must be as they were when druid removed the conflict.
	metadata := metadataPatch{UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion()}
	if err := r.mergePatch(ctx, live, map[string]any{"metadata": metadata, "spec": patch}); err != nil {
		return false, fmt.Errorf("remove from %s %s the fields that conflict with those of druid: %w", a.Kind.Kind, a.Name, err)
	}
	r.log.InfoContext(ctx, "conflicting fields removed", "namespace", a.Namespace, "cluster", o.cluster.Name,
		"object", a.Kind.Kind+"/"+a.Name)
	return true, nil
}

// applyNew creates the object, or returns Conflict if it exists. Apply alone would overwrite it.
func (r *Reconciler) applyNew(ctx context.Context, a manifests.Applied) error {
	object, err := unstructuredOf(a)
	if err != nil {
		return err
	}
	object.SetResourceVersion(versionOfNothing)
	return r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(control.FieldOwner))
}

// unstructuredOf returns the object without its type: the client does not know the type of a Certificate.
func unstructuredOf(a manifests.Applied) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a.Configuration)
	if err != nil {
		return nil, fmt.Errorf("apply %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

// versionOfNothing is a resourceVersion that no object ever has: the revision of an etcd without writes. The API
// server compares it with an existing object and ignores it if there is none.
const versionOfNothing = "1"

// deleteClaim deletes exactly the claim of the plan, if the plan from live reads contains the step too.
func (r *Reconciler) deleteClaim(ctx context.Context, o *observation, step policy.Step) error {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.Namespace, Name: step.Member}}
	crash.Before("delete-claim")
	err := client.IgnoreNotFound(r.client.Delete(ctx, claim, client.Preconditions{UID: new(types.UID(step.ClaimUID))}))
	crash.After("delete-claim")
	if err != nil {
		return fmt.Errorf("delete PersistentVolumeClaim %s: %w", step.Member, err)
	}
	r.inform(o, v1alpha1.EventPVCDeleted, step, "PersistentVolumeClaim %s was deleted (%s)", step.Member, step.Rule)
	return nil
}

// takeClaim adds the owner reference by which the claim is deleted with the EtcdCluster. An EtcdCluster that is
// already deleted takes no claim: a user can have deleted it with orphaned objects before the caches know. The plan is
// therefore made again from live reads, and the claim must not have changed since.
func (r *Reconciler) takeClaim(ctx context.Context, o *observation, step policy.Step) error {
	claim := o.claims[step.Member]
	defer crash.Around("take-claim")()
	return r.setOwners(ctx, claim, append(otherOwners(o.cluster, claim), manifests.ClaimOwner(o.cluster)))
}

// releaseClaim removes the owner reference, so that the claim outlives the EtcdCluster. References to other owners
// stay.
func (r *Reconciler) releaseClaim(ctx context.Context, o *observation, step policy.Step) error {
	claim := o.claims[step.Member]
	defer crash.Around("release-claim")()
	return r.setOwners(ctx, claim, otherOwners(o.cluster, claim))
}

// growClaim requests the size in the spec from exactly the claim of the plan. A claim that changed since is observed
// again.
func (r *Reconciler) growClaim(ctx context.Context, o *observation, step policy.Step) error {
	claim, size := o.claims[step.Member], o.cluster.Spec.Storage.Size.String()
	patch := map[string]any{
		"metadata": metadataPatch{UID: step.ClaimUID, ResourceVersion: claim.ResourceVersion},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]string{"storage": size}}},
	}
	crash.Before("grow-claim")
	err := client.IgnoreNotFound(r.mergePatch(ctx, claim.DeepCopy(), patch))
	crash.After("grow-claim")
	if err != nil {
		return fmt.Errorf("request %s for PersistentVolumeClaim %s: %w", size, step.Member, err)
	}
	r.inform(o, v1alpha1.EventPVCExpanded, step, "PersistentVolumeClaim %s requests %s now (%s)", step.Member, size, step.Rule)
	return nil
}

// setOwners is a compare-and-set, because it writes the complete list.
func (r *Reconciler) setOwners(ctx context.Context, claim *corev1.PersistentVolumeClaim, owners []metav1.OwnerReference) error {
	return client.IgnoreNotFound(r.patchMetadata(ctx, claim.DeepCopy(), metadataPatch{
		UID: string(claim.UID), ResourceVersion: claim.ResourceVersion, OwnerReferences: &owners,
	}))
}

func otherOwners(cluster *v1alpha1.EtcdCluster, object metav1.Object) []metav1.OwnerReference {
	others := slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), func(owner metav1.OwnerReference) bool {
		return owner.UID == cluster.UID
	})
	return slices.Concat([]metav1.OwnerReference{}, others) // never nil: an empty list is written, a missing one is not
}

// ownedBy says whether the object has an owner reference to the cluster. It can have several owners.
func ownedBy(cluster *v1alpha1.EtcdCluster, object metav1.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return owner.UID == cluster.UID
	})
}

// retainClaim removes from the claim everything by which a member or a cluster could use it. The name of the cluster
// stays, so that a user can find it.
func (r *Reconciler) retainClaim(ctx context.Context, o *observation, step policy.Step) error {
	claim := o.claims[step.Member]
	owners := otherOwners(o.cluster, claim)
	crash.Before("retain-claim")
	err := client.IgnoreNotFound(r.patchMetadata(ctx, claim.DeepCopy(), metadataPatch{
		UID:             string(claim.UID),
		ResourceVersion: claim.ResourceVersion,
		OwnerReferences: &owners,
		Labels: map[string]*string{
			manifests.LabelClusterUID: nil,
			leases.LabelComponent:     nil,
			leases.LabelMember:        nil,
		},
	}))
	crash.After("retain-claim")
	if err != nil {
		return fmt.Errorf("retain PersistentVolumeClaim %s: %w", step.Member, err)
	}
	r.inform(o, v1alpha1.EventPVCRetained, step,
		"PersistentVolumeClaim %s of a removed member stays (%s). Nothing uses it any more. Delete it when you do not need its data",
		step.Member, step.Rule)
	return nil
}

// deleteLease deletes the Lease of a member that has no other object, if the Lease is as the live read found it.
func (r *Reconciler) deleteLease(ctx context.Context, o *observation, step policy.Step) error {
	live := o.leases[step.Member]
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.Namespace, Name: step.Member}}
	crash.Before("delete-lease")
	err := client.IgnoreNotFound(r.client.Delete(ctx, lease, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}))
	crash.After("delete-lease")
	if err != nil {
		return fmt.Errorf("delete Lease %s: %w", step.Member, err)
	}
	return nil
}
