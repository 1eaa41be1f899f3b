package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdCluster is an etcd cluster that druid runs. druid creates a Lease, a PersistentVolumeClaim and a Pod for each
// member. An agent in each Pod decides how its etcd starts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=etcdc;edc,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.clusterSize,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.readyMembers`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.members[?(@.role=="Leader")].name`
// +kubebuilder:printcolumn:name="Backup",type=string,JSONPath=`.status.conditions[?(@.type=="BackupReady")].reason`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Leaving",type=string,JSONPath=`.status.members[?(@.leaving)].name`,priority=1
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`,priority=1
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.conditions[?(@.type=="BackupVerified")].reason`,priority=1
// +kubebuilder:printcolumn:name="Full backup",type=date,JSONPath=`.status.backup.lastFullTime`,priority=1
// +kubebuilder:printcolumn:name="Restorable",type=date,JSONPath=`.status.backup.restorableFrom`,priority=1
// +kubebuilder:printcolumn:name="Spread",type=string,JSONPath=`.status.conditions[?(@.type=="Spread")].reason`,priority=1
// +kubebuilder:printcolumn:name="Certificates",type=string,JSONPath=`.status.tls.client.notAfter`,priority=1
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.status.clusterID`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50",message="metadata.name must be at most 50 characters, because the names of members and Services contain it"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",message="metadata.name must not contain dots, because it is a label of the members' DNS names"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]')",message="metadata.name must start with a letter, because the names of Services start with it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.version) || !has(oldSelf.spec.version) || self.spec.version.size() < 3 || oldSelf.spec.version.size() < 3 || self.spec.version.substring(0, 3) == oldSelf.spec.version.substring(0, 3) || !has(self.status) || !has(self.status.members) || self.status.members.all(m, !has(m.version) || m.version.startsWith(oldSelf.spec.version.substring(0, 3))) || self.status.members.all(m, !has(m.version) || m.version.startsWith(self.spec.version.substring(0, 3)))",message="version must not change to another minor version until all members run the requested one, as status.members shows: at most two minor versions can run in one cluster"
type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the cluster.
	// +required
	Spec EtcdClusterSpec `json:"spec"`
	// status is the state of the cluster that druid last observed in Leases and Pods. Before druid has observed it,
	// observedGeneration is -1.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status EtcdClusterStatus `json:"status,omitempty"`
}

// EtcdClusterList is a list of EtcdClusters.
//
// +kubebuilder:object:root=true
type EtcdClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EtcdCluster `json:"items"`
}

// EtcdClusterSpec is the desired state of an EtcdCluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.etcd) || !has(self.etcd.quotaBackendBytes) || quantity(string(self.storage.size)).compareTo(quantity(string(self.etcd.quotaBackendBytes))) >= 0",message="etcd.quotaBackendBytes must not exceed storage.size: etcd would fill the volume before its quota stops the writes"
// +kubebuilder:validation:XValidation:rule="has(self.bootstrap) == has(oldSelf.bootstrap) && (!has(self.bootstrap) || (has(self.bootstrap.restore) == has(oldSelf.bootstrap.restore) && (!has(self.bootstrap.restore) || self.bootstrap.restore == oldSelf.bootstrap.restore) && has(self.bootstrap.join) == has(oldSelf.bootstrap.join) && (!has(self.bootstrap.join) || (self.bootstrap.join.endpoints == oldSelf.bootstrap.join.endpoints && has(self.bootstrap.join.tls) == has(oldSelf.bootstrap.join.tls) && (!has(self.bootstrap.join.tls) || self.bootstrap.join.tls == oldSelf.bootstrap.join.tls)))))",message="bootstrap must not change, except for join.removeExternalMembers; create another EtcdCluster to restore or to join again"
// +kubebuilder:validation:XValidation:rule="!has(self.recovery) || !has(self.recovery.restore) || has(self.backup)",message="recovery.restore needs backup: a restore in place reads from spec.backup.store"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.bootstrap) || !has(self.bootstrap.restore) || has(self.backup) || (has(self.bootstrap.restore.from) && (has(self.bootstrap.restore.from.store) || has(self.bootstrap.restore.from.snapshotRef)))",optionalOldSelf=true,message="bootstrap.restore needs the location of the backups: set bootstrap.restore.from.store, from.snapshotRef or backup.store"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.medium) || self.replicas > 0",message="replicas must not be 0 with storage.medium: a paused cluster has no Pods, so all data would be lost"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.medium) || !has(self.backup) || !has(self.backup.whenFailing) || self.backup.whenFailing != 'Continue'",message="backup.whenFailing must not be Continue with storage.medium: a Pod that is replaced or evicted loses its copy of the data, and the backups would not have it"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.medium) || !has(self.disruption) || !has(self.disruption.singleMember) || self.disruption.singleMember != 'Allow'",message="disruption.singleMember must not be Allow with storage.medium: the only member loses all data with its Pod"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.medium) || self.storage.medium != 'Memory' || (has(self.resources) && has(self.resources.limits) && 'memory' in self.resources.limits && quantity(string(self.resources.limits['memory'])).compareTo(quantity(string(self.storage.size))) > 0)",message="resources.limits.memory must be greater than storage.size with storage.medium Memory: the stored data counts as memory of the etcd container"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.medium) || self.storage.medium != 'Disk' || !has(self.resources) || !has(self.resources.limits) || !('ephemeral-storage' in self.resources.limits)",message="resources.limits must not have ephemeral-storage with storage.medium Disk: Kubernetes deletes a Pod above this limit with its data, and all members store the same amount"
// +kubebuilder:validation:XValidation:rule="!has(self.bootstrap) || !has(self.bootstrap.join) || (has(self.bootstrap.join.removeExternalMembers) && self.bootstrap.join.removeExternalMembers) || (has(self.tls) && has(self.tls.peer)) == (has(oldSelf.tls) && has(oldSelf.tls.peer))",message="tls.peer must not be added or removed while external members are in the cluster: set bootstrap.join.removeExternalMembers to true first, and wait until they are removed"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !self.auth.enabled || !has(self.bootstrap) || !has(self.bootstrap.join) || (has(self.bootstrap.join.removeExternalMembers) && self.bootstrap.join.removeExternalMembers)",message="auth.enabled must not be true while external members are in the cluster: set bootstrap.join.removeExternalMembers to true first, and wait until they are removed"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !self.auth.enabled || (has(self.tls) && has(self.tls.client) && (!has(self.tls.client.mode) || self.tls.client.mode == 'Mutual') && has(self.tls.peer))",message="auth.enabled needs tls.client with mode Mutual, and tls.peer: the agents authenticate with a certificate, and the peer port has no authentication"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.auth) || !oldSelf.auth.enabled || (has(self.tls) && has(self.tls.client) && (!has(self.tls.client.mode) || self.tls.client.mode == 'Mutual') && has(self.tls.peer))",message="tls.client with mode Mutual and tls.peer must stay while auth.enabled is true: set it to false first, and wait until status.auth.enabled is false"
type EtcdClusterSpec struct {
	// replicas is the number of members: 0, or an odd number up to 9. An even number needs a larger quorum than the
	// odd number below it and survives no more failures. The value 0 pauses the cluster: druid removes members until
	// one is left, and deletes its Pod. The PersistentVolumeClaim stays. When you set a number greater than 0 again,
	// that member returns with its data. Defaults to 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:validation:XValidation:rule="self == 0 || self % 2 == 1",message="replicas must be 0 or odd: an even number of members needs a larger quorum than the odd number below it and survives no more failures"
	// +optional
	Replicas int32 `json:"replicas"`

	// version is the etcd release, as major.minor.patch. The API refuses releases with known bugs that lose or corrupt
	// data, and refuses to skip a minor version. You can request the next or the previous minor version when all
	// members run the current one. If spec.backup is set, the leader's agent takes and verifies a full backup before
	// the first member changes its version. After each member, druid continues only when all members hold the same
	// data. Defaults to 3.6.16.
	// +kubebuilder:default="3.6.16"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^3[.][567][.](0|[1-9][0-9]?)$')",message="version must be a release of etcd 3.5, 3.6 or 3.7, as major.minor.patch without a leading v"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.]5[.]([0-9]|[12][0-9]|30)$')",message="version must be at least 3.5.31: older 3.5 releases have bugs that corrupt data, return stale reads or promote learners by mistake"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.]6[.]([0-9]|1[01])$')",message="version must be at least 3.6.12: older 3.6 releases have bugs that corrupt data, return stale reads or promote learners by mistake"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.][567][.]') || !oldSelf.matches('^3[.][567][.]') || int(self.substring(2, 3)) >= int(oldSelf.substring(2, 3)) - 1",message="version must not decrease by more than one minor version: downgrade one minor version at a time"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.][567][.]') || !oldSelf.matches('^3[.][567][.]') || int(self.substring(2, 3)) <= int(oldSelf.substring(2, 3)) + 1",message="version must not skip a minor version: upgrade one minor version at a time"
	// +optional
	Version string `json:"version,omitempty"`

	// image is the etcd image without a tag. druid adds the tag v<version>. Defaults to gcr.io/etcd-development/etcd.
	// +kubebuilder:default="gcr.io/etcd-development/etcd"
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-zA-Z0-9._/:@-]*[a-zA-Z0-9])?$')",message="image must name a repository, like registry.example.com/etcd"
	// +kubebuilder:validation:XValidation:rule="!self.matches('@|:[^/]*$')",message="image must have no tag and no digest: druid adds the tag v<version>"
	// +optional
	Image string `json:"image,omitempty"`

	// imagePullSecrets lists Secrets in the namespace of the cluster that the kubelet uses to pull the images.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// storage configures where each member stores its data.
	// +required
	Storage StorageSpec `json:"storage"`

	// etcd sets options of etcd itself.
	// +optional
	Etcd EtcdOptions `json:"etcd,omitempty"`

	// backup configures continuous and scheduled backups. If not set, the cluster is not backed up.
	// +optional
	Backup *BackupSpec `json:"backup,omitempty"`

	// recovery configures what druid does when the cluster lost its quorum for good. If not set, druid shows a plan after
	// five minutes, and recovers only with your approval.
	// +optional
	Recovery *RecoverySpec `json:"recovery,omitempty"`

	// bootstrap configures how a new cluster starts. If not set, the cluster starts empty. You cannot change it,
	// except for join.removeExternalMembers.
	// +optional
	Bootstrap *BootstrapSpec `json:"bootstrap,omitempty"`

	// defragmentation configures when the agents defragment the databases. If not set, an agent defragments a database
	// when at least 45 % and 100Mi of its file are free.
	// +optional
	Defragmentation *DefragmentationSpec `json:"defragmentation,omitempty"`

	// resources of the etcd container. For a resource that you do not set, the container requests 100m of CPU and
	// 100Mi of memory. Defaults of a LimitRange of the namespace have no effect on this.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// affinity of the members' Pods. If not set, druid asks the scheduler to prefer one member per node and per zone.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// topologySpreadConstraints of the members' Pods.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// tolerations of the members' Pods.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// priorityClassName of the members' Pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	PodOptions `json:",inline"`

	// additionalMetadata is added to every object that druid creates for the cluster. druid's own labels and
	// annotations take precedence. Services and RBAC objects follow a change at once. Pods follow when they are
	// recreated. Existing Leases and PersistentVolumeClaims are not updated.
	// +optional
	AdditionalMetadata *AdditionalMetadata `json:"additionalMetadata,omitempty"`

	// tls secures the connections of clients and of peers. If not set, all connections are in plain text. You can
	// add and remove it while the cluster runs.
	// +optional
	TLS *TLSSpec `json:"tls,omitempty"`

	// auth configures authentication in etcd. If not set, the agents leave users and roles alone, and authentication
	// stays as it is.
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`

	// clientService configures the Service that clients connect to.
	// +optional
	ClientService *ClientServiceSpec `json:"clientService,omitempty"`

	// leaderService configures a further Service for clients that connect to the leader. If not set, there is none.
	// +optional
	LeaderService *LeaderServiceSpec `json:"leaderService,omitempty"`

	// disruption configures which Pods can be evicted. If not set, the only voting member of a cluster cannot.
	// +optional
	Disruption *DisruptionSpec `json:"disruption,omitempty"`

	// networkPolicy limits who can connect to the members. If not set, druid creates no NetworkPolicy.
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`

	// logLevel is what the agents of the cluster log. The agents reload it, so no Pod is replaced. It does not change what etcd logs.
	// Defaults to Info.
	// +kubebuilder:default=Info
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// progressDeadlineSeconds is the time in seconds that druid has to reach the state that a spec change requests.
	// Until then, changes that cannot be combined with it wait. After the deadline druid stops the change and
	// continues with the next one. status.progressDeadline shows the deadline. Defaults to 600.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=86400
	// +optional
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`
}

