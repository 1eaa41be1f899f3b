package v1alpha1

// PodOptions are further options of the members' Pods. A volume or a container is none of them: what runs beside etcd, and
// what it stores on, is druid's.
type PodOptions struct {
	// nodeSelector of the members' Pods: labels that a node must have.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="nodeSelector must have keys like disk or example.com/disk: Kubernetes refuses others, and a member whose Pod is replaced would not come back"
	// +optional
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// runtimeClassName of the members' Pods.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// env of the etcd container, for Go's own variables like GOGC or GOMEMLIMIT. etcd's options are set in spec.etcd.
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
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="name must be letters, digits and underscores, and not begin with a digit"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(ETCD|ETCDCTL|ETCDUTL)_')",message="name must not begin with ETCD_, ETCDCTL_ or ETCDUTL_: to etcd these are options, which spec.etcd sets and druid owns"
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

// AdditionalMetadata is what users and their tools want on the objects of a cluster, for example for accounting.
type AdditionalMetadata struct {
	// labels on every object. Those that druid selects and finds objects by cannot be set.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('etcd.druid.dev/'))",message="labels must not begin with etcd.druid.dev/: by these druid and the agents find what is theirs"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="labels must have keys like team or example.com/team: Kubernetes refuses others, and no object of the cluster could be made"
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// annotations on every object.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('etcd.druid.dev/'))",message="annotations must not begin with etcd.druid.dev/: in these druid and the agents tell each other what they do"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="annotations must have keys like team or example.com/team: Kubernetes refuses others, and no object of the cluster could be made"
	// +optional
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}

// AnnotationValue is the value of an annotation.
//
// +kubebuilder:validation:MaxLength=4096
type AnnotationValue string

// ClientServiceSpec says more of the Service that clients dial.
type ClientServiceSpec struct {
	// annotations of this Service, for example for a load balancer or for DNS. They win over additionalMetadata.annotations.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('etcd.druid.dev/'))",message="annotations must not begin with etcd.druid.dev/: in these druid and the agents tell each other what they do"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="annotations must have keys like team or example.com/team: Kubernetes refuses others, and the Service could not be made"
	// +optional
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}
