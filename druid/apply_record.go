package druid

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// applyRecord takes a step that writes the cluster record, and returns the Lease afterwards. It returns nil if there
// was nothing to write.
func (r *Reconciler) applyRecord(ctx context.Context, o *observation, step policy.Step) (*coordinationv1.Lease, error) {
	o, step, err := r.confirmed(ctx, o, step)
	if err != nil {
		return nil, fmt.Errorf("%s by rule %s: %w", step.Kind, step.Rule, err)
	}
	if o == nil {
		return nil, nil
	}
	write := r.updateRecord
	if step.Kind == policy.CreateRecord {
		write = r.createRecord
	}
	lease, err := write(ctx, o, step)
	if err != nil {
		return nil, fmt.Errorf("%s by rule %s: %w", step.Kind, step.Rule, err)
	}
	if lease != nil {
		r.reportSlot(o, step)
		r.reportReleased(o, step)
	}
	r.taken(ctx, o, step)
	return lease, nil
}

// reportReleased reports that a restore in place ended early.
func (r *Reconciler) reportReleased(o *observation, step policy.Step) {
	order := o.observed.Record.Order()
	if step.Kind != policy.ReleaseRecovery || !order.Restores() {
		return
	}
	for _, m := range o.observed.Members {
		if disk := m.Reports.Disk; m.Name == order.Chosen && disk != nil && disk.Order == order.Name() && disk.Failed != "" {
			r.event(o, policy.Event{
				Warning: true, Reason: v1alpha1.EventRestoreReleased,
				Note: fmt.Sprintf("The restore ended early (%s), and the cluster continues with the data that it had. Member %s failed because of the %s: %s",
					step.Rule, m.Name, disk.Failed, m.Reports.Reason),
			}, string(step.Kind))
			return
		}
	}
	r.event(o, policy.Event{
		Warning: true, Reason: v1alpha1.EventRestoreReleased,
		Note: fmt.Sprintf("The restore ended early (%s), and the cluster continues with the data that it had", step.Rule),
	}, string(step.Kind))
}

// createRecord creates the record. It never overwrites an existing record.
func (r *Reconciler) createRecord(ctx context.Context, o *observation, step policy.Step) (*coordinationv1.Lease, error) {
	record := *step.Record
	if err := r.grow(o, &record, step.Draw); err != nil {
		return nil, err
	}
	if record.Phase == leases.PhaseForming {
		if err := seedWith(&record, record.Members[0]); err != nil {
			return nil, err
		}
	}
	lease, err := manifests.RecordLease(o.cluster, record)
	if err != nil {
		return nil, err
	}
	crash.Before("create-record")
	err = r.create(ctx, o, "Lease", lease)
	crash.After("create-record")
	if err != nil {
		return nil, err
	}
	r.inform(o, v1alpha1.EventRecordCreated, step, "The cluster record was created (%s) with phase %s", step.Rule, record.Phase)
	if record.Phase == leases.PhaseForming {
		r.reportLeftovers(o, step)
	}
	return lease, nil
}

// updateRecord changes the record with a compare-and-set on a live read.
func (r *Reconciler) updateRecord(ctx context.Context, o *observation, step policy.Step) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	if err := r.live.Get(ctx, key(o, leases.RecordName(o.cluster.Name)), &lease); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !ours(o.cluster, &lease) {
		return nil, &foreignError{kind: "Lease", name: lease.Name}
	}
	record, err := leases.DecodeRecord(&lease)
	if err != nil {
		return nil, err
	}
	changed, err := r.changeRecord(o, record, step)
	if err != nil || changed == nil {
		return nil, err
	}
	store := r.leaseStore(o)
	crash.Before("update-record")
	version, err := store.UpdateRecord(ctx, leases.Version(lease.ResourceVersion), *changed)
	crash.After("update-record")
	if errors.Is(err, leases.ErrConflict) {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}, lease.Name, err)
	}
	if err != nil {
		return nil, err
	}
	lease.ResourceVersion = string(version)
	return &lease, changed.Encode(&lease)
}

// changeRecord applies the step to the record as it was just read. It returns nil if the record is not what the plan
// saw.
func (r *Reconciler) changeRecord(o *observation, record leases.Record, step policy.Step) (*leases.Record, error) {
	switch {
	case step.Kind == policy.PrepareRecovery, step.Kind == policy.ExecuteRecovery, step.Kind == policy.ReleaseRecovery:
		return changeRecovery(record, step, r.now())
	case step.Kind != policy.UpdateRecord:
		return r.changeSlot(record, step)
	case step.Record != nil:
		if made, ok := step.RestoreRecord(record, o.observed.Record.Phase); ok {
			return &made, nil
		}
		return nil, nil
	case len(step.Names) > 0:
		return relisted(record, o.observed.Record.ClusterID, step.Names), nil
	case step.Seed != "":
		return reseeded(record, o.observed.Record.Seed, step.Seed)
	case step.Leave:
		return leaving(record), nil
	case step.Release != nil:
		if record.Replacing == nil || *record.Replacing != *step.Release {
			return nil, nil
		}
		record.Replacing = nil
		return &record, nil
	default:
		missing := step.Missing(record, o.desired.Replicas)
		if missing == 0 {
			return nil, nil
		}
		return &record, r.grow(o, &record, missing)
	}
}

// reseeded is a record of a cluster that forms with another seed. It is nil if an agent forms it, or if the seed is not the one of
// the plan.
func reseeded(record leases.Record, planned, seed string) (*leases.Record, error) {
	if record.Phase != leases.PhaseForming || record.Executor != "" || record.Seed != planned {
		return nil, nil
	}
	return &record, seedWith(&record, seed)
}

