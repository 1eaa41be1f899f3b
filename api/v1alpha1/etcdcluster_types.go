package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EtcdCluster is an etcd cluster that runs itself: druid makes its Leases, PersistentVolumeClaims and Pods, and an agent
// beside each etcd decides how it starts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=etcd,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.clusterSize,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.members[?(@.role=="Leader")].name`
// +kubebuilder:printcolumn:name="Leaving",type=string,JSONPath=`.status.members[?(@.leaving)].name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50",message="metadata.name must be at most 50 characters: the names of the members and of their Services are made from it"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",message="metadata.name must not contain dots: it is a label of the members' DNS names"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]')",message="metadata.name must start with a letter: the names of its Services are made from it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.version) || !has(oldSelf.spec.version) || self.spec.version.size() < 3 || oldSelf.spec.version.size() < 3 || self.spec.version.substring(0, 3) == oldSelf.spec.version.substring(0, 3) || !has(self.status) || !has(self.status.members) || self.status.members.all(m, !has(m.version) || m.version.startsWith(oldSelf.spec.version.substring(0, 3))) || self.status.members.all(m, !has(m.version) || m.version.startsWith(self.spec.version.substring(0, 3)))",message="version must not go on to another minor before all members run etcd of the minor that was asked for, as status.members tells: etcd skips no minor, and no more than two of them run beside each other"
type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the cluster as the user wants it.
	// +required
	Spec EtcdClusterSpec `json:"spec"`
	// status is the cluster as druid last saw it in Leases and Pods.
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

