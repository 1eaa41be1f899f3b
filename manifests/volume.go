package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// Capacity is the size of the volume behind a claim: what the claim requests, until it has one. Without a claim nothing is
// known, and ok is false.
func Capacity(claim *corev1.PersistentVolumeClaim) (size resource.Quantity, ok bool) {
	if claim == nil {
		return size, false
	}
	if size, ok = claim.Status.Capacity[corev1.ResourceStorage]; !ok {
		size, ok = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size, ok
}

// OnVolume is the cluster as the Pod on that claim is to see it. The quota follows the size that the spec asks for, and a
// volume that has not grown to it yet would be full before etcd reached such a quota: etcd cannot run on a full volume. So a
// quota that does not fit, and one that the user did not set, is that of a cluster whose spec asks for what the volume holds.
// The hash of such a Pod is another one, so that it is outdated as soon as its volume has grown.
func OnVolume(cluster *v1alpha1.EtcdCluster, claim *corev1.PersistentVolumeClaim) *v1alpha1.EtcdCluster {
	size, known := Capacity(claim)
	if !known || size.Cmp(cluster.Spec.Storage.Size) >= 0 {
		return cluster
	}
	smaller := cluster.DeepCopy()
	smaller.Spec.Storage.Size = size
	if quota := smaller.Spec.Etcd.QuotaBackendBytes; quota != nil && quota.Cmp(size) > 0 {
		smaller.Spec.Etcd.QuotaBackendBytes = nil
	}
	return smaller
}

// MountedFor marks a Pod that is made while the driver waits for the volume to be mounted again to grow: this Pod is what it waits for.
func MountedFor(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) {
	if GrowsWhenMounted(claim) {
		request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		pod.Annotations[AnnotationMountedFor] = request.String()
	}
}

// IsMountedFor says whether the Pod was made for the size that the claim requests.
func IsMountedFor(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	size, err := resource.ParseQuantity(pod.Annotations[AnnotationMountedFor])
	return err == nil && size.Equal(claim.Spec.Resources.Requests[corev1.ResourceStorage])
}

// GrowsWhenMounted says that the driver has made the volume larger, and that what is left, its file system, is a node's to grow.
func GrowsWhenMounted(claim *corev1.PersistentVolumeClaim) bool {
	return ClaimCondition(claim, corev1.PersistentVolumeClaimFileSystemResizePending) != nil ||
		claim != nil && claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizePending
}

// ClaimCondition is the claim's condition of that type if it is True, else nil.
func ClaimCondition(claim *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
	if claim == nil {
		return nil
	}
	for i, c := range claim.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return &claim.Status.Conditions[i]
		}
	}
	return nil
}
