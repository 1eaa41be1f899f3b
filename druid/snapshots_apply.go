package druid

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

func (s snapshots) take(
	ctx context.Context, o *ordered, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder, step policy.SnapshotStep, rule string,
) (err error) {
	switch step {
	case policy.SnapshotWait:
		return nil
	case policy.SnapshotOrder:
		err = s.order(ctx, snapshot, order)
	case policy.SnapshotClear:
		err = s.clear(ctx, o.name, order)
	case policy.SnapshotDelete:
		err = s.delete(ctx, snapshot)
	case policy.SnapshotHoldIt:
		err = s.hold(ctx, snapshot)
	case policy.SnapshotLetGo:
		err = s.letGo(ctx, snapshot)
	case policy.SnapshotReleaseDeleted, policy.SnapshotReleaseRefused, policy.SnapshotReleaseCluster, policy.SnapshotReleaseLate:
		err = s.release(ctx, o, snapshot, order, step)
	default:
		err = s.inform(ctx, snapshot, s.statusAfter(o, snapshot, order, step))
	}
	if err != nil {
		return fmt.Errorf("EtcdSnapshot %s: %s by rule %s: %w", snapshot.Name, step, rule, err)
	}
	s.metrics.steps.WithLabelValues("Snapshot"+string(step), rule).Inc()
	s.log.InfoContext(ctx, "step taken", "namespace", o.name.Namespace, "cluster", o.name.Name, "snapshot", snapshot.Name,
		"step", "Snapshot"+string(step), "rule", rule)
	return nil
}

// order asks on the Lease, as the caches have it: a compare-and-set, by which no other order is lost. The EtcdSnapshot is read
// live, because one that is settled in truth must not be ordered once more, nor a backup deleted that is to stay.
func (s snapshots) order(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, on leaseOrder) error {
	var live v1alpha1.EtcdSnapshot
	if err := s.live.Get(ctx, client.ObjectKeyFromObject(snapshot), &live); client.IgnoreNotFound(err) != nil {
		return err
	}
	if live.UID != snapshot.UID || (live.DeletionTimestamp != nil) != (snapshot.DeletionTimestamp != nil) {
		return cachesBehind(snapshot.Name)
	}
	if live.DeletionTimestamp == nil && snapshotPhases[live.Status.Phase] == policy.SnapshotFinal || live.DeletionTimestamp != nil && !toDelete(&live) {
		return cachesBehind(snapshot.Name)
	}
	if live.DeletionTimestamp != nil {
		if goes, err := s.goesWithItsCluster(ctx, &live); err != nil || goes {
			return cmp.Or(err, cachesBehind(snapshot.Name))
		}
	}
	kind, target := orderOf(&live)
	defer crash.Around("order-snapshot")()
	return s.orders(snapshot.Namespace, snapshot.Spec.ClusterRef.Name).OrderSnapshot(ctx, on.component, on.Version, string(snapshot.UID), kind, target)
}

// orders writes the requests of the cluster.
func (s snapshots) orders(namespace, cluster string) *leases.Store {
	return leases.NewStore(s.leases.Leases(namespace), cluster)
}

// goesWithItsCluster says, by live reads, whether the EtcdCluster is gone, or the namespace goes: that is no one's wish that the
// backups go. Of what is in a namespace, the EtcdSnapshots may be deleted before their EtcdCluster.
func (s snapshots) goesWithItsCluster(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) (bool, error) {
	cluster, err := clusterOrNil(ctx, s.live, types.NamespacedName{Namespace: snapshot.Namespace, Name: snapshot.Spec.ClusterRef.Name})
	if err != nil || cluster == nil {
		return err == nil, err
	}
	var namespace corev1.Namespace
	if err := s.live.Get(ctx, client.ObjectKey{Name: snapshot.Namespace}, &namespace); err != nil {
		return false, err
	}
	return namespace.DeletionTimestamp != nil, nil
}

// orderOf is what is ordered for an EtcdSnapshot: its backup, or that it be deleted.
func orderOf(snapshot *v1alpha1.EtcdSnapshot) (leases.SnapshotKind, *leases.SnapshotTarget) {
	switch {
	case snapshot.DeletionTimestamp != nil:
		return leases.SnapshotDelete, &leases.SnapshotTarget{URI: snapshot.Status.Artifact.URI}
	case snapshot.Spec.Store != nil:
		place := snapshot.Spec.Store
		return leases.SnapshotElsewhere, &leases.SnapshotTarget{Place: &leases.SnapshotPlace{
			Bucket: place.Bucket, Prefix: place.Prefix, Region: place.Region, Endpoint: place.Endpoint, PathStyle: place.ForcePathStyle,
		}}
	case snapshot.Spec.Final && snapshot.Spec.Verify:
		return leases.SnapshotFinalVerified, nil
	case snapshot.Spec.Final:
		return leases.SnapshotFinal, nil
	case snapshot.Spec.Verify:
		return leases.SnapshotVerified, nil
	}
	return "", nil
}

// cachesBehind says that the caches are, so that the pass is made once more.
func cachesBehind(name string) error {
	return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "etcdsnapshots"}, name, nil)
}