// EtcdClusterSpec is the cluster as the user wants it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.etcd) || !has(self.etcd.quotaBackendBytes) || quantity(string(self.storage.size)).compareTo(quantity(string(self.etcd.quotaBackendBytes))) >= 0",message="etcd.quotaBackendBytes must not exceed storage.size: the volume would be full before etcd's quota stops the writes, and etcd cannot run on a full volume"
// +kubebuilder:validation:XValidation:rule="has(self.bootstrap) == has(oldSelf.bootstrap) && (!has(self.bootstrap) || (has(self.bootstrap.restore) == has(oldSelf.bootstrap.restore) && (!has(self.bootstrap.restore) || self.bootstrap.restore == oldSelf.bootstrap.restore) && has(self.bootstrap.join) == has(oldSelf.bootstrap.join) && (!has(self.bootstrap.join) || self.bootstrap.join.endpoints == oldSelf.bootstrap.join.endpoints)))",message="bootstrap must not change, but for join.removeOthers: it says how the cluster began; create another EtcdCluster to restore or to join anew"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.bootstrap) || !has(self.bootstrap.restore) || has(self.backup) || (has(self.bootstrap.restore.from) && (has(self.bootstrap.restore.from.store) || has(self.bootstrap.restore.from.snapshotRef)))",optionalOldSelf=true,message="bootstrap.restore needs bootstrap.restore.from.store or from.snapshotRef, or backup.store: it is not said where the backups are"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.medium) || self.replicas > 0",message="replicas must not be 0 with storage.medium Memory: the data would be gone with the last Pod, for a paused cluster has none"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.medium) || (has(self.resources) && has(self.resources.limits) && 'memory' in self.resources.limits && quantity(string(self.resources.limits['memory'])).compareTo(quantity(string(self.storage.size))) > 0)",message="resources.limits.memory must be set with storage.medium Memory, and be greater than storage.size: what is stored counts as memory that etcd uses, and etcd needs some beside it"
type EtcdClusterSpec struct {
	// replicas is the number of members: 0, or an odd number up to 9. An even number is refused: it needs a larger quorum
	// than the odd number below it, and survives no more failures. With 0 the cluster is paused: members are removed until one
	// is left, whose Pod goes and whose PersistentVolumeClaim stays; with 1 or more that member comes back with its data.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:validation:XValidation:rule="self == 0 || self % 2 == 1",message="replicas must be 0 or odd: an even number of members needs a larger quorum than the odd number below it and survives no more failures"
	// +optional
	Replicas int32 `json:"replicas"`

	// version of etcd, as major.minor.patch. Releases with known bugs that lose or corrupt data or members are refused, and
	// so is a step over a minor version. The next minor, and the one before, can be asked for when all members run the
	// present one. Before the first member goes to another version a full backup is made and verified, where spec.backup is
	// set; and after each of them the data of all members must be equal, or it stops.
	// +kubebuilder:default="3.6.16"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^3[.][567][.](0|[1-9][0-9]?)$')",message="version must be a release of etcd 3.5, 3.6 or 3.7, as major.minor.patch without a leading v"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.]5[.]([0-9]|[12][0-9]|30)$')",message="version must be at least 3.5.31 in 3.5: older releases have bugs that corrupt data, read stale data or promote learners by mistake"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.]6[.]([0-9]|1[01])$')",message="version must be at least 3.6.12 in 3.6: older releases have bugs that corrupt data, read stale data or promote learners by mistake"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.][567][.]') || !oldSelf.matches('^3[.][567][.]') || int(self.substring(2, 3)) >= int(oldSelf.substring(2, 3)) - 1",message="version must not go back by more than one minor: etcd is downgraded one minor at a time"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.][567][.]') || !oldSelf.matches('^3[.][567][.]') || int(self.substring(2, 3)) <= int(oldSelf.substring(2, 3)) + 1",message="version must not skip a minor: etcd is upgraded one minor at a time"
	// +optional
	Version string `json:"version,omitempty"`

	// image of etcd without its tag; the tag is v<version>.
	// +kubebuilder:default="gcr.io/etcd-development/etcd"
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-zA-Z0-9._/:@-]*[a-zA-Z0-9])?$')",message="image must name a repository, like registry.example.com/etcd"
	// +kubebuilder:validation:XValidation:rule="!self.matches('@|:[^/]*$')",message="image must have no tag and no digest: the tag is v<version>"
	// +optional
	Image string `json:"image,omitempty"`

	// imagePullSecrets name Secrets in the cluster's namespace that can pull the image.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// storage of each member.
	// +required
	Storage StorageSpec `json:"storage"`

	// etcd holds etcd's own options.
	// +optional
	Etcd EtcdOptions `json:"etcd,omitempty"`

	// backup of the cluster, continuously and by schedule. Without it the cluster is not backed up.
	// +optional
	Backup *BackupSpec `json:"backup,omitempty"`

	// bootstrap says how a new cluster begins: empty unless set. It cannot be changed, but for join.removeOthers.
	// +optional
	Bootstrap *BootstrapSpec `json:"bootstrap,omitempty"`

	// defragmentation of the members' databases. Without it, it is done whenever 45 % and 100Mi of a file are free.
	// +optional
	Defragmentation *DefragmentationSpec `json:"defragmentation,omitempty"`

	// resources of the etcd container. It requests 100m of CPU and 100Mi of memory of what is not spoken of here, whatever defaults a
	// LimitRange of the namespace has.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// affinity of the members' Pods. Without it druid asks the scheduler to prefer one member per node and per zone.
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

	// additionalMetadata is put on every object that druid makes for the cluster, beside druid's own, which win. Services,
	// RBAC and the like follow a change at once, Pods when they are made anew; Leases and PersistentVolumeClaims have what was
	// asked for when they were made.
	// +optional
	AdditionalMetadata *AdditionalMetadata `json:"additionalMetadata,omitempty"`

	// clientService is the Service that clients dial.
	// +optional
	ClientService *ClientServiceSpec `json:"clientService,omitempty"`

	// progressDeadlineSeconds is how long druid may take for what an edit asks for, in seconds. Until then edits that cannot be
	// combined with it wait; afterwards druid stops it, and goes on with the next edit. status.progressDeadline is when that is.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=86400
	// +optional
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`
}

// StorageSpec says what each member stores its data on.
//
// +kubebuilder:validation:XValidation:rule="has(self.medium) == has(oldSelf.medium) && (!has(self.medium) || self.medium == oldSelf.medium)",message="storage.medium must not change: the members' data would stay behind; create another EtcdCluster and restore a backup into it"
// +kubebuilder:validation:XValidation:rule="!has(self.medium) || !has(self.storageClassName)",message="storage.storageClassName must not be set with storage.medium Memory: there are no PersistentVolumeClaims"
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storage.storageClassName must not change: a volume cannot move to another class, so the members would differ in what they store on"
type StorageSpec struct {
	// size of each member's volume. Twice etcd.quotaBackendBytes and 1Gi is a good size: the database, the copy that a
	// defragmentation makes, the write-ahead log.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="storage.size must be greater than zero"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="storage.size must not shrink: Kubernetes cannot shrink a volume"
	// +required
	Size resource.Quantity `json:"size"`

	// medium Memory stores the data in the memory of the nodes (tmpfs), size at most, instead of on PersistentVolumeClaims.
	// A member whose Pod is lost has lost its data, and gets it from the others; when more than half of the members are lost at
	// once, or the only one, all data is lost, and only a backup brings it back. It cannot be changed.
	// +optional
	Medium StorageMedium `json:"medium,omitempty"`

	// storageClassName of the members' PersistentVolumeClaims. Without it the Kubernetes cluster's default is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// persistentVolumeClaimRetentionPolicy says what becomes of a PersistentVolumeClaim whose member is not wanted any more.
	// A claim that stays is nobody's: no member and no cluster ever adopts it, and to delete it is up to you. With medium Memory
	// there are no claims, and it means nothing.
	// +kubebuilder:default={whenDeleted: Retain, whenScaled: Delete}
	// +optional
	PersistentVolumeClaimRetentionPolicy PersistentVolumeClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty,omitzero"`
}

