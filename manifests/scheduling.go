package manifests

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// affinity is the user's, or a preference for one member per node and, less strongly, per zone. It only prefers: a member
// next to another is better than none.
func affinity(cluster *v1alpha1.EtcdCluster) *corev1.Affinity {
	if cluster.Spec.Affinity != nil {
		return cluster.Spec.Affinity
	}
	apart := func(weight int32, topologyKey string) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchLabels: Selector(cluster.Name)},
			TopologyKey:   topologyKey,
		}}
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			apart(100, corev1.LabelHostname),
			apart(50, corev1.LabelTopologyZone),
		},
	}}
}

// tolerations keep Kubernetes from evicting the members of a lost node after five minutes, all at once: druid alone
// deletes their Pods, one at a time.
func tolerations(users []corev1.Toleration) []corev1.Toleration {
	lost := func(taint string) corev1.Toleration {
		return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	}
	return slices.Concat([]corev1.Toleration{lost(corev1.TaintNodeNotReady), lost(corev1.TaintNodeUnreachable)}, users)
}

// topologySpreadConstraints are the user's. One without a selector, which would count no Pod at all, counts the members.
func topologySpreadConstraints(cluster *v1alpha1.EtcdCluster) []corev1.TopologySpreadConstraint {
	constraints := slices.Clone(cluster.Spec.TopologySpreadConstraints)
	for i := range constraints {
		if constraints[i].LabelSelector == nil {
			constraints[i].LabelSelector = &metav1.LabelSelector{MatchLabels: Selector(cluster.Name)}
		}
	}
	return constraints
}

func nodeSelector(cluster *v1alpha1.EtcdCluster) map[string]string {
	if len(cluster.Spec.NodeSelector) == 0 {
		return nil
	}
	return plainStrings(cluster.Spec.NodeSelector)
}
