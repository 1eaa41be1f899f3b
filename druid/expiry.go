package druid

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// expiryInterval is how often druid looks which Leases went stale: little next to the 45 s that a Lease lasts.
const expiryInterval = 2 * time.Second

// watchExpiries asks for a pass over a cluster when one of its member Leases was not renewed for its duration. Were each
// pass to come back by itself at the time when a Lease may expire, a cluster at rest would cost a pass every half minute,
// because every renewal moves that time.
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
	notified time.Time
}

// expired names, once for each expiry, the clusters with a member Lease that is stale by now and was not in the last pass.
func (m *memory) expired(now time.Time) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[types.NamespacedName]bool{}
	var clusters []types.NamespacedName
	for key, j := range m.judged {
		expiry, known := m.watcher.Expiry(key.Namespace, key.Name)
		if j.liveness&(leases.Live|leases.Unknown) == 0 || !known || now.Before(expiry) || j.notified.Equal(expiry) {
			continue
		}
		j.notified = expiry
		m.judged[key] = j
		if !seen[j.cluster] {
			seen[j.cluster] = true
			clusters = append(clusters, j.cluster)
		}
	}
	return clusters
}