// StorageMedium is what members store their data on instead of a PersistentVolumeClaim.
//
// +kubebuilder:validation:Enum=Memory
type StorageMedium string

// StorageMemory is tmpfs.
const StorageMemory StorageMedium = "Memory"

// PersistentVolumeClaimRetention says whether a claim stays.
//
// +kubebuilder:validation:Enum=Retain;Delete
type PersistentVolumeClaimRetention string

// What becomes of a claim.
const (
	RetainPersistentVolumeClaim PersistentVolumeClaimRetention = "Retain"
	DeletePersistentVolumeClaim PersistentVolumeClaimRetention = "Delete"
)

// PersistentVolumeClaimRetentionPolicy has the names of a StatefulSet's. The defaults differ from a StatefulSet's in
// whenScaled: the others hold all that a removed member held, and nothing can join from its volume.
type PersistentVolumeClaimRetentionPolicy struct {
	// whenDeleted: what becomes of the claims when the EtcdCluster is deleted.
	// +kubebuilder:default=Retain
	// +optional
	WhenDeleted PersistentVolumeClaimRetention `json:"whenDeleted,omitempty"`
	// whenScaled: what becomes of a member's claim when the member is removed because replicas went down.
	// +kubebuilder:default=Delete
	// +optional
	WhenScaled PersistentVolumeClaimRetention `json:"whenScaled,omitempty"`
}

// AutoCompactionMode is etcd's --auto-compaction-mode.
//
// +kubebuilder:validation:Enum=Periodic;Revision
type AutoCompactionMode string

// The modes of etcd's automatic compaction.
const (
	AutoCompactionPeriodic AutoCompactionMode = "Periodic"
	AutoCompactionRevision AutoCompactionMode = "Revision"
)

// EtcdOptions are the options of etcd that a user may set. The list is closed: every other flag is druid's own.
//
// +kubebuilder:validation:XValidation:rule="duration(has(self.electionTimeout) ? self.electionTimeout : '1s').getMilliseconds() >= 5 * duration(has(self.heartbeatInterval) ? self.heartbeatInterval : '100ms').getMilliseconds()",message="electionTimeout (1s unless set) must be at least 5 times heartbeatInterval (100ms unless set): etcd refuses to start otherwise"
// +kubebuilder:validation:XValidation:rule="!has(self.autoCompactionMode) || has(self.autoCompactionRetention)",message="autoCompactionMode needs autoCompactionRetention: without it etcd compacts nothing"
// +kubebuilder:validation:XValidation:rule="!has(self.autoCompactionRetention) || (has(self.autoCompactionMode) && self.autoCompactionMode == 'Revision') || self.autoCompactionRetention.matches('^([0-9]+(h|m|s))+$')",message="autoCompactionRetention must be a duration like 1h30m in mode Periodic (the mode unless set)"
// +kubebuilder:validation:XValidation:rule="!has(self.autoCompactionRetention) || !has(self.autoCompactionMode) || self.autoCompactionMode != 'Revision' || self.autoCompactionRetention.matches('^[1-9][0-9]{0,17}$')",message="autoCompactionRetention must be a number of revisions like 10000 in mode Revision"
type EtcdOptions struct {
	// quotaBackendBytes is the size of the database at which etcd refuses writes. Unless set it is half of
	// storage.size, but not more than 2Gi, etcd's own default.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="quotaBackendBytes must be greater than zero"
	// +optional
	QuotaBackendBytes *resource.Quantity `json:"quotaBackendBytes,omitempty"`

	// autoCompactionMode says what autoCompactionRetention counts: time (Periodic, the mode unless set) or revisions.
	// +optional
	AutoCompactionMode AutoCompactionMode `json:"autoCompactionMode,omitempty"`

	// autoCompactionRetention is a duration like 1h for mode Periodic, or a number of revisions for mode Revision.
	// +kubebuilder:validation:MaxLength=20
	// +optional
	AutoCompactionRetention string `json:"autoCompactionRetention,omitempty"`

	// snapshotCount is the number of raft entries after which etcd writes a raft snapshot.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	SnapshotCount *int64 `json:"snapshotCount,omitempty"`

	// heartbeatInterval of raft, in whole milliseconds; etcd's own default is 100ms.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]{1,3})?s|[0-9]+ms)$') && duration(self) >= duration('1ms')",message="heartbeatInterval must be whole milliseconds greater than zero, like 100ms or 1.5s"
	// +optional
	HeartbeatInterval *metav1.Duration `json:"heartbeatInterval,omitempty"`

	// electionTimeout of raft, in whole milliseconds, at least 5 heartbeatIntervals and at most 50s; etcd's own default is
	// 1s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]{1,3})?s|[0-9]+ms)$') && duration(self) >= duration('1ms')",message="electionTimeout must be whole milliseconds greater than zero, like 1s or 1500ms"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]+([.][0-9]{1,3})?s|[0-9]+ms)$') || duration(self) <= duration('50s')",message="electionTimeout must be at most 50s: etcd refuses to start with more"
	// +optional
	ElectionTimeout *metav1.Duration `json:"electionTimeout,omitempty"`
}

