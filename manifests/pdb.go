package manifests

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// DisruptionBudget keeps evictions from taking more voters than the cluster can spare. minAvailable is the number of
// voters that must stay: a number and not a share, because a share is taken of the replicas that the user asks for, and
// would allow to evict every voter at once when that number goes down.
func DisruptionBudget(cluster *v1alpha1.EtcdCluster, minAvailable int32) (Applied, error) {
	return applied(policyv1ac.PodDisruptionBudget(DisruptionBudgetName(cluster.Name), cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, nil)).
		WithOwnerReferences(ownerReference(cluster)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMinAvailable(intstr.FromInt32(minAvailable)).
			WithUnhealthyPodEvictionPolicy(policyv1.IfHealthyBudget).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{
				LabelClusterUID: string(cluster.UID),
				LabelVoter:      LabelTrue,
			}))))
}
