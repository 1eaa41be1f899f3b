package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// peerService returns the Service that gives each name of a member an address. It publishes addresses that are not
// ready, because peers must find a member before it can become ready.
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
			port("api", config.APIPort),
		))
}

// clientService returns the Service for clients. A label of druid selects the Pods that serve, and not the readiness
// of the Pods. The readiness of a Pod also depends on the agent, so a crashing agent would take a serving etcd away
// from its clients. A field that the user does not set is left out. Kubernetes then chooses its value, or keeps the one
// that the Service has.
func clientService(cluster *v1alpha1.EtcdCluster) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().
		WithSelector(map[string]string{LabelClusterUID: string(cluster.UID), LabelServing: LabelTrue}).
		WithPublishNotReadyAddresses(true).
		WithPorts(port("client", config.ClientPort))
	client := service(cluster, ClientServiceName(cluster.Name), spec)
	s := cluster.Spec.ClientService
	if s == nil {
		return client
	}
	client.WithAnnotations(plainStrings(s.Annotations))
	if s.Type != "" {
		spec.WithType(corev1.ServiceType(s.Type))
	}
	if s.LoadBalancerClass != nil {
		spec.WithLoadBalancerClass(*s.LoadBalancerClass)
	}
	if s.TrafficDistribution != "" {
		spec.WithTrafficDistribution(string(s.TrafficDistribution))
	}
	switch {
	case s.IPFamilyPolicy != "":
		spec.WithIPFamilyPolicy(s.IPFamilyPolicy)
	case len(s.IPFamilies) == 1: // Kubernetes lets a Service release its second family only with this policy
		spec.WithIPFamilyPolicy(corev1.IPFamilyPolicySingleStack)
	}
	spec.WithIPFamilies(s.IPFamilies...)
	return client
}

// nodesService returns the headless Service for clients that connect to each member by itself. Its SRV records name the
// members that serve. The port has the name that etcd's own clients look up: another one where clients use TLS
// (etcd: client/pkg/srv, GetClient).
func nodesService(cluster *v1alpha1.EtcdCluster) *corev1ac.ServiceApplyConfiguration {
	name := "etcd-client"
	if clientsSecure(cluster) {
		name = "etcd-client-ssl"
	}
	return service(cluster, NodesServiceName(cluster.Name), corev1ac.ServiceSpec().
		WithClusterIP(corev1.ClusterIPNone).
		WithSelector(map[string]string{LabelClusterUID: string(cluster.UID), LabelServing: LabelTrue}).
		WithPublishNotReadyAddresses(true).
		WithPorts(port(name, config.ClientPort)))
}

// leaderService returns the Service for clients that connect to the leader. druid sets the label that it selects.
func leaderService(cluster *v1alpha1.EtcdCluster) *corev1ac.ServiceApplyConfiguration {
	return service(cluster, LeaderServiceName(cluster.Name), corev1ac.ServiceSpec().
		WithSelector(map[string]string{LabelClusterUID: string(cluster.UID), LabelLeader: LabelTrue}).
		WithPublishNotReadyAddresses(true).
		WithPorts(port("client", config.ClientPort)))
}

// service returns a Service with the metadata that all Services of the cluster have. It leaves the IP families out, so that
// Kubernetes chooses those of the Pods: members must find each other in the family of the Pods.
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
