package druid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// source is where a pass reads from: the caches, or the API server.
type source struct {
	client.Reader
	// of selects the objects of a cluster in lists.
	of func(cluster string) client.ListOption
}

// unshared is a Reader of a source that does not need the objects that members share.
type unshared struct{ client.Reader }

// observation is what one pass saw, with the objects.
type observation struct {
	// base is the EtcdCluster as it was read, with the spec that was adopted. cluster is the same, with what this pass found about TLS.
	base     *v1alpha1.EtcdCluster
	cluster  *v1alpha1.EtcdCluster
	lock     lock
	desired  policy.Desired
	observed policy.Observed
	// evaluation is what the policies say of desired and observed. It is made when both are complete.
	evaluation policy.Evaluation

	leases map[string]*coordinationv1.Lease
	claims map[string]*corev1.PersistentVolumeClaim
	pods   map[string]*corev1.Pod
	shared map[string]manifests.Applied
	// again is when to look again although no event may report, 0 for never. The steps of a stage run at once, and each may
	// want it, so it is guarded by againMu until they have ended.
	againMu sync.Mutex
	again   time.Duration
}

// lookAgain makes the next pass come after d at the latest.
func (o *observation) lookAgain(d time.Duration) {
	o.againMu.Lock()
	defer o.againMu.Unlock()
	if d > 0 && (o.again == 0 || d < o.again) {
		o.again = d
	}
}