// EtcdClusterStatus is the cluster as druid last saw it. Nothing in it changes while the cluster is steady: what changes
// by itself (revision, sizes, raft index) stands in the Leases.
type EtcdClusterStatus struct {
	// observedGeneration is the generation of the spec that druid adopted, and that the status answers. While it is not
	// metadata.generation, an edit waits.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// observed is the spec that druid works towards: the one of observedGeneration. An edit of spec is adopted as a whole, at once
	// where nothing is under way that it could be mixed with, else when that is done or its deadline has passed. Without it druid
	// adopts spec as it is.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Observed *runtime.RawExtension `json:"observed,omitempty"`

	// restore is what spec.bootstrap.restore.from.snapshotRef was found to name when the spec was first adopted: store, cluster, lineage
	// and state. The EtcdSnapshot, and the EtcdCluster that it is of, are not asked again.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Restore *runtime.RawExtension `json:"restore,omitempty"`

	// progressDeadline is until when druid has time for what is under way, by druid's own clock; absent while nothing is. A time in
	// the past, also one that you write here, ends it: a waiting edit is adopted, and without one druid stops
	// until the next edit. A later time, or none, lets druid go on.
	// +optional
	ProgressDeadline *metav1.Time `json:"progressDeadline,omitempty"`

	// clusterID is etcd's cluster ID, set once, when the cluster has formed.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// clusterSize is the number of members that the cluster record lists.
	// +optional
	ClusterSize int32 `json:"clusterSize"`

	// readyReplicas is the number of ready members.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// selector selects the cluster's Pods; the scale subresource shows it.
	// +optional
	Selector string `json:"selector,omitempty"`

	// conditions: Ready, AllMembersReady, Progressing, Degraded, Spread, and BackupReady and BackupVerified where spec.backup is
	// set.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// members in the order of their names.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Members []MemberStatus `json:"members,omitempty"`
}

// MemberStatus is one member as druid last saw it.
type MemberStatus struct {
	// name of the member's Lease, PersistentVolumeClaim and Pod.
	// +required
	Name string `json:"name"`
	// id is etcd's member ID; empty while the member never was in the cluster.
	// +optional
	ID string `json:"id,omitempty"`
	// role in the raft group: Leader, Member or Learner.
	// +optional
	Role string `json:"role,omitempty"`
	// status is Ready, NotReady, Unknown, or Paused: no Pod is asked for, and the PersistentVolumeClaim of this name holds the data.
	// +required
	Status MemberState `json:"status"`
	// reason of the status.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message tells a person what the member waits for, if it waits.
	// +optional
	Message string `json:"message,omitempty"`
	// leaving says how far the member's way out of the cluster has come; empty for a member that is to stay.
	// +optional
	Leaving MemberLeaving `json:"leaving,omitempty"`
	// version of etcd that the member runs.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Version string `json:"version,omitempty"`
	// lastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
}
