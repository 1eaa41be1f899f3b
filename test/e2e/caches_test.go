package e2e

import (
	"testing"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

// caches are those of two controllers: one connects through the client Service, and one to each member.
type caches []*harness.Cache

// startCaches also writes to the same keys again and again, and deletes one in each number of deletions.
func startCaches(t *testing.T, c *harness.Cluster, deletions int) caches {
	t.Helper()
	harness.Churn(t, c.EtcdService(t), deletions)
	return caches{harness.StartCache(t, "through the Service", c.EtcdService(t)), harness.StartCache(t, "of all members", c.Etcd(t))}
}

// equal checks that each cache equals the store, after so many lists.
func (held caches) equal(t *testing.T, c *harness.Cluster, lists int) {
	t.Helper()
	etcd := c.Etcd(t)
	for _, cache := range held {
		cache.AwaitLists(t, lists)
		cache.Equals(t, etcd)
	}
}
