package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// ClientServiceSpec configures the Service that clients connect to. No change of it restarts etcd.
//
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClass) || (has(self.type) && self.type == 'LoadBalancer')",message="clientService.loadBalancerClass needs clientService.type LoadBalancer"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'LoadBalancer' || !has(oldSelf.type) || oldSelf.type != 'LoadBalancer' || (has(self.loadBalancerClass) == has(oldSelf.loadBalancerClass) && (!has(self.loadBalancerClass) || self.loadBalancerClass == oldSelf.loadBalancerClass))",message="clientService.loadBalancerClass must not change while clientService.type is LoadBalancer, because Kubernetes refuses it: set type ClusterIP first, which removes the load balancer"
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamilies) || self.ipFamilies.size() == (has(self.ipFamilyPolicy) && self.ipFamilyPolicy != 'SingleStack' ? 2 : 1)",message="clientService.ipFamilies must have two families with clientService.ipFamilyPolicy PreferDualStack or RequireDualStack, and one family otherwise"
type ClientServiceSpec struct {
	// annotations of this Service, for example for a load balancer or for DNS. They take precedence over
	// additionalMetadata.annotations.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('etcd.druid.dev/'))",message="annotations must not start with etcd.druid.dev/: druid and the agents use these annotations"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="annotations must have keys like team or example.com/team: Kubernetes rejects a Service with other keys"
	// +optional
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`

	// serving set to false removes all members from this Service: it accepts no new connection of a client. Members,
	// backups and the PodDisruptionBudget continue, and no Pod restarts. A recovery does not change it. Connections that
	// exist stay open. Defaults to true.
	// +optional
	Serving *bool `json:"serving,omitempty"`

	// type of this Service. NodePort and LoadBalancer make it reachable from outside of the Kubernetes cluster: set
	// tls.client first. If not set, Kubernetes uses ClusterIP.
	// +optional
	Type ClientServiceType `json:"type,omitempty"`

	// loadBalancerClass names the implementation that provides the load balancer, like example.com/internal. It needs
	// type LoadBalancer, and cannot change while the type is LoadBalancer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="loadBalancerClass must be a name like internal or example.com/internal: Kubernetes rejects a Service with another one"
	// +optional
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// trafficDistribution is which members Kubernetes prefers for a new connection. PreferClose and PreferSameZone: those
	// in the zone of the client. PreferSameNode: the one on the node of the client. PreferSameZone and PreferSameNode
	// need Kubernetes 1.34. If not set, all members get connections.
	// +optional
	TrafficDistribution TrafficDistribution `json:"trafficDistribution,omitempty"`

	// ipFamilyPolicy of this Service: SingleStack, PreferDualStack or RequireDualStack. The other Services of the cluster
	// do not have it. If not set, Kubernetes uses SingleStack for a new Service. To return to one family, set
	// SingleStack: the client Service keeps both when you only remove the field.
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	// +optional
	IPFamilyPolicy corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// ipFamilies of this Service: one family, or both with ipFamilyPolicy PreferDualStack or RequireDualStack. The other
	// Services of the cluster do not have them. Kubernetes cannot change the first family of a Service. You can add and
	// remove the second one. If not set, Kubernetes chooses the first family of a new Service, and an existing one keeps
	// it.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || self[0] != self[1]",message="ipFamilies must not contain a family twice"
	// +kubebuilder:validation:XValidation:rule="self[0] == oldSelf[0]",message="the first entry of ipFamilies must not change, because Kubernetes cannot change the first family of a Service"
	// +optional
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
}

// ClientServiceType is the type of the Service that clients connect to.
//
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
type ClientServiceType string

// The types of the client Service.
const (
	ClientServiceClusterIP    ClientServiceType = "ClusterIP"
	ClientServiceNodePort     ClientServiceType = "NodePort"
	ClientServiceLoadBalancer ClientServiceType = "LoadBalancer"
)

// TrafficDistribution is which members Kubernetes prefers for a new connection to the client Service.
//
// +kubebuilder:validation:Enum=PreferClose;PreferSameZone;PreferSameNode
type TrafficDistribution string

// The values of Kubernetes (k8s.io/api/core/v1, ServiceTrafficDistribution).
const (
	PreferClose    TrafficDistribution = corev1.ServiceTrafficDistributionPreferClose
	PreferSameZone TrafficDistribution = corev1.ServiceTrafficDistributionPreferSameZone
	PreferSameNode TrafficDistribution = corev1.ServiceTrafficDistributionPreferSameNode
)

// LeaderServiceSpec configures the Service <cluster>-leader. Its only endpoint is the leader.
type LeaderServiceSpec struct {
	// enabled creates the Service. druid labels the Pod of the leader, and moves the label when another member leads. For
	// a moment after an election, the Service has no endpoint, or still the previous leader. That member forwards
	// writes. The Service has the IP families of the client Service. Defaults to false.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// LeaderWanted says whether the cluster has a Service of the leader.
func (c *EtcdCluster) LeaderWanted() bool {
	return c.Spec.LeaderService != nil && c.Spec.LeaderService.Enabled
}

// ServesClients says whether the members are in the client Service.
func (c *EtcdCluster) ServesClients() bool {
	return c.Spec.ClientService == nil || c.Spec.ClientService.Serving == nil || *c.Spec.ClientService.Serving
}

// NetworkPolicySpec says who can connect to the members. druid creates a NetworkPolicy for the Pods of the members. The
// network plugin of the Kubernetes cluster must enforce it.
//
// The NetworkPolicy always lets the members of the cluster connect to one another, and the Pods of EtcdSnapshots to
// the members. Only members can connect to the peer port, 2380. While members of a joined cluster remain that druid
// does not run, the peer port is open to everyone.
type NetworkPolicySpec struct {
	// clients can connect to the client port, 2379. If not set, everyone can.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, has(p.ipBlock) != (has(p.podSelector) || has(p.namespaceSelector)))",message="each entry of networkPolicy.clients needs either ipBlock, or podSelector, namespaceSelector or both"
	// +optional
	Clients []networkingv1.NetworkPolicyPeer `json:"clients,omitempty"`

	// metrics can connect to the ports of metrics and health, 2381 and 8080. If not set, everyone can. The kubelet
	// probes these ports from its node. Network plugins always allow that.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, has(p.ipBlock) != (has(p.podSelector) || has(p.namespaceSelector)))",message="each entry of networkPolicy.metrics needs either ipBlock, or podSelector, namespaceSelector or both"
	// +optional
	Metrics []networkingv1.NetworkPolicyPeer `json:"metrics,omitempty"`

	// agentAPI can connect to the API of the agents, port 8443. If not set, everyone can. The API authenticates each
	// caller.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, has(p.ipBlock) != (has(p.podSelector) || has(p.namespaceSelector)))",message="each entry of networkPolicy.agentAPI needs either ipBlock, or podSelector, namespaceSelector or both"
	// +optional
	AgentAPI []networkingv1.NetworkPolicyPeer `json:"agentAPI,omitempty"`
}
