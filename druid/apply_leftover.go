package druid

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// retainClaim takes from the claim all by which a member or a cluster could take it for its own. The cluster's name stays
// on it, for the one who looks for it.
func (r *Reconciler) retainClaim(ctx context.Context, o *observation, step plan.Step) error {
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
	r.inform(o, v1alpha1.EventPVCRetained, step, "PersistentVolumeClaim %s of a removed member stays (%s); nothing uses it any more, delete it when you do not need its data",
		step.Member, step.Rule)
	return nil
}

// deleteLease deletes the Lease of a member that left nothing else, if it says what the live read said.
func (r *Reconciler) deleteLease(ctx context.Context, o *observation, step plan.Step) error {
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
