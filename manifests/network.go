package manifests

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// networkPolicy returns the NetworkPolicy of the members. Policies only add to one another what they allow, so this one
// exists only if the user wants it: it would open ports that another policy of the user closes. It does not restrict
// egress, because druid does not know where the Kubernetes API, DNS and the backup store are.
func networkPolicy(cluster *v1alpha1.EtcdCluster, record leases.Record) *networkingv1ac.NetworkPolicyApplyConfiguration {
	spec := cluster.Spec.NetworkPolicy
	members := networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(Selector(cluster.Name)))
	snapshots := networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{
		leases.LabelCluster: cluster.Name, leases.LabelComponent: string(leases.ComponentSnapshot),
	}))
	own := []*networkingv1ac.NetworkPolicyPeerApplyConfiguration{members}
	peers := own
	if externalsMayRemain(cluster, record) {
		peers = nil
	}
	return networkingv1ac.NetworkPolicy(NetworkPolicyName(cluster.Name), cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, nil)).
		WithOwnerReferences(ownerReference(cluster)).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(Selector(cluster.Name))).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(
				ingress(peers, config.PeerPort),
				ingress(sources(spec.Clients, members, snapshots), config.ClientPort),
				ingress(sources(spec.AgentAPI, members), config.APIPort),
				ingress(sources(spec.Metrics), config.MetricsPort, config.AgentPort),
			))
}

// externalsMayRemain says whether members of a joined cluster that druid does not run can still connect. They do until
// the leader's agent has published a member list without them.
func externalsMayRemain(cluster *v1alpha1.EtcdCluster, record leases.Record) bool {
	if cluster.Spec.Bootstrap == nil || cluster.Spec.Bootstrap.Join == nil {
		return false
	}
	others, listed := record.Others()
	return !listed || len(others) > 0
}

// sources returns what the user permits and the Pods that always connect. It returns nil, which permits everyone, if the
// user names no source.
func sources(
	permitted []networkingv1.NetworkPolicyPeer, always ...*networkingv1ac.NetworkPolicyPeerApplyConfiguration,
) []*networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	if len(permitted) == 0 {
		return nil
	}
	for _, p := range permitted {
		peer := networkingv1ac.NetworkPolicyPeer()
		if p.PodSelector != nil {
			peer.WithPodSelector(selector(p.PodSelector))
		}
		if p.NamespaceSelector != nil {
			peer.WithNamespaceSelector(selector(p.NamespaceSelector))
		}
		if p.IPBlock != nil {
			peer.WithIPBlock(networkingv1ac.IPBlock().WithCIDR(p.IPBlock.CIDR).WithExcept(p.IPBlock.Except...))
		}
		always = append(always, peer)
	}
	return always
}

func selector(s *metav1.LabelSelector) *metav1ac.LabelSelectorApplyConfiguration {
	all := metav1ac.LabelSelector().WithMatchLabels(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		all.WithMatchExpressions(metav1ac.LabelSelectorRequirement().WithKey(e.Key).WithOperator(e.Operator).WithValues(e.Values...))
	}
	return all
}

// ingress permits the sources to connect to the ports, or everyone if there are none.
func ingress(from []*networkingv1ac.NetworkPolicyPeerApplyConfiguration, ports ...int32) *networkingv1ac.NetworkPolicyIngressRuleApplyConfiguration {
	rule := networkingv1ac.NetworkPolicyIngressRule().WithFrom(from...)
	for _, number := range ports {
		rule.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(number)))
	}
	return rule
}
