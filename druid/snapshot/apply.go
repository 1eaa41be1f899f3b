package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// take does what was decided for an EtcdSnapshot.
func (r *Reconciler) take(
	ctx context.Context, o *observation, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder, decision rules.Decision[step],
) (err error) {
	next, rule := decision.Verdict, decision.Rule
	switch next {
	case stepWait:
		return nil
	case stepOrder:
		err = r.order(ctx, o, snapshot, order)
	case stepClear:
		err = r.clear(ctx, o.name, order)
	case stepRetry:
		err = r.retry(ctx, o, snapshot, order)
	case stepReport:
		status := *snapshot.Status.DeepCopy()
		status.Message = policy.AsSentences(order.reason)
		err = r.writeStatus(ctx, snapshot, status)
	case stepDelete:
		err = r.delete(ctx, snapshot)
	case stepHold:
		err = r.hold(ctx, snapshot)
	case stepRelease:
		err = r.releaseFinalizer(ctx, snapshot)
	case stepReleaseDeleted, stepReleaseRefused, stepReleaseCluster, stepReleaseLate:
		err = r.release(ctx, o, snapshot, order, next)
	default:
		err = r.end(ctx, snapshot, statusAfter(o, snapshot, order, next))
	}
	if err != nil {
		return fmt.Errorf("EtcdSnapshot %s: %s by rule %s: %w", snapshot.Name, next, rule, err)
	}
	r.Steps.WithLabelValues("Snapshot"+string(next), rule).Inc()
	r.Log.InfoContext(ctx, "step taken", "namespace", o.name.Namespace, "cluster", o.name.Name, "snapshot", snapshot.Name,
		"step", "Snapshot"+string(next), "rule", rule)
	return nil
}

// order writes the request to the Lease of the caches. It is a compare-and-set, so that no other request is lost. The
// EtcdSnapshot is read live. Otherwise a backup that is finished could be requested again, or a backup that is to stay could
// be deleted.
func (r *Reconciler) order(ctx context.Context, o *observation, snapshot *v1alpha1.EtcdSnapshot, on leaseOrder) error {
	var live v1alpha1.EtcdSnapshot
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(snapshot), &live); client.IgnoreNotFound(err) != nil {
		return err
	}
	if live.UID != snapshot.UID || (live.DeletionTimestamp != nil) != (snapshot.DeletionTimestamp != nil) {
		return cachesBehind(snapshot.Name)
	}
	if live.DeletionTimestamp == nil && snapshotPhases[live.Status.Phase] == phaseFinal || live.DeletionTimestamp != nil && !toDelete(&live) {
		return cachesBehind(snapshot.Name)
	}
	if live.DeletionTimestamp != nil {
		if gone, err := r.deletedWithCluster(ctx, &live); err != nil || gone {
			return cmp.Or(err, cachesBehind(snapshot.Name))
		}
	}
	if onPod(&live) {
		return r.orderPod(ctx, o, &live)
	}
	kind, target := orderOf(&live)
	defer crash.Around("order-snapshot")()
	return r.orders(snapshot.Namespace, snapshot.Spec.ClusterRef.Name).OrderSnapshot(ctx, on.component, on.Version, string(snapshot.UID), kind, target)
}

// orders writes the requests of the cluster.
func (r *Reconciler) orders(namespace, cluster string) *leases.Store {
	return leases.NewStore(r.Leases.Leases(namespace), cluster)
}

// deletedWithCluster says, by live reads, whether the EtcdCluster or the namespace is being deleted. Such a deletion does not
// request the deletion of backups. With a namespace, Kubernetes can delete the EtcdSnapshots before their EtcdCluster.
func (r *Reconciler) deletedWithCluster(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) (bool, error) {
	cluster, err := ClusterOf(ctx, r.Live, types.NamespacedName{Namespace: snapshot.Namespace, Name: snapshot.Spec.ClusterRef.Name})
	if err != nil || cluster == nil {
		return err == nil, err
	}
	var namespace corev1.Namespace
	if err := r.Live.Get(ctx, client.ObjectKey{Name: snapshot.Namespace}, &namespace); err != nil {
		return false, err
	}
	return namespace.DeletionTimestamp != nil, nil
}

