package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// peerService gives each member's name an address. It publishes addresses that are not ready: a member must be found by
// its peers before it can become ready.
func peerService(cluster *v1alpha1.EtcdCluster) *corev1ac.ServiceApplyConfiguration {
	return service(cluster, PeerServiceName(cluster.Name), corev1ac.ServiceSpec().
		WithClusterIP(corev1.ClusterIPNone).
		WithSelector(Selector(cluster.Name)).
		WithPublishNotReadyAddresses(true).
		WithPorts(
			port("peer", config.PeerPort),
			port("client", config.ClientPort),
			port("metrics", config.MetricsPort),
			port("agent", config.AgentPort),
		))
}

// clientService is where clients dial. Which Pods serve is druid's word, the label, and not the Pods' readiness: in that
// the agent counts too, so that a crashing agent would take a serving etcd away from its clients.
func clientService(cluster *v1alpha1.EtcdCluster) *corev1ac.ServiceApplyConfiguration {
	client := service(cluster, ClientServiceName(cluster.Name), corev1ac.ServiceSpec().
		WithSelector(map[string]string{LabelClusterUID: string(cluster.UID), LabelServing: LabelTrue}).
		WithPublishNotReadyAddresses(true).
		WithPorts(port("client", config.ClientPort)))
	if s := cluster.Spec.ClientService; s != nil {
		client.WithAnnotations(plainStrings(s.Annotations))
	}
	return client
}

func service(cluster *v1alpha1.EtcdCluster, name string, spec *corev1ac.ServiceSpecApplyConfiguration) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(name, cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, nil)).
		WithOwnerReferences(ownerReference(cluster)).
		WithSpec(spec)
}

func port(name string, number int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().
		WithName(name).
		WithPort(number).
		WithTargetPort(intstr.FromInt32(number)).
		WithProtocol(corev1.ProtocolTCP)
}
