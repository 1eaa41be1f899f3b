package webui

import (
	"context"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
)

// Source reads Kubernetes with the permissions of the user. Its methods can be called at the same time.
type Source interface {
	// Fleet reads all EtcdClusters of the namespaces that are shown, the worst first.
	Fleet(ctx context.Context) (Fleet, error)
	// Cluster reads one EtcdCluster.
	Cluster(ctx context.Context, namespace, name string) (view.Cluster, error)
	// Backups lists the backups of one EtcdCluster. An agent reads the store for it, which can take seconds.
	Backups(ctx context.Context, namespace, name string) (Backups, error)
}

// Fleet are EtcdClusters, and what could not be read about them.
type Fleet struct {
	Clusters []view.Cluster
	Unread   []view.Unread
}

// Backups are what an agent found in the store.
type Backups struct {
	// Member is the one whose agent read the store.
	Member, Store, Prefix string
	// Totals count all of it in a sentence.
	Totals string
	// Lanes are the lineages. Each stands below the one from which it forked.
	Lanes []Lane
	// Notes are what is not as it should be, in sentences.
	Notes []string
}

// Lane is a lineage, and how many of its ancestors are listed.
type Lane struct {
	catalog.Summary
	Depth int
}
