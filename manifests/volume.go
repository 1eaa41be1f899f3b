package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// PersistentVolumeClaim returns the claim of a member's volume.
//
// A label names the cluster, because data can outlive the EtcdCluster. The claim has an owner, by which Kubernetes
// deletes it, only if claims are to be deleted with the EtcdCluster. It requests ReadWriteOnce, which every driver
// supports. ReadWriteOncePod needs a CSI driver. It would prevent two Pods of one node on one volume, which the
// exclusive lock on the volume already prevents.
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

// ClaimsGo reports whether Kubernetes deletes the claims with the EtcdCluster. An unset policy is not an order to
// delete.
func ClaimsGo(cluster *v1alpha1.EtcdCluster) bool {
	return cluster.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenDeleted == v1alpha1.DeletePersistentVolumeClaim
}

// ClaimOwner returns the owner reference of a claim that is deleted with the EtcdCluster. A foreground deletion of the
// EtcdCluster waits for the claim too. It is not a controller reference, of which an object has only one, so it does
// not show that a claim belongs to druid.
func ClaimOwner(cluster *v1alpha1.EtcdCluster) metav1.OwnerReference {
	owner := *metav1.NewControllerRef(cluster, kind)
	owner.Controller = nil
	return owner
}

// Capacity returns the size of the volume of a claim, or the requested size until there is one. Without a claim, ok is
// false.
func Capacity(claim *corev1.PersistentVolumeClaim) (size resource.Quantity, ok bool) {
	if claim == nil {
		return size, false
	}
	if size, ok = claim.Status.Capacity[corev1.ResourceStorage]; !ok {
		size, ok = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size, ok
}

// OnVolume returns the cluster as the Pod on that claim must see it. The quota follows the size in the spec. A volume
// that has not grown to that size yet would be full before etcd reaches such a quota, and etcd cannot run on a full
// volume. So a quota that does not fit, or that the user did not set, is computed from the actual size of the volume.
// The hash of such a Pod differs, so the Pod is outdated as soon as its volume has grown.
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

// MountedFor marks a Pod that druid creates while the driver waits for a new mount of the volume to grow it.
func MountedFor(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) {
	if GrowsWhenMounted(claim) {
		request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		pod.Annotations[AnnotationMountedFor] = request.String()
	}
}

// IsMountedFor reports whether druid created the Pod for the size that the claim requests.
func IsMountedFor(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	size, err := resource.ParseQuantity(pod.Annotations[AnnotationMountedFor])
	return err == nil && size.Equal(claim.Spec.Resources.Requests[corev1.ResourceStorage])
}

// GrowsWhenMounted reports that the driver has enlarged the volume, and that a node must still grow its file system.
func GrowsWhenMounted(claim *corev1.PersistentVolumeClaim) bool {
	return ClaimCondition(claim, corev1.PersistentVolumeClaimFileSystemResizePending) != nil ||
		claim != nil && claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizePending
}

// ClaimCondition returns the claim's condition of that type if it is True, and nil otherwise.
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