// changeRecovery applies a step of a recovery to the record as it was just read. It returns nil if the record is not what
// the plan saw: an agent can have formed the new raft group since.
func changeRecovery(record leases.Record, step policy.Step, now time.Time) (*leases.Record, error) {
	if step.Kind == policy.PrepareRecovery && step.Recovery.Restores() {
		order := *step.Recovery
		order.Since, step.Recovery = now.UTC().Truncate(time.Second), &order
	}
	nonce, err := drawMark()
	if err != nil {
		return nil, err
	}
	changed, ok := step.ChangeRecovery(record, nonce)
	if !ok {
		return nil, nil
	}
	return &changed, nil
}

// relisted is a record with the names that a user removed. It is nil if the record belongs to another raft group now
// or has the names.
func relisted(record leases.Record, clusterID uint64, names []string) *leases.Record {
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(record.Members, names))))
	if record.Phase != leases.PhaseFormed || record.ClusterID != clusterID || len(all) == len(record.Members) {
		return nil
	}
	record.Members = all
	return &record
}

// leaving returns the record with which all members leave, or nil if there is nothing to change.
func leaving(record leases.Record) *leases.Record {
	if record.Phase != leases.PhaseFormed || record.Leaving {
		return nil
	}
	record.Leaving = true
	return &record
}

// seedWith makes name the first member of a new attempt.
func seedWith(record *leases.Record, name string) error {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return fmt.Errorf("draw a nonce: %w", err)
	}
	record.Seed, record.Nonce = name, hex.EncodeToString(nonce[:])
	return nil
}

// maxDraws for one name. There are 27^5 names, 14 million, so a second draw is rare already.
const maxDraws = 100

// grow adds names that no object has or had, as far as druid can see.
func (r *Reconciler) grow(o *observation, record *leases.Record, count int) error {
	taken := func(name string) bool {
		return record.Lists(name) || slices.Contains(o.desired.Known, name) ||
			slices.ContainsFunc(o.observed.Members, func(m policy.Member) bool { return m.Name == name }) ||
			reserved(o.cluster.Name, name)
	}
	for range count {
		name := ""
		for draws := 0; name == "" || taken(name); draws++ {
			if draws == maxDraws {
				return fmt.Errorf("draw a member name: %d names in a row are taken", draws)
			}
			name = o.cluster.Name + "-" + r.draw()
		}
		record.Members = append(record.Members, name)
	}
	slices.Sort(record.Members)
	return nil
}

// reserved says whether druid gives the name to another object: c-agent also has five letters after the dash.
func reserved(cluster, name string) bool {
	return slices.Contains([]string{
		leases.RecordName(cluster), leases.LeaderName(cluster), leases.FullSnapshotName(cluster), leases.DeltaSnapshotName(cluster),
		manifests.PeerServiceName(cluster), manifests.ClientServiceName(cluster), manifests.NodesServiceName(cluster),
		manifests.AgentName(cluster),
	}, name)
}

// saveTTL is how long the EtcdSnapshot before a change of version is kept after it has ended, in seconds. In this
// week, a user can read it. Retention decides about the backup itself.
const saveTTL = 7 * 24 * 60 * 60

// createSave requests the verified full backup before a change of version or before a restore in place. It uses one that exists.
func (r *Reconciler) createSave(ctx context.Context, o *observation, step policy.Step) error {
	snapshot := &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.cluster.Namespace, Name: step.Object, Labels: map[string]string{leases.LabelCluster: o.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.cluster, v1alpha1.GroupVersion.WithKind("EtcdCluster"))},
		},
		Spec: v1alpha1.EtcdSnapshotSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: o.cluster.Name}, Type: v1alpha1.SnapshotFull, Verify: true, Final: step.Final,
		},
	}
	if !step.Final { // a final one stays: without it, an approval could begin the restore again
		snapshot.Spec.TTLSecondsAfterFinished = new(int32(saveTTL))
	}
	crash.Before("create-snapshot")
	err := r.client.Create(ctx, snapshot)
	crash.After("create-snapshot")
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create EtcdSnapshot %s: %w", step.Object, err)
	}
	return nil
}

// orderUpgrade writes to the record what the leader's agent should check, or removes that together with the earlier
// answer. It is a compare-and-set on the record of a live read.
func (r *Reconciler) orderUpgrade(ctx context.Context, o *observation, step policy.Step) error {
	lease := o.leases[leases.RecordName(o.cluster.Name)]
	crash.Before("order-upgrade")
	err := r.leaseStore(o).OrderUpgrade(ctx, leases.Version(lease.ResourceVersion), *step.Order)
	crash.After("order-upgrade")
	if err != nil {
		return fmt.Errorf("write the upgrade order to Lease %s: %w", lease.Name, err)
	}
	return nil
}

// requestRestorePlan writes to the record which restore the leader's agent should plan, or removes that together with the plan. It is
// a compare-and-set on the record that was observed.
func (r *Reconciler) requestRestorePlan(ctx context.Context, o *observation, step policy.Step) error {
	lease := o.leases[leases.RecordName(o.cluster.Name)]
	request := *step.Restore
	if step.Kind == policy.RequestRestorePlan {
		nonce, err := drawMark()
		if err != nil {
			return err
		}
		request.Nonce = nonce
	}
	crash.Before("request-restore-plan")
	err := r.leaseStore(o).RequestRestorePlan(ctx, leases.Version(lease.ResourceVersion), request)
	crash.After("request-restore-plan")
	if errors.Is(err, leases.ErrConflict) {
		return apierrors.NewConflict(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}, lease.Name, err)
	}
	if err != nil {
		return fmt.Errorf("write the request for a restore to Lease %s: %w", lease.Name, err)
	}
	return nil
}
