package druid

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// ours says whether the object is the cluster's: of this UID, and not of an EtcdCluster that bore the name before.
func ours(cluster *v1alpha1.EtcdCluster, object metav1.Object) bool {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		// Data may outlive the EtcdCluster: a claim says whose it is, whether it has an owner or not.
		return claim.Labels[manifests.LabelClusterUID] == string(cluster.UID)
	}
	return metav1.IsControlledBy(object, cluster)
}

// foreignError: an object has a name that the cluster needs, and is not the cluster's. druid never adopts one.
type foreignError struct{ kind, name string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("%s %s exists and has another owner. Delete or rename it", e.kind, e.name)
}