// StorageSpec configures where each member stores its data.
//
// +kubebuilder:validation:XValidation:rule="has(self.medium) == has(oldSelf.medium) && (!has(self.medium) || self.medium == oldSelf.medium)",message="storage.medium must not change, because the data would not move; create another EtcdCluster and restore a backup into it"
// +kubebuilder:validation:XValidation:rule="!has(self.medium) || !has(self.storageClassName)",message="storage.storageClassName must not be set with storage.medium: there are no PersistentVolumeClaims"
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storage.storageClassName must not change, because a volume cannot move to another class"
type StorageSpec struct {
	// size of each member's volume. A good size is 1Gi plus twice etcd.quotaBackendBytes. This leaves room for the
	// database, the copy that a defragmentation makes, and the write-ahead log. You can increase it, but not decrease
	// it.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="storage.size must be greater than zero"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="storage.size must not decrease, because Kubernetes cannot shrink a volume"
	// +required
	Size resource.Quantity `json:"size"`

	// medium stores the data in the Pods instead of on PersistentVolumeClaims. Memory: in the memory of the nodes
	// (tmpfs), up to size. Disk: in a directory on the disk of the nodes, of which each Pod requests size. A member that
	// loses its Pod loses its data and copies it from the other members. If more than half of the members are lost at
	// once, or the only member, all data is lost. Only a backup brings it back. You cannot change it.
	// +optional
	Medium StorageMedium `json:"medium,omitempty"`

	// storageClassName of the members' PersistentVolumeClaims. If not set, the default StorageClass is used. If set to
	// "", no volume is provisioned, and the claims bind only to PersistentVolumes without a class. You cannot change
	// it.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// persistentVolumeClaimRetentionPolicy configures what happens to the PersistentVolumeClaim of a member that is no
	// longer desired. Another member or cluster never reuses a retained claim. You are responsible for deleting it.
	// With medium there are no claims, and this field has no effect.
	// +kubebuilder:default={whenDeleted: Retain, whenScaled: Delete}
	// +optional
	PersistentVolumeClaimRetentionPolicy PersistentVolumeClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty,omitzero"`
}

