package manifests

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// PersistentVolumeClaim is the claim of a member's volume.
//
// A label names the cluster whose it is, because data may outlive the EtcdCluster: only where the claims are to go with it
// has it an owner, by which Kubernetes itself deletes it. It asks for ReadWriteOnce,
// which every driver can: ReadWriteOncePod needs a CSI driver, and what it would protect from, two Pods of one node on one
// volume, the exclusive lock on the volume prevents.
func PersistentVolumeClaim(cluster *v1alpha1.EtcdCluster, member string) *corev1.PersistentVolumeClaim {
	labels := MemberLabels(cluster.Name, member)
	labels[LabelClusterUID] = string(cluster.UID)
	var owners []metav1.OwnerReference
	if ClaimsGo(cluster) {
		owners = []metav1.OwnerReference{ClaimOwner(cluster)}
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: member, Namespace: cluster.Namespace, OwnerReferences: owners,
			Labels: labelled(cluster, labels), Annotations: annotated(cluster, nil),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: cluster.Spec.Storage.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: cluster.Spec.Storage.Size},
			},
		},
	}
}

// ClaimsGo says whether the claims are to be deleted when the EtcdCluster is. What is not said is no order to delete.
func ClaimsGo(cluster *v1alpha1.EtcdCluster) bool {
	return cluster.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenDeleted == v1alpha1.DeletePersistentVolumeClaim
}

// ClaimOwner is the reference of a claim that goes with the EtcdCluster. Who deletes the EtcdCluster in the foreground
// waits for the claim too. It is not a controller's reference, which an object has only one of: no claim is ours by it.
func ClaimOwner(cluster *v1alpha1.EtcdCluster) metav1.OwnerReference {
	owner := *metav1.NewControllerRef(cluster, kind)
	owner.Controller = nil
	return owner
}