// orderOf returns the request for an EtcdSnapshot: its backup, or the deletion of its backup.
func orderOf(snapshot *v1alpha1.EtcdSnapshot) (leases.SnapshotKind, *leases.SnapshotTarget) {
	switch {
	case snapshot.DeletionTimestamp != nil:
		return leases.SnapshotDelete, &leases.SnapshotTarget{URI: snapshot.Status.Artifact.URI}
	case snapshot.Spec.Final && snapshot.Spec.Verify:
		return leases.SnapshotFinalVerified, nil
	case snapshot.Spec.Final:
		return leases.SnapshotFinal, nil
	case snapshot.Spec.Verify:
		return leases.SnapshotVerified, nil
	}
	return "", nil
}

// cachesBehind is the error for caches that are behind. The pass is repeated after a pause.
func cachesBehind(name string) error {
	return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "etcdsnapshots"}, name, nil)
}

// withdraw removes the request of an EtcdSnapshot that does not exist any more, by a live list.
func (r *Reconciler) withdraw(ctx context.Context, o *observation, order leaseOrder) error {
	requests := func(snapshot *v1alpha1.EtcdSnapshot) bool { return string(snapshot.UID) == order.UID }
	if order.UID == "" || slices.ContainsFunc(o.all, requests) {
		return nil
	}
	var live v1alpha1.EtcdSnapshotList
	if err := r.Live.List(ctx, &live, client.InNamespace(o.name.Namespace)); err != nil {
		return err
	}
	for i := range live.Items {
		if requests(&live.Items[i]) && (live.Items[i].DeletionTimestamp == nil || held(&live.Items[i])) {
			return cachesBehind(live.Items[i].Name)
		}
	}
	if err := r.clear(ctx, o.name, order); err != nil {
		return fmt.Errorf("withdraw order %s: %w", order.UID, err)
	}
	r.Log.InfoContext(ctx, "order withdrawn", "namespace", o.name.Namespace, "cluster", o.name.Name, "order", order.UID)
	return cachesBehind(leases.SnapshotName(o.name.Name, order.component)) // the slot is free when the caches say so
}

func (r *Reconciler) clear(ctx context.Context, cluster types.NamespacedName, order leaseOrder) error {
	if order.component == leases.ComponentSnapshot {
		return r.deletePod(ctx, order.pod)
	}
	defer crash.Around("clear-snapshot-order")()
	return client.IgnoreNotFound(r.orders(cluster.Namespace, cluster.Name).ClearSnapshotOrder(ctx, order.component, order.Version))
}

// delete deletes the EtcdSnapshot, and never the backup.
func (r *Reconciler) delete(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	defer crash.Around("delete-snapshot")()
	return client.IgnoreNotFound(r.Client.Delete(ctx, snapshot.DeepCopy(), client.Preconditions{UID: &snapshot.UID}))
}

// hold adds the finalizer, so that the EtcdSnapshot exists until its backup is deleted.
func (r *Reconciler) hold(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	return r.setFinalizers(ctx, snapshot, append(slices.Clone(snapshot.Finalizers), v1alpha1.SnapshotFinalizer))
}

// releaseFinalizer removes the finalizer: the backup stays, or is deleted.
func (r *Reconciler) releaseFinalizer(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	return r.setFinalizers(ctx, snapshot, slices.DeleteFunc(slices.Clone(snapshot.Finalizers), func(f string) bool { return f == v1alpha1.SnapshotFinalizer }))
}

// setFinalizers replaces the list of the caches. It is a compare-and-set, so that an edit of the deletion policy in the
// meantime counts.
func (r *Reconciler) setFinalizers(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, finalizers []string) error {
	changed := snapshot.DeepCopy()
	changed.Finalizers = finalizers
	patch := client.MergeFromWithOptions(snapshot, client.MergeFromWithOptimisticLock{})
	defer crash.Around("hold-snapshot")()
	return client.IgnoreNotFound(r.Client.Patch(ctx, changed, patch, client.FieldOwner(control.FieldOwner)))
}