// LogLevel is the least severe level that is logged.
//
// +kubebuilder:validation:Enum=Debug;Info;Warn;Error
type LogLevel string

// The levels of the agents' logs.
const (
	LogDebug LogLevel = "Debug"
	LogInfo  LogLevel = "Info"
	LogWarn  LogLevel = "Warn"
	LogError LogLevel = "Error"
)

// DefaultImage is the default of spec.image.
const DefaultImage = "gcr.io/etcd-development/etcd"

// StorageMedium is what members store their data on instead of a PersistentVolumeClaim.
//
// +kubebuilder:validation:Enum=Memory;Disk
type StorageMedium string

// The storage that lives as long as a Pod: an emptyDir in memory (tmpfs), or on the disk of the node.
const (
	StorageMemory StorageMedium = "Memory"
	StorageDisk   StorageMedium = "Disk"
)

// PersistentVolumeClaimRetention is what happens to a PersistentVolumeClaim.
//
// +kubebuilder:validation:Enum=Retain;Delete
type PersistentVolumeClaimRetention string

// What becomes of a claim.
const (
	RetainPersistentVolumeClaim PersistentVolumeClaimRetention = "Retain"
	DeletePersistentVolumeClaim PersistentVolumeClaimRetention = "Delete"
)

// PersistentVolumeClaimRetentionPolicy has the field names of a StatefulSet's policy. The default of whenScaled
// differs from a StatefulSet's: the remaining members hold all data of a removed member, and no member can join from
// its volume.
type PersistentVolumeClaimRetentionPolicy struct {
	// whenDeleted is what happens to the claims when the EtcdCluster is deleted. Defaults to Retain.
	// +kubebuilder:default=Retain
	// +optional
	WhenDeleted PersistentVolumeClaimRetention `json:"whenDeleted,omitempty"`
	// whenScaled is what happens to the claim of a member that is removed because replicas was decreased. Defaults to
	// Delete.
	// +kubebuilder:default=Delete
	// +optional
	WhenScaled PersistentVolumeClaimRetention `json:"whenScaled,omitempty"`
}

