package v1alpha1

// JoinFinalizer holds an EtcdCluster that joins a running cluster, as long as others are in that: its members leave it before they go.
const JoinFinalizer = "etcd.druid.dev/join"

// JoinSpec says which running etcd cluster the members join. They come in as learners, one after another, and get a vote when
// they have caught up; leadership moves to them, and whoever was there before stays until removeOthers is set. The running cluster
// must be of the minor of spec.version, healthy, without authentication, and speak no TLS: druid's members speak none yet.
type JoinSpec struct {
	// endpoints are client URLs of the running cluster, like http://etcd-0.etcd-headless.legacy.svc:2379. Those of some of its
	// members are enough, but each of its members must be reachable at the client URLs that it advertises itself.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +required
	Endpoints []JoinEndpoint `json:"endpoints"`
	// removeOthers lets the members that are not of this EtcdCluster be removed, one at a time, when all of this EtcdCluster are
	// healthy voters. Set it when no client dials them any more: it cannot be undone. This is the only part of bootstrap that may
	// be changed.
	// +optional
	RemoveOthers bool `json:"removeOthers,omitempty"`
}

// JoinEndpoint is a client URL of an etcd member.
//
// +kubebuilder:validation:MaxLength=300
// +kubebuilder:validation:XValidation:rule="!self.startsWith('https:')",message="an endpoint of join must not be https: druid's members speak no TLS yet, so they cannot join a cluster whose members do"
// +kubebuilder:validation:XValidation:rule="self.startsWith('https:') || self.matches('^http://([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|[[][0-9a-fA-F:.]+[]]):[0-9]{1,5}$')",message="an endpoint of join must be a client URL with a port and no path, like http://etcd-0.etcd-headless.legacy.svc:2379"
type JoinEndpoint string
