package v1alpha1

// JoinFinalizer protects an EtcdCluster that joined a running cluster while external members remain in it. The members
// of the EtcdCluster leave that cluster before they are deleted.
const JoinFinalizer = "etcd.druid.dev/join"

// JoinSpec configures which running etcd cluster the members join. The members join as learners, one at a time, and
// become voters when they have caught up. Leadership moves to them. The external members stay until removeOthers is
// set. The running cluster must run the minor version of spec.version, must be healthy, and must use neither
// authentication nor TLS, because druid's members do not support TLS yet.
type JoinSpec struct {
	// endpoints are client URLs of the running cluster, such as http://etcd-0.etcd-headless.legacy.svc:2379. The URLs
	// of some members are enough, but druid's members must be able to reach every member at the client URLs that it
	// advertises.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +required
	Endpoints []JoinEndpoint `json:"endpoints"`
	// removeOthers removes the external members, one at a time, when all members of this EtcdCluster are healthy
	// voters. Set it when no client connects to the external members any more. You cannot undo it. It is the only
	// field of bootstrap that you can change.
	// +optional
	RemoveOthers bool `json:"removeOthers,omitempty"`
}

// JoinEndpoint is a client URL of an etcd member.
//
// +kubebuilder:validation:MaxLength=300
// +kubebuilder:validation:XValidation:rule="!self.startsWith('https:')",message="an endpoint of join must not be https: druid's members do not support TLS yet and cannot join a cluster that uses it"
// +kubebuilder:validation:XValidation:rule="self.startsWith('https:') || self.matches('^http://([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|[[][0-9a-fA-F:.]+[]]):[0-9]{1,5}$')",message="an endpoint of join must be a client URL with a port and no path, like http://etcd-0.etcd-headless.legacy.svc:2379"
type JoinEndpoint string
