package druid

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func (r *Reconciler) createSnapshotLease(ctx context.Context, o *observation, step plan.Step) error {
	lease, err := manifests.SnapshotLease(o.cluster, leases.Component(step.Object))
	if err != nil || lease == nil {
		return err
	}
	defer crash.Around("create-snapshot-lease")()
	return r.create(ctx, o, "Lease", lease)
}

// deleteSnapshotLease takes away what informed of backups that are not made any more. The backups themselves stay.
func (r *Reconciler) deleteSnapshotLease(ctx context.Context, o *observation, step plan.Step) error {
	name := leases.SnapshotName(o.cluster.Name, leases.Component(step.Object))
	live := o.leases[name]
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.Namespace, Name: name}}
	crash.Before("delete-snapshot-lease")
	err := client.IgnoreNotFound(r.client.Delete(ctx, lease, client.Preconditions{UID: &live.UID}))
	crash.After("delete-snapshot-lease")
	if err != nil {
		return fmt.Errorf("delete Lease %s: %w", name, err)
	}
	return nil
}
