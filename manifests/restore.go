package manifests

import (
	"encoding/json"
	"fmt"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// restore is what the cluster's first boot restores, empty for one that begins empty.
func restore(cluster *v1alpha1.EtcdCluster) (string, error) {
	spec, lineage, err := restoreSpec(cluster)
	if spec == nil || err != nil {
		return "", err
	}
	if from := spec.From; from != nil && from.SnapshotRef != nil {
		// A cluster that has formed needs no more of it; an agent that would form one waits, and says so.
		return config.Restore{Unresolved: fmt.Sprintf("no one knows what EtcdSnapshot %s stands for: status.restore of EtcdCluster %s does not report it",
			from.SnapshotRef.Name, cluster.Name)}.Encode()
	}
	order := config.Restore{Lineage: lineage}
	namespace, name := cluster.Namespace, cluster.Name
	if from := spec.From; from != nil {
		if from.Namespace != "" {
			namespace = from.Namespace
		}
		if from.Name != "" {
			name = from.Name
		}
		if from.Store != nil {
			raw, err := json.Marshal(storeConfig(from.Store, from.Encryption, config.RestoreDir))
			if err != nil {
				return "", fmt.Errorf("encode the store that %s/%s is restored from: %w", cluster.Namespace, cluster.Name, err)
			}
			order.Store = raw
		}
		order.File = from.File
	}
	if order.File == "" {
		order.Prefix = namespace + "/" + name
	}
	if to := spec.To; to != nil {
		order.Revision, order.Name = to.Revision, to.Name
		if to.Time != nil {
			moment := to.Time.UTC()
			order.Time = &moment
		}
	}
	return order.Encode()
}

// restoreSpec is what the cluster begins with, nil for nothing, and the lineage of it where that is known: what the spec says, or what
// druid found out about the EtcdSnapshot that it names. While that is not known the snapshotRef stands in it.
func restoreSpec(cluster *v1alpha1.EtcdCluster) (spec *v1alpha1.RestoreSpec, lineage string, err error) {
	if cluster.Spec.Bootstrap == nil || cluster.Spec.Bootstrap.Restore == nil {
		return nil, "", nil
	}
	spec = cluster.Spec.Bootstrap.Restore
	if spec.From == nil || spec.From.SnapshotRef == nil {
		return spec, "", nil
	}
	resolved, err := cluster.Status.ResolvedRestore()
	if err != nil || resolved == nil {
		return spec, "", err
	}
	return &resolved.RestoreSpec, resolved.Lineage, nil
}

// StoreURI is the URI of a key as the agents of a cluster call it that is backed up to that store: status.artifact of an EtcdSnapshot has it.
func StoreURI(spec *v1alpha1.BackupStore, key string) string {
	return storeConfig(spec, nil, config.BackupDir).URI(key)
}
