package druid

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// statuses remembers each EtcdCluster as druid's own last status write left it, until the caches have it too. A pass that
// came sooner would compare with the status from before, write again, and lose the compare-and-set.
type statuses struct {
	mu    sync.Mutex
	after map[types.NamespacedName]written
}

// written is an EtcdCluster as the API server returned it from a write, and the versions that are older.
type written struct {
	cluster *v1alpha1.EtcdCluster
	over    []string
}

func newStatuses() *statuses { return &statuses{after: map[types.NamespacedName]written{}} }

// wrote notes what became of the version that was written over. The write was a compare-and-set: nothing is between them.
func (s *statuses) wrote(version string, cluster *v1alpha1.EtcdCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(cluster)
	over := []string{version}
	if before := s.after[key]; before.cluster != nil && before.cluster.ResourceVersion == version {
		over = append(before.over, version)
	}
	s.after[key] = written{cluster: cluster.DeepCopy(), over: over}
}

// latest is the cluster, or what druid itself made of that very version.
func (s *statuses) latest(cached *v1alpha1.EtcdCluster) *v1alpha1.EtcdCluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	w, known := s.after[key]
	if known && slices.Contains(w.over, cached.ResourceVersion) {
		return w.cluster.DeepCopy()
	}
	delete(s.after, key) // the caches have it, or what someone wrote after it
	return cached
}

// forget drops what is known of a cluster that is gone.
func (s *statuses) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.after, key)
}
