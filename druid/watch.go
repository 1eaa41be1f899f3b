package druid

import (
	"context"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/leases"
)

// queue of clusters to look at.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// leaseHandler notes every renewal at the time when it is seen, and asks for a pass only when a Lease says something new:
// a thousand members renew 67 times per second, and mean nothing by it.
func (r *Reconciler) leaseHandler() handler.EventHandler {
	enqueue := func(lease client.Object, q queue) {
		if request, ok := control.ClusterOf(lease); ok {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			r.sees(e.Object)
			enqueue(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*coordinationv1.Lease), e.ObjectNew.(*coordinationv1.Lease)
			revived := r.sees(after)
			if revived || reportsMore(before, after) {
				enqueue(after, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.memory.forget(client.ObjectKeyFromObject(e.Object))
			enqueue(e.Object, q)
		},
	}
}

// sees notes a member's or a snapshot Lease, and says whether that makes it alive for those who took it for something else.
func (r *Reconciler) sees(object client.Object) bool {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || leases.ComponentOf(lease) != leases.ComponentMember && !leases.ReportsBackups(lease) {
		return false
	}
	liveness := r.memory.watcher.Observe(lease, r.now())
	return liveness == leases.Live && r.memory.took(keyOf(lease)) != leases.Live
}

// reportsMore says whether the Lease changed in anything that druid goes by.
func reportsMore(before, after *coordinationv1.Lease) bool {
	if before.UID != after.UID || !before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!maps.Equal(before.Labels, after.Labels) || len(before.OwnerReferences) != len(after.OwnerReferences) {
		return true
	}
	switch leases.ComponentOf(after) {
	case leases.ComponentLeader:
		return false // the agents' own affair
	case leases.ComponentMember:
		was, wasErr := leases.DecodeMember(before)
		is, isErr := leases.DecodeMember(after)
		return wasErr != nil || isErr != nil || quiet(was) != quiet(is)
	case leases.ComponentFullSnapshot, leases.ComponentDeltaSnapshot:
		return savesMore(before, after) || verifiesMore(before, after)
	default:
		return !maps.Equal(before.Annotations, after.Annotations) ||
			holder(before) != holder(after)
	}
}

// savesMore reports whether a snapshot Lease changed in a part that the status of druid shows.
func savesMore(before, after *coordinationv1.Lease) bool {
	was, wasErr := leases.DecodeBackup(before)
	is, isErr := leases.DecodeBackup(after)
	return wasErr != nil || isErr != nil || was.EverSaved() != is.EverSaved() || was.Error != is.Error || was.Lineage != is.Lineage ||
		was.SupersededBy != is.SupersededBy ||
		!was.Since.Equal(is.Since) || leases.ComponentOf(after) == leases.ComponentFullSnapshot && !was.Taken.Equal(is.Taken)
}

// verifiesMore says whether a snapshot Lease reports anything else of verifications that druid reports on.
func verifiesMore(before, after *coordinationv1.Lease) bool {
	was, wasErr := leases.DecodeVerification(before)
	is, isErr := leases.DecodeVerification(after)
	return (wasErr != nil) != (isErr != nil) || was.Verdict != is.Verdict || was.Lineage != is.Lineage || was.Trouble != is.Trouble
}

// quiet is what the Lease says without what changes while the member works.
func quiet(m leases.Member) leases.Member {
	m.Raft, m.Floor, m.Revision, m.DBSize, m.DBSizeInUse, m.VolumeFree = leases.Raft{}, leases.Raft{}, 0, 0, 0, 0
	m.Fsync.P99 = 0                              // the status has the verdict
	m.LeaseVersion = ""                          // another one with each renewal
	m.Defragmentation = leases.Defragmentation{} // druid does not report it
	return m
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// expiryInterval is how often druid looks which Leases went stale: little next to the 45 s that a Lease lasts.
const expiryInterval = 2 * time.Second

// watchExpiries requests a pass for a cluster when one of its member Leases was not renewed for its duration. If
// instead each pass requested the next one for the time at which a Lease can expire, a cluster at rest would need a
// pass every half minute, because every renewal moves that time.
func (r *Reconciler) watchExpiries(ctx context.Context) error {
	ticker := time.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, cluster := range r.memory.expired(r.now()) {
			e := event.GenericEvent{Object: &v1alpha1.EtcdCluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name},
			}}
			select {
			case <-ctx.Done():
				return nil
			case r.expiries <- e:
			}
		}
	}
}

// judgement is what the last pass took a member Lease for.
type judgement struct {
	cluster  types.NamespacedName
	liveness leases.Liveness
	// reported is the expiry for which a pass was asked already.
	reported time.Time
}

// expired names, once for each expiry, the clusters with a member Lease that is stale by now and was not in the last pass.
func (m *memory) expired(now time.Time) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[types.NamespacedName]bool{}
	var clusters []types.NamespacedName
	for key, j := range m.judged {
		expiry, known := m.watcher.Expiry(key.Namespace, key.Name)
		if j.liveness&(leases.Live|leases.Unknown) == 0 || !known || now.Before(expiry) || j.reported.Equal(expiry) {
			continue
		}
		j.reported = expiry
		m.judged[key] = j
		if !seen[j.cluster] {
			seen[j.cluster] = true
			clusters = append(clusters, j.cluster)
		}
	}
	return clusters
}

// goes says whether the EtcdCluster was deleted and is left to Kubernetes, by a live read. No answer is no.
func (r *Reconciler) goes(ctx context.Context, cluster *v1alpha1.EtcdCluster) bool {
	var live v1alpha1.EtcdCluster
	err := r.live.Get(ctx, client.ObjectKeyFromObject(cluster), &live)
	return apierrors.IsNotFound(err) || err == nil && (live.UID != cluster.UID || live.DeletionTimestamp != nil && !guarded(&live))
}
