package druid

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// saveTTL is how long the EtcdSnapshot before a change of version is kept once it is over, in seconds: a week, in which a person may
// want to know of it. The backup itself is retention's.
const saveTTL = 7 * 24 * 60 * 60

// createSave asks for the verified full backup before a change of version. One that exists already is taken as it is.
func (r *Reconciler) createSave(ctx context.Context, o *observation, step plan.Step) error {
	snapshot := &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.cluster.Namespace, Name: step.Object, Labels: map[string]string{leases.LabelCluster: o.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.cluster, v1alpha1.GroupVersion.WithKind("EtcdCluster"))},
		},
		Spec: v1alpha1.EtcdSnapshotSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: o.cluster.Name}, Type: v1alpha1.SnapshotFull, Verify: true,
			TTLSecondsAfterFinished: new(int32(saveTTL)),
		},
	}
	crash.Before("create-snapshot")
	err := r.client.Create(ctx, snapshot)
	crash.After("create-snapshot")
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create EtcdSnapshot %s: %w", step.Object, err)
	}
	return nil
}

// orderUpgrade writes on the record what the leader's agent is to find out, or takes that off it, with the answer to what stood there
// before. It is a compare-and-set on the record as a live read showed it.
func (r *Reconciler) orderUpgrade(ctx context.Context, o *observation, step plan.Step) error {
	annotations := map[string]*string{leases.AnnotationUpgradeOrder: nil, leases.AnnotationUpgradeAnswer: nil}
	if step.Order.Nonce != "" {
		value, err := step.Order.Encode()
		if err != nil {
			return err
		}
		annotations[leases.AnnotationUpgradeOrder] = &value
	}
	lease := o.leases[leases.RecordName(o.cluster.Name)]
	crash.Before("order-upgrade")
	err := r.patchMetadata(ctx, lease.DeepCopy(), metadataPatch{
		UID: string(lease.UID), ResourceVersion: lease.ResourceVersion, Annotations: annotations,
	})
	crash.After("order-upgrade")
	if err != nil {
		return fmt.Errorf("order on Lease %s: %w", lease.Name, err)
	}
	return nil
}
