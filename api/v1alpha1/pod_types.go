package v1alpha1

// PodOptions are further options of the members' Pods. They contain no volumes and no containers: druid decides what
// runs in the Pod and where it stores data.
type PodOptions struct {
	// nodeSelector is a set of labels that a node must have to run a member's Pod.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="nodeSelector must have keys like disk or example.com/disk: Kubernetes rejects a Pod with other keys"
	// +optional
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// runtimeClassName of the members' Pods.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// env sets environment variables of the etcd container, such as GOGC or GOMEMLIMIT. Use spec.etcd for etcd's
	// options.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Env []EnvVar `json:"env,omitempty"`
}

// EnvVar is an environment variable with a plain value.
type EnvVar struct {
	// name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="name must be letters, digits and underscores, and must not start with a digit"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(ETCD|ETCDCTL|ETCDUTL)_')",message="name must not start with ETCD_, ETCDCTL_ or ETCDUTL_: use spec.etcd to set options of etcd"
	// +required
	Name string `json:"name"`
	// value of the variable.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Value string `json:"value,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// AdditionalMetadata is metadata for the objects of a cluster, for example for accounting.
type AdditionalMetadata struct {
	// labels are added to every object. You cannot set the labels by which druid selects objects.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('etcd.druid.dev/'))",message="labels must not start with etcd.druid.dev/: druid and the agents select objects by these labels"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="labels must have keys like team or example.com/team: Kubernetes rejects objects with other keys"
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// annotations are added to every object.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('etcd.druid.dev/'))",message="annotations must not start with etcd.druid.dev/: druid and the agents use these annotations"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="annotations must have keys like team or example.com/team: Kubernetes rejects objects with other keys"
	// +optional
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}

// AnnotationValue is the value of an annotation.
//
// +kubebuilder:validation:MaxLength=4096
type AnnotationValue string

// JoinFinalizer protects an EtcdCluster that joined a running cluster while external members remain in it. The members
// of the EtcdCluster leave that cluster before they are deleted.
const JoinFinalizer = "etcd.druid.dev/join"

// DisruptionSpec configures which Pods can be evicted, for example when a node is drained. druid writes it to the
// PodDisruptionBudget of the cluster.
type DisruptionSpec struct {
	// singleMember configures the eviction of the only voting member. Block: it cannot be evicted, so a drain waits until you
	// delete its Pod. Allow: it can be evicted while the membership does not change, so a drain interrupts all clients until
	// the Pod runs on another node. If no other node can mount its volume, they wait until the node returns. With several
	// voting members it has no effect. Allow cannot be combined with storage.medium. Defaults to Block.
	// +kubebuilder:default=Block
	// +optional
	SingleMember SingleMemberDisruption `json:"singleMember,omitempty"`
}

// SingleMemberDisruption says whether the only voting member can be evicted.
//
// +kubebuilder:validation:Enum=Block;Allow
type SingleMemberDisruption string

// Whether the only voting member can be evicted.
const (
	SingleMemberBlock SingleMemberDisruption = "Block"
	SingleMemberAllow SingleMemberDisruption = "Allow"
)

// EvictsSingleMember says whether the only voting member can be evicted.
func (c *EtcdCluster) EvictsSingleMember() bool {
	return c.Spec.Disruption != nil && c.Spec.Disruption.SingleMember == SingleMemberAllow
}
