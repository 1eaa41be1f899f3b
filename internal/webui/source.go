package webui

import (
	"context"

	"github.com/etcd-druid/druid/internal/view"
)

// Source reads Kubernetes with the permissions of the user. Its methods can be called at the same time.
type Source interface {
	// Fleet reads all EtcdClusters of the namespaces that are shown, the worst first.
	Fleet(ctx context.Context) (Fleet, error)
	// Cluster reads one EtcdCluster.
	Cluster(ctx context.Context, namespace, name string) (view.Cluster, error)
}

// Fleet are EtcdClusters, and what could not be read about them.
type Fleet struct {
	Clusters []view.Cluster
	Unread   []view.Unread
}