// withdraw takes the order of an EtcdSnapshot off the Lease that is not there any more, by a live list.
func (s snapshots) withdraw(ctx context.Context, o *ordered, order leaseOrder) error {
	bears := func(snapshot *v1alpha1.EtcdSnapshot) bool { return string(snapshot.UID) == order.UID }
	if order.UID == "" || slices.ContainsFunc(o.all, bears) {
		return nil
	}
	var live v1alpha1.EtcdSnapshotList
	if err := s.live.List(ctx, &live, client.InNamespace(o.name.Namespace)); err != nil {
		return err
	}
	for i := range live.Items {
		if bears(&live.Items[i]) && (live.Items[i].DeletionTimestamp == nil || held(&live.Items[i])) {
			return cachesBehind(live.Items[i].Name)
		}
	}
	if err := s.clear(ctx, o.name, order); err != nil {
		return fmt.Errorf("withdraw order %s: %w", order.UID, err)
	}
	s.log.InfoContext(ctx, "order withdrawn", "namespace", o.name.Namespace, "cluster", o.name.Name, "order", order.UID)
	return cachesBehind(leases.SnapshotName(o.name.Name, order.component)) // the slot is free when the caches say so
}

func (s snapshots) clear(ctx context.Context, cluster types.NamespacedName, order leaseOrder) error {
	defer crash.Around("clear-snapshot-order")()
	return client.IgnoreNotFound(s.orders(cluster.Namespace, cluster.Name).ClearSnapshotOrder(ctx, order.component, order.Version))
}

// delete takes away the request, and never the backup.
func (s snapshots) delete(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	defer crash.Around("delete-snapshot")()
	return client.IgnoreNotFound(s.client.Delete(ctx, snapshot.DeepCopy(), client.Preconditions{UID: &snapshot.UID}))
}

func (s snapshots) inform(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, status v1alpha1.EtcdSnapshotStatus) error {
	if equality.Semantic.DeepEqual(snapshot.Status, status) {
		return nil
	}
	changed := snapshot.DeepCopy()
	changed.Status = status
	patch := client.MergeFromWithOptions(snapshot, client.MergeFromWithOptimisticLock{})
	defer crash.Around("write-snapshot-status")()
	return client.IgnoreNotFound(s.client.Status().Patch(ctx, changed, patch, client.FieldOwner(control.FieldOwner)))
}

// statusAfter is what the status says after the step.
func (s snapshots) statusAfter(
	o *ordered, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder, step policy.SnapshotStep,
) v1alpha1.EtcdSnapshotStatus {
	status := *snapshot.Status.DeepCopy()
	now := metav1.NewTime(o.now)
	switch step {
	case policy.SnapshotAccept:
		status.Phase = v1alpha1.SnapshotPending
		status.Message = "the EtcdSnapshot waits for the leader's agent. Condition BackupReady of the EtcdCluster shows what blocks it"
		if o.cluster != nil && policy.PauseReportedBy(o.cluster.Status.Conditions) {
			status.Message = fmt.Sprintf("the EtcdSnapshot waits until EtcdCluster %s is resumed. The cluster is paused, and no agent runs", o.name.Name)
		}
	case policy.SnapshotFollow:
		status.Phase, status.Message = v1alpha1.SnapshotRunning, "the leader's agent is saving it"
		status.StartedAt = new(metav1.NewTime(order.Answer.Started))
	case policy.SnapshotConclude:
		status = concluded(order.Answer)
	case policy.SnapshotFailCluster:
		status.Phase, status.FinishedAt = v1alpha1.SnapshotFailed, &now
		status.Message = fmt.Sprintf("there is no EtcdCluster %s in this namespace", o.name.Name)
	case policy.SnapshotFailBackup:
		status.Phase, status.FinishedAt = v1alpha1.SnapshotFailed, &now
		status.Message = fmt.Sprintf("EtcdCluster %s is not backed up: it has no spec.backup", o.name.Name)
	default: // the others change no status
	}
	status.Message = policy.AsSentences(status.Message)
	return status
}

// concluded is the final answer as a status.
func concluded(a leases.SnapshotAnswer) v1alpha1.EtcdSnapshotStatus {
	status := v1alpha1.EtcdSnapshotStatus{
		Phase: v1alpha1.SnapshotFailed, Message: a.Error,
		StartedAt: new(metav1.NewTime(a.Started)), FinishedAt: new(metav1.NewTime(a.Finished)),
	}
	if a.Phase != leases.SnapshotSucceeded {
		return status
	}
	status.Phase, status.Message = v1alpha1.SnapshotSucceeded, "the backup is saved"
	if a.Kind == leases.SnapshotVerified || a.Kind == leases.SnapshotFinalVerified {
		status.Message = "the backup is saved. A restore of it is equal to the data of etcd"
	}
	if a.Object == "" {
		status.Message = "there was no change to save"
	}
	status.Artifact = &v1alpha1.SnapshotArtifact{
		Key: a.Object, URI: a.URI, Revision: a.Revision, Size: a.Size, SHA256: a.SHA256, StorageVersion: a.StorageVersion,
	}
	return status
}
