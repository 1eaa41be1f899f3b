package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// JoinSpec configures which running etcd cluster the members join. The members join as learners, one at a time, and
// become voters when they have caught up. Leadership moves to them. The external members stay until removeOthers is
// set. The running cluster must run the minor version of spec.version, must be healthy, and must not use
// authentication. If its peers use TLS, set spec.tls.peer.secretRef to certificates that its members trust.
//
// +kubebuilder:validation:XValidation:rule="self.endpoints.all(e, e.startsWith('https:') == has(self.tls))",message="the endpoints of join must be https URLs with join.tls, and http URLs without it"
type JoinSpec struct {
	// endpoints are client URLs of the running cluster, such as http://etcd-0.etcd-headless.legacy.svc:2379. The URLs
	// of some members are enough, but druid's members must be able to reach every member at the client URLs that it
	// advertises.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +required
	Endpoints []JoinEndpoint `json:"endpoints"`
	// tls is how druid's members connect to the client port of the running cluster. Set it if that port uses TLS.
	// +optional
	TLS *JoinTLS `json:"tls,omitempty"`
	// removeOthers removes the external members, one at a time, when all members of this EtcdCluster are healthy
	// voters. Set it when no client connects to the external members any more. You cannot undo it. It is the only
	// field of bootstrap that you can change.
	// +optional
	RemoveOthers bool `json:"removeOthers,omitempty"`
}

// JoinTLS configures TLS to a running cluster.
type JoinTLS struct {
	// secretRef names a Secret in the namespace of the cluster. Its key ca.crt has the certificate authorities of the
	// running cluster. The keys tls.crt and tls.key have a client certificate that the running cluster accepts. Leave
	// both out if it accepts clients without one. Keep the Secret until no external member is left. The agents use a
	// changed content without a restart.
	// +required
	SecretRef SecretRef `json:"secretRef"`
}

// JoinEndpoint is a client URL of an etcd member.
//
// +kubebuilder:validation:MaxLength=300
// +kubebuilder:validation:XValidation:rule="self.matches('^https?://([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|[[][0-9a-fA-F:.]+[]]):[0-9]{1,5}$')",message="an endpoint of join must be a client URL with a port and no path, like http://etcd-0.etcd-headless.legacy.svc:2379"
type JoinEndpoint string

// DefragmentationSpec configures when the agents defragment the databases. etcd keeps the space of deleted and
// compacted keys in its file. A defragmentation returns it to the volume. Meanwhile the member serves no reads and
// writes, for seconds per gigabyte. The agents defragment one member at a time, only while all members are healthy,
// and the leader last, after it moved leadership. The only member of a cluster of one is defragmented in a window of
// the schedule, and never without a schedule.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeZone) || has(self.schedule)",message="timeZone needs schedule"
// +kubebuilder:validation:XValidation:rule="!has(self.window) || has(self.schedule)",message="window needs schedule"
type DefragmentationSpec struct {
	// disabled turns automatic defragmentation off.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// schedule opens a window each time it fires. A defragmentation starts only in a window. The fields are minute,
	// hour, day of month, month and day of week, as in a CronJob. If not set, a defragmentation can start at any time.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('(?i)^([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?(,([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?)* ([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?(,([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)* ([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)* ([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?)* ([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?(,([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?)*$')",message="schedule must be five fields of numbers (or names of months and days), like 0 3 * * SUN: minute, hour, day of the month, month, day of the week"
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// timeZone of the schedule, as an IANA name such as Europe/Berlin. If not set, it is UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0 && self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$')",message="timeZone must be an IANA name like Europe/Berlin or UTC"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// window is how long each window stays open. If not set, it is 1h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="window must be a duration from 1m to 24h, like 1h30m"
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`

	// minFreePercent is the share of the database file that must be free before a defragmentation. minFreeBytes
	// applies too. Defaults to 45.
	// +kubebuilder:default=45
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	// +optional
	MinFreePercent *int32 `json:"minFreePercent,omitempty"`

	// minFreeBytes is the size that must be free in the database file before a defragmentation. minFreePercent applies
	// too. Defaults to 100Mi.
	// +kubebuilder:default="100Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="minFreeBytes must not be negative"
	// +optional
	MinFreeBytes *resource.Quantity `json:"minFreeBytes,omitempty"`

	// outOfSpace is what the agents do when a database reaches etcd.quotaBackendBytes and etcd refuses all writes
	// (alarm NOSPACE). Compact: if the keys in use leave no room, the leader's agent compacts revisions that are at
	// least five minutes old and, if the cluster is backed up, saved. A client that reads or watches from these
	// revisions gets the error that they are compacted. Then the agents defragment one member at a time, at any time
	// of the day, including the only member. The alarm is disarmed when every file is below 90 % of the quota.
	// Defragment: the same without a compaction. Nothing, or disabled: you resolve the alarm yourself. Defaults to
	// Compact.
	// +kubebuilder:default=Compact
	// +optional
	OutOfSpace OutOfSpaceAction `json:"outOfSpace,omitempty"`
}

// OutOfSpaceAction is what the agents do when etcd refuses writes because its database is full.
//
// +kubebuilder:validation:Enum=Compact;Defragment;Nothing
type OutOfSpaceAction string

// What is done about the alarm NOSPACE.
const (
	OutOfSpaceCompact    OutOfSpaceAction = "Compact"
	OutOfSpaceDefragment OutOfSpaceAction = "Defragment"
	OutOfSpaceNothing    OutOfSpaceAction = "Nothing"
)
