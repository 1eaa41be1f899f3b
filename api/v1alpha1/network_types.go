package v1alpha1

import networkingv1 "k8s.io/api/networking/v1"

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