// observe reads everything that belongs to the cluster and writes nothing. record, if set, is a newer state of the
// cluster record than the source might have.
func (r *Reconciler) observe(ctx context.Context, from source, cluster *v1alpha1.EtcdCluster, record *coordinationv1.Lease) (*observation, error) {
	locked, lock, err := lockedOf(cluster)
	if err != nil {
		return nil, err
	}
	o := &observation{
		base: locked, cluster: locked, lock: lock,
		leases: map[string]*coordinationv1.Lease{},
		claims: map[string]*corev1.PersistentVolumeClaim{},
		pods:   map[string]*corev1.Pod{},
		shared: map[string]manifests.Applied{},
	}
	if err := o.list(ctx, from); err != nil {
		return nil, err
	}
	if record != nil {
		o.leases[record.Name] = record
	}
	o.observeRecord()
	if err := r.observeDesired(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeMembers(ctx, o); err != nil {
		return nil, err
	}
	r.observePause(o)
	r.observeCertificates(ctx, o)
	r.observeRequests(ctx, o)
	r.observeAgents(o)
	if err := r.observeBackup(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeEndpoints(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeRepairing(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeShared(ctx, from, o); err != nil {
		return nil, err
	}
	if err := r.observeProblems(ctx, from, o); err != nil {
		return nil, err
	}
	if err := r.observeVolumes(ctx, from, o); err != nil {
		return nil, err
	}
	if err := errors.Join(r.observeUpgrade(ctx, from, o), observeOrigin(ctx, from, o)); err != nil {
		return nil, err
	}
	r.observeSeed(o)
	observeSaving(o)
	// A restore is requested, and withdrawn, while an earlier edit of the spec is not complete.
	o.desired.Recovery.Restore, o.desired.Recovery.Store = restoreTargetOf(cluster)
	if err := r.observeRecovery(ctx, from, o); err != nil {
		return nil, err
	}
	r.observeLock(o)
	o.evaluate()
	if !o.desired.Deleted { // druid does not work towards the spec of a deleted cluster
		o.lock.adoption = policy.Adopt(o.evaluation, o.lock.edit)
	}
	return o, nil
}

// evaluate has the policies decide about desired and observed, which must not change afterwards.
func (o *observation) evaluate() { o.evaluation = policy.Evaluate(o.desired, o.observed) }

// observeDesired observes the desired state, and where it matters whether the namespace is being deleted.
func (r *Reconciler) observeDesired(ctx context.Context, o *observation) error {
	if err := o.observeTLS(); err != nil {
		return err
	}
	desired, err := desiredOf(o.cluster)
	if err != nil {
		return err
	}
	o.desired = desired
	o.desired.Generation = o.lock.generation
	o.desired.Recovery.Renewal, o.desired.Recovery.Expiry = r.renewInterval, r.leaseTimeout
	return r.observeGoing(ctx, o)
}

func (o *observation) list(ctx context.Context, from source) error {
	in := []client.ListOption{client.InNamespace(o.cluster.Namespace), from.of(o.cluster.Name)}
	var (
		leaseList coordinationv1.LeaseList
		claimList corev1.PersistentVolumeClaimList
		podList   corev1.PodList
	)
	// Pods come first: of a Pod that did not change since, it is then certain that clients were not cut off before the record was read.
	for _, list := range []client.ObjectList{&podList, &claimList, &leaseList} {
		if err := from.List(ctx, list, in...); err != nil {
			return fmt.Errorf("list the objects of EtcdCluster %s/%s: %w", o.cluster.Namespace, o.cluster.Name, err)
		}
	}
	for i := range leaseList.Items {
		o.leases[leaseList.Items[i].Name] = &leaseList.Items[i]
	}
	for i := range claimList.Items {
		o.claims[claimList.Items[i].Name] = &claimList.Items[i]
	}
	for i := range podList.Items {
		if podList.Items[i].Labels[leases.LabelComponent] == string(leases.ComponentSnapshot) {
			continue // it is no member's
		}
		o.pods[podList.Items[i].Name] = &podList.Items[i]
	}
	return nil
}

func desiredOf(cluster *v1alpha1.EtcdCluster) (policy.Desired, error) {
	d := policy.Desired{
		Replicas:              int(cluster.Spec.Replicas),
		Version:               cluster.Spec.Version,
		ClaimsGo:              manifests.ClaimsGo(cluster),
		RetainClaims:          cluster.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenScaled == v1alpha1.RetainPersistentVolumeClaim,
		RemoveExternalMembers: manifests.RemovesExternalMembers(cluster),
		Deleted:               cluster.DeletionTimestamp != nil,
		Foreground:            controllerutil.ContainsFinalizer(cluster, metav1.FinalizerDeleteDependents),
		Orphans:               controllerutil.ContainsFinalizer(cluster, metav1.FinalizerOrphanDependents),
		Joins:                 manifests.Joins(cluster),
		Held:                  controllerutil.ContainsFinalizer(cluster, v1alpha1.JoinFinalizer),
		Backup:                cluster.Spec.Backup != nil,
		BackupReported:        policy.BackupReportedBy(cluster.Status.Conditions),
		WhenFailing:           whenFailing(cluster.Spec.Backup),
		PauseReported:         policy.PauseReportedBy(cluster.Status.Conditions),
		Refused:               policy.RefusedBy(cluster.Status.Conditions),
		Ran:                   map[string]string{},
		CutOff:                !cluster.ServesClients(),
		EvictsSingle:          cluster.EvictsSingleMember(),
		LeaderWanted:          cluster.LeaderWanted(),
		LeaveFirst:            v1alpha1.MemberNames(cluster.Annotations[v1alpha1.LeaveFirstAnnotation]),
		KeepVolumes:           v1alpha1.MemberNames(cluster.Annotations[v1alpha1.KeepVolumeAnnotation]),
		HandsOff:              handsOff(cluster),
		Replace:               cluster.Annotations[v1alpha1.ReplaceAnnotation],
		Recovery:              recoveryWishOf(cluster),
		Epoch:                 uint32(cluster.Status.Epoch),
		Auth:                  policy.AuthUnset,
		AuthConfig:            manifests.AuthConfig(cluster),
	}
	if client := manifests.TLSOf(cluster).Client; client != nil {
		d.AgentsLogIn = client.Mode != v1alpha1.TLSServerOnly
	}
	if auth := cluster.Spec.Auth; auth != nil {
		d.Auth = map[bool]policy.AuthWanted{true: policy.AuthOn, false: policy.AuthOff}[auth.Enabled]
	}
	if err := manifests.BackupProblem(cluster); err != nil {
		d.BackupProblem = oneLine(err.Error())
	}
	for _, m := range cluster.Status.Members {
		d.Known = append(d.Known, m.Name)
		d.Ran[m.Name] = m.Version
	}
	id, err := leases.ParseID(cluster.Status.ClusterID)
	if err != nil {
		return d, fmt.Errorf("status.clusterID of EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	d.ClusterID = id
	return d, nil
}

// whenFailing is what the cluster requests for the time in which backups fail.
func whenFailing(backup *v1alpha1.BackupSpec) policy.WhenFailing {
	if backup != nil && backup.WhenFailing == v1alpha1.WhenFailingContinue {
		return policy.WhenFailingContinue
	}
	return policy.WhenFailingBlock
}

func (o *observation) observeRecord() {
	lease, there := o.leases[leases.RecordName(o.cluster.Name)]
	if !there {
		o.observed.RecordState = policy.RecordAbsent
		return
	}
	if !ours(o.cluster, lease) {
		o.observed.RecordState = policy.RecordForeign
		o.observed.RecordProblem = (&foreignError{kind: "Lease", name: lease.Name}).Error()
		return
	}
	record, err := leases.DecodeRecord(lease)
	if err != nil {
		o.observed.RecordState = policy.RecordUnreadable
		o.observed.RecordProblem = err.Error()
		return
	}
	o.observed.Record = record
	o.observed.RecordState = map[leases.Phase]policy.RecordState{
		leases.PhaseForming:    policy.RecordForming,
		leases.PhaseFormed:     policy.RecordFormed,
		leases.PhaseRecovering: policy.RecordRecovering,
	}[record.Phase]
}
