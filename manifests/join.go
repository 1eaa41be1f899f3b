package manifests

import (
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// joined says how the cluster joins a running one, nil for one that is formed by itself.
func joined(cluster *v1alpha1.EtcdCluster) *v1alpha1.JoinSpec {
	if cluster.Spec.Bootstrap == nil {
		return nil
	}
	return cluster.Spec.Bootstrap.Join
}

// join is where the cluster's first boot finds the running one, empty for a cluster that is formed by itself.
func join(cluster *v1alpha1.EtcdCluster) string {
	if spec := joined(cluster); spec != nil {
		endpoints := make([]string, len(spec.Endpoints))
		for i, endpoint := range spec.Endpoints {
			endpoints[i] = string(endpoint)
		}
		return config.JoinOf(endpoints)
	}
	return ""
}

// Joins says whether the cluster's first member joins a running one.
func Joins(cluster *v1alpha1.EtcdCluster) bool { return joined(cluster) != nil }

// RemovesOthers says whether the members of the cluster that was joined may go.
func RemovesOthers(cluster *v1alpha1.EtcdCluster) bool {
	spec := joined(cluster)
	return spec != nil && spec.RemoveOthers
}
