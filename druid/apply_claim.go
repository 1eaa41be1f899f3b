package druid

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/manifests"
)

// deleteClaim deletes the very claim that the plan meant, if the plan from live reads means it too.
func (r *Reconciler) deleteClaim(ctx context.Context, o *observation, step plan.Step) error {
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

// takeClaim makes the claim go when the EtcdCluster goes. An EtcdCluster that is deleted already takes nothing with it any
// more: someone may have deleted it so that all that it owned stays, and the caches may not know. So the plan is made once
// more from live reads, and the claim must still be as it was read then.
func (r *Reconciler) takeClaim(ctx context.Context, o *observation, step plan.Step) error {
	claim := o.claims[step.Member]
	defer crash.Around("take-claim")()
	return r.setOwners(ctx, claim, append(otherOwners(o.cluster, claim), manifests.ClaimOwner(o.cluster)))
}

// releaseClaim lets the claim outlive the EtcdCluster. References to other owners are not druid's.
func (r *Reconciler) releaseClaim(ctx context.Context, o *observation, step plan.Step) error {
	claim := o.claims[step.Member]
	defer crash.Around("release-claim")()
	return r.setOwners(ctx, claim, otherOwners(o.cluster, claim))
}

// growClaim requests the size that the spec says, of the very claim that the plan saw: one that was changed since is looked at
// again.
func (r *Reconciler) growClaim(ctx context.Context, o *observation, step plan.Step) error {
	claim, size := o.claims[step.Member], o.cluster.Spec.Storage.Size.String()
	patch := map[string]any{
		"metadata": metadataPatch{UID: step.ClaimUID, ResourceVersion: claim.ResourceVersion},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]string{"storage": size}}},
	}
	crash.Before("grow-claim")
	err := client.IgnoreNotFound(r.mergePatch(ctx, claim.DeepCopy(), patch))
	crash.After("grow-claim")
	if err != nil {
		return fmt.Errorf("request %s of PersistentVolumeClaim %s: %w", size, step.Member, err)
	}
	r.inform(o, v1alpha1.EventPVCExpanded, step, "PersistentVolumeClaim %s requests %s now (%s)", step.Member, size, step.Rule)
	return nil
}

// setOwners is a compare-and-set: the list is written as a whole.
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

// ownedBy says whether the object refers to the cluster as an owner, of which it may have several.
func ownedBy(cluster *v1alpha1.EtcdCluster, object metav1.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return owner.UID == cluster.UID
	})
}