// release reports what becomes of the backup, and then removes the finalizer. Afterwards there is no object to report it on.
func (r *Reconciler) release(ctx context.Context, o *observation, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder, taken step) error {
	if onPod(snapshot) {
		if err := r.deletePod(ctx, order.pod); err != nil {
			return err
		}
	}
	uri := "its backup"
	if snapshot.Status.Artifact != nil {
		uri = snapshot.Status.Artifact.URI
	}
	kind, reason, note := corev1.EventTypeWarning, v1alpha1.EventBackupRetained, ""
	switch own := onPod(snapshot); {
	case taken == stepReleaseDeleted:
		kind, reason = corev1.EventTypeNormal, v1alpha1.EventBackupDeleted
		note = fmt.Sprintf("%s was deleted", uri)
	case taken == stepReleaseRefused:
		note = fmt.Sprintf("%s stays in the store: %s", uri, order.Answer.Error)
	case taken == stepReleaseCluster && own:
		note = fmt.Sprintf("%s stays in the store: there is no EtcdCluster %s any more. Delete the object in the store if you do not need it", uri, o.name.Name)
	case taken == stepReleaseCluster:
		note = fmt.Sprintf("%s stays in the store: there is no EtcdCluster %s with spec.backup any more. Delete the object in the store if you do not need it",
			uri, o.name.Name)
	case own:
		note = fmt.Sprintf("%s stays in the store: no Pod deleted it within %s. Delete the object in the store if you do not need it. The last state was: %s",
			uri, deletionTimeout, snapshot.Status.Message)
	default:
		note = fmt.Sprintf("%s stays in the store: no agent confirmed its deletion within %s. Condition BackupReady of EtcdCluster %s shows what blocks the agents",
			uri, deletionTimeout, o.name.Name)
	}
	r.Events.WithLabelValues(kind, reason).Inc()
	r.Recorder.Eventf(snapshot, nil, kind, reason, "Snapshot"+string(taken), "%s", policy.Note(note))
	return r.releaseFinalizer(ctx, snapshot)
}

// end writes a status, and reports an outcome by an Event.
func (r *Reconciler) end(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, status v1alpha1.EtcdSnapshotStatus) error {
	if err := r.writeStatus(ctx, snapshot, status); err != nil || snapshotPhases[status.Phase] != phaseFinal {
		return err
	}
	kind, reason, note := corev1.EventTypeWarning, v1alpha1.EventBackupFailed, ""
	switch status.Phase {
	case v1alpha1.SnapshotSucceeded:
		kind, reason = corev1.EventTypeNormal, v1alpha1.EventBackupSaved
		note = fmt.Sprintf("every change up to revision %d is saved", status.Artifact.Revision)
	default:
		note = fmt.Sprintf("the EtcdSnapshot failed: %s", status.Message)
	}
	r.Events.WithLabelValues(kind, reason).Inc()
	r.Recorder.Eventf(snapshot, nil, kind, reason, "Snapshot"+string(stepConclude), "%s", policy.Note(note))
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, status v1alpha1.EtcdSnapshotStatus) error {
	_, err := r.patchStatus(ctx, snapshot, status)
	return client.IgnoreNotFound(err)
}

// patchStatus is a compare-and-set, and returns the EtcdSnapshot as it is afterwards.
func (r *Reconciler) patchStatus(
	ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, status v1alpha1.EtcdSnapshotStatus,
) (*v1alpha1.EtcdSnapshot, error) {
	status.Conditions = conditionsAfter(snapshot, status, r.Now())
	if equality.Semantic.DeepEqual(snapshot.Status, status) {
		return snapshot, nil
	}
	changed := snapshot.DeepCopy()
	changed.Status = status
	patch := client.MergeFromWithOptions(snapshot, client.MergeFromWithOptimisticLock{})
	defer crash.Around("write-snapshot-status")()
	return changed, r.Client.Status().Patch(ctx, changed, patch, client.FieldOwner(control.FieldOwner))
}