// LeaveFirstAnnotation on an EtcdCluster has names of members, separated by commas. They leave before all others, in this order,
// when druid removes members. Names of other members have no effect.
const LeaveFirstAnnotation = "etcd.druid.dev/leave-first"

// ReplaceAnnotation on an EtcdCluster has the name of one member. A new member joins, and when it votes, druid removes the named one.
// The name of anything else has no effect. No name is used twice, so the annotation can stay.
const ReplaceAnnotation = "etcd.druid.dev/replace"

// KeepVolumeAnnotation on an EtcdCluster has names of members, separated by commas. When one of them is removed, druid keeps its
// PersistentVolumeClaim without an owner, whatever spec.storage.persistentVolumeClaimRetentionPolicy.whenScaled says. Names of other
// members have no effect. No name is used twice, so the annotation can stay.
const KeepVolumeAnnotation = "etcd.druid.dev/keep-volume"

// ApplyNowAnnotation on an EtcdCluster has the metadata.generation of a spec change. druid accepts that change at once, also while
// another one is in progress. The generation of any other change has no effect.
const ApplyNowAnnotation = "etcd.druid.dev/apply-now"

// HandsOffAnnotation on an EtcdCluster has the reason, in your words, why druid must not act for this cluster. While it is there and
// not empty, druid observes the cluster, and creates, changes and deletes nothing of it. The agents continue.
const HandsOffAnnotation = "etcd.druid.dev/hands-off"

// MemberNames are the names in an annotation that has names of members, separated by commas.
func MemberNames(value string) (names []string) {
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
