package manifests

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// RecordLease is the cluster record as it is first made, or made again after it was lost.
func RecordLease(cluster *v1alpha1.EtcdCluster, record leases.Record) (*coordinationv1.Lease, error) {
	lease := sharedLease(cluster, leases.RecordName(cluster.Name), leases.ComponentRecord)
	if err := record.Encode(lease); err != nil {
		return nil, fmt.Errorf("record %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return lease, nil
}

// LeaderLease is the Lease for which the agents next to the raft leader campaign.
func LeaderLease(cluster *v1alpha1.EtcdCluster) *coordinationv1.Lease {
	return sharedLease(cluster, leases.LeaderName(cluster.Name), leases.ComponentLeader)
}

// MemberLease is the Lease of a member that never was in a cluster: it has no holder until the member's agent says so.
func MemberLease(cluster *v1alpha1.EtcdCluster, member string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: owned(cluster, member, MemberLabels(cluster.Name, member))}
}

// SnapshotLease is the Lease in which the leader's agent reports full or of delta backups, before it ever did. Until then
// it lasts as long as the first of them may take.
func SnapshotLease(cluster *v1alpha1.EtcdCluster, component leases.Component) (*coordinationv1.Lease, error) {
	backup, err := Backup(cluster)
	if err != nil || backup == nil {
		return nil, err
	}
	name, duration := leases.FullSnapshotName(cluster.Name), config.FullGrace
	if component == leases.ComponentDeltaSnapshot {
		name, duration = leases.DeltaSnapshotName(cluster.Name), backup.DeltaLeaseDuration()
	}
	lease := sharedLease(cluster, name, component)
	lease.Spec.LeaseDurationSeconds = new(int32(duration / time.Second))
	return lease, nil
}

func sharedLease(cluster *v1alpha1.EtcdCluster, name string, component leases.Component) *coordinationv1.Lease {
	labels := Labels(cluster.Name)
	labels[leases.LabelComponent] = string(component)
	return &coordinationv1.Lease{ObjectMeta: owned(cluster, name, labels)}
}

// owned is the metadata of an object that goes when the EtcdCluster goes.
func owned(cluster *v1alpha1.EtcdCluster, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       cluster.Namespace,
		Labels:          labelled(cluster, labels),
		Annotations:     annotated(cluster, nil),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, kind)},
	}
}