// statusAfter returns the status after a step.
func statusAfter(o *observation, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder, taken step) v1alpha1.EtcdSnapshotStatus {
	status := *snapshot.Status.DeepCopy()
	now := metav1.NewTime(o.now)
	switch taken {
	case stepAccept:
		status.Phase = v1alpha1.SnapshotPending
		status.Message = cmp.Or(order.reason, "the EtcdSnapshot waits for its EtcdCluster")
		if onPod(snapshot) {
			status.Message = cmp.Or(order.reason, "the EtcdSnapshot waits for its Pod")
		}
	case stepFollow:
		status.Phase, status.Message = v1alpha1.SnapshotRunning, "the leader's agent is saving it"
		if order.pod != nil {
			status.Message = fmt.Sprintf("Pod %s is saving it", order.pod.Name)
		}
		status.StartedAt = new(metav1.NewTime(order.Answer.Started))
	case stepConclude:
		status = concluded(order.Answer)
	case stepFailOverdue:
		status = concluded(failedAnswer(o, snapshot, overdueWords(snapshot, order)))
	case stepFailCluster:
		status.Phase, status.FinishedAt = v1alpha1.SnapshotFailed, &now
		status.Message = fmt.Sprintf("there is no EtcdCluster %s in this namespace", o.name.Name)
	case stepFailBackup:
		status.Phase, status.FinishedAt = v1alpha1.SnapshotFailed, &now
		status.Message = fmt.Sprintf("EtcdCluster %s is not backed up: it has no spec.backup", o.name.Name)
	default: // no other step changes the status
	}
	status.Message = policy.AsSentences(status.Message)
	return status
}

// conditionsAfter returns the conditions for a status.
func conditionsAfter(snapshot *v1alpha1.EtcdSnapshot, status v1alpha1.EtcdSnapshotStatus, now time.Time) []metav1.Condition {
	// The default of the CustomResourceDefinition is older than the EtcdSnapshot, and has no generation.
	conditions := slices.DeleteFunc(slices.Clone(snapshot.Status.Conditions), func(c metav1.Condition) bool { return c.ObservedGeneration == 0 })
	for kind, phase := range map[string]v1alpha1.SnapshotPhase{
		v1alpha1.SnapshotConditionComplete: v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotConditionFailed: v1alpha1.SnapshotFailed,
	} {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: string(status.Phase), Message: status.Message,
			ObservedGeneration: snapshot.Generation, LastTransitionTime: metav1.NewTime(now),
		}
		if status.Phase == phase {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&conditions, c)
	}
	for kind, holds := range map[string]bool{
		v1alpha1.ConditionReconciling: snapshotPhases[status.Phase] != phaseFinal, v1alpha1.ConditionStalled: status.Phase == v1alpha1.SnapshotFailed,
	} {
		if !holds {
			meta.RemoveStatusCondition(&conditions, kind)
			continue
		}
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: string(status.Phase), Message: status.Message,
			ObservedGeneration: snapshot.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return conditions
}

// concluded returns the status for a final answer.
func concluded(a leases.SnapshotAnswer) v1alpha1.EtcdSnapshotStatus {
	status := v1alpha1.EtcdSnapshotStatus{
		Phase: v1alpha1.SnapshotFailed, Message: a.Error,
		StartedAt: new(metav1.NewTime(a.Started)), FinishedAt: new(metav1.NewTime(a.Finished)),
	}
	if a.Phase != leases.SnapshotSucceeded {
		if !strings.Contains(a.Error, "another EtcdSnapshot") {
			problem := strings.TrimSuffix(policy.AsSentences(a.Error), ".")
			status.Message = fmt.Sprintf("%s. Resolve this, and create another EtcdSnapshot", problem)
		}
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
