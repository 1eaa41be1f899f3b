package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdSnapshot requests one backup of an EtcdCluster, to the store of the cluster or to another bucket. Its result
// never changes: create another EtcdSnapshot for another backup. Deleting it keeps the backup, unless
// spec.deletionPolicy is Delete.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=etcdsnap
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Final",type=boolean,JSONPath=`.spec.final`,priority=1
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.artifact.revision`
// +kubebuilder:printcolumn:name="Bytes",type=integer,JSONPath=`.status.artifact.size`,priority=1
// +kubebuilder:printcolumn:name="Storage version",type=string,JSONPath=`.status.artifact.storageVersion`,priority=1
// +kubebuilder:printcolumn:name="URI",type=string,JSONPath=`.status.artifact.uri`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EtcdSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the request. You can change only deletionPolicy.
	// +required
	Spec EtcdSnapshotSpec `json:"spec"`
	// status is the result.
	// +optional
	Status EtcdSnapshotStatus `json:"status,omitempty"`
}

// EtcdSnapshotList is a list of EtcdSnapshots.
//
// +kubebuilder:object:root=true
type EtcdSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EtcdSnapshot `json:"items"`
}

// EtcdSnapshotSpec is the request for a backup.
//
// +kubebuilder:validation:XValidation:rule="self.clusterRef == oldSelf.clusterRef && has(self.type) == has(oldSelf.type) && (!has(self.type) || self.type == oldSelf.type) && has(self.final) == has(oldSelf.final) && (!has(self.final) || self.final == oldSelf.final) && has(self.verify) == has(oldSelf.verify) && (!has(self.verify) || self.verify == oldSelf.verify) && has(self.store) == has(oldSelf.store) && (!has(self.store) || self.store == oldSelf.store) && has(self.ttlSecondsAfterFinished) == has(oldSelf.ttlSecondsAfterFinished) && (!has(self.ttlSecondsAfterFinished) || self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished)",message="spec must not change, except for deletionPolicy; create another EtcdSnapshot for another backup"
// +kubebuilder:validation:XValidation:rule="!has(self.final) || !self.final || self.type == 'Full'",message="final needs type Full: a Delta is useless without the backups before it"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !self.verify || self.type == 'Full'",message="verify needs type Full: a Delta cannot be restored by itself"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !self.verify || !has(self.store)",message="verify must not be combined with store: the agents verify only backups in the store of the cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Delete' || self.type == 'Full'",message="deletionPolicy Delete needs type Full: later backups need the Delta"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Delete' || !has(self.final) || !self.final",message="deletionPolicy Delete must not be combined with final: a final backup stays until you delete it in the store"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || self.type == 'Full'",message="store needs type Full: a Delta is useless without the backups before it"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.final) || !self.final",message="final must not be combined with store: retention does not delete backups in another store"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.deletionPolicy) || self.deletionPolicy != 'Delete'",message="deletionPolicy Delete must not be combined with store: delete a backup in another store yourself"
type EtcdSnapshotSpec struct {
	// clusterRef names the EtcdCluster, in the namespace of the EtcdSnapshot. The cluster must have spec.backup.
	// +required
	ClusterRef ClusterReference `json:"clusterRef"`

	// type is Full for the complete database, or Delta for the changes since the last backup. Defaults to Full.
	// +kubebuilder:default=Full
	// +optional
	Type SnapshotType `json:"type,omitempty"`

	// final requests the last backup of a cluster before you delete, pause or migrate it. The agent saves what is not
	// saved yet, and then takes a full backup that is marked as final (<revision>-<time>.final.zst). Retention and
	// `agent backup gc` never delete it. The cluster continues to run.
	// +optional
	Final bool `json:"final,omitempty"`

	// verify makes the agent restore the backup into a scratch directory and compare it with what etcd reports, before
	// the EtcdSnapshot succeeds. If the backup is broken, or cannot be compared, the EtcdSnapshot fails.
	// +optional
	Verify bool `json:"verify,omitempty"`

	// store is another bucket for this one backup, for example before the cluster migrates. You can list and restore
	// this backup like the cluster's own backups. No delta backups, retention or verification follow it. The agents
	// use the credentials of spec.backup of the EtcdCluster, because a Secret of its own would need new Pods. A user
	// who can create an EtcdSnapshot with a store can send all data of the cluster there.
	// +optional
	Store *SnapshotStore `json:"store,omitempty"`

	// deletionPolicy is what happens to the backup when the EtcdSnapshot is deleted, by a user or by
	// ttlSecondsAfterFinished. Retain leaves it to the retention of spec.backup. Delete makes the leader's agent
	// delete it. The agent keeps a backup that other backups need, that is locked, that is one of the two newest full
	// backups, or that is the newest verified one. An Event then gives the reason, and the EtcdSnapshot is still
	// deleted within ten minutes. You can change it at any time. Defaults to Retain.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy SnapshotDeletionPolicy `json:"deletionPolicy,omitempty"`

	// ttlSecondsAfterFinished is the time in seconds after which a finished EtcdSnapshot is deleted. If not set, it
	// stays until you delete it. The backup is deleted with it only if deletionPolicy is Delete.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// SnapshotStore is a bucket other than spec.backup.store of the EtcdCluster. Credentials, trusted certificates,
// checksums, and encryption by the store and by the agents are those of spec.backup. Object lock is not, because it
// belongs to the bucket.
type SnapshotStore struct {
	// bucket is the name of an existing bucket.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9][a-zA-Z0-9._-]*$')",message="bucket must be the name of a bucket: put a path into prefix, a host into endpoint"
	// +required
	Bucket string `json:"bucket"`

	// prefix of all keys, without slashes at its ends. If not set, there is no prefix. The key of the backup starts
	// with <prefix>/<namespace>/<name> of the EtcdCluster.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_-][a-zA-Z0-9._-]*(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*)*$')",message="prefix must be words of letters, digits, dots, dashes and underscores between slashes, like backups/etcd"
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// region of the bucket. If not set, it is the region of spec.backup.store, or us-east-1 if that is a directory.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Region string `json:"region,omitempty"`

	// endpoint is the URL of a store other than AWS, or of a private endpoint of AWS. If not set, it is the endpoint
	// of spec.backup.store.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",message="endpoint must be a URL like https://s3.example.com:9000"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// forcePathStyle puts the bucket into the path of the URL instead of the host name. If not set, the value of
	// spec.backup.store is used.
	// +optional
	ForcePathStyle *bool `json:"forcePathStyle,omitempty"`
}

// SnapshotDeletionPolicy is what happens to a backup when its EtcdSnapshot is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type SnapshotDeletionPolicy string

// The policies.
const (
	SnapshotRetain SnapshotDeletionPolicy = "Retain"
	SnapshotDelete SnapshotDeletionPolicy = "Delete"
)

// SnapshotFinalizer protects an EtcdSnapshot until the agent has deleted its backup or has refused to.
const SnapshotFinalizer = "etcd.druid.dev/snapshot"

// ClusterReference names an EtcdCluster.
type ClusterReference struct {
	// name of the EtcdCluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +required
	Name string `json:"name"`
}

// SnapshotType is a kind of backup.
//
// +kubebuilder:validation:Enum=Full;Delta
type SnapshotType string

// The types.
const (
	SnapshotFull  SnapshotType = "Full"
	SnapshotDelta SnapshotType = "Delta"
)

// SnapshotPhase is how far an EtcdSnapshot has progressed.
//
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
type SnapshotPhase string

// The phases. The latter two are final.
const (
	SnapshotPending   SnapshotPhase = "Pending"
	SnapshotRunning   SnapshotPhase = "Running"
	SnapshotSucceeded SnapshotPhase = "Succeeded"
	SnapshotFailed    SnapshotPhase = "Failed"
)

// EtcdSnapshotStatus is the result of an EtcdSnapshot.
type EtcdSnapshotStatus struct {
	// phase is Pending, Running, Succeeded or Failed. Succeeded and Failed are final.
	// +optional
	Phase SnapshotPhase `json:"phase,omitempty"`
	// message explains the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// startedAt is when the leader's agent started, by its clock.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// finishedAt is when the EtcdSnapshot succeeded or failed.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// artifact is the backup.
	// +optional
	Artifact *SnapshotArtifact `json:"artifact,omitempty"`
}

// SnapshotArtifact is a saved backup. It and the backups before it contain every write that etcd acknowledged before
// startedAt.
type SnapshotArtifact struct {
	// key of the object in the store. It is empty for a Delta if there was no change to save.
	// +optional
	Key string `json:"key,omitempty"`
	// uri of the object: s3://<bucket>/<key>, or dir://<path> as the agents mount it.
	// +optional
	URI string `json:"uri,omitempty"`
	// revision of etcd up to which every change is saved.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// size of the object in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// sha256 of the contents of the object, in hexadecimal.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
	// storageVersion of etcd that a restore of this Full needs, such as 3.6.0. It is empty for a Delta, and for etcd
	// before 3.6, which does not report it.
	// +optional
	StorageVersion string `json:"storageVersion,omitempty"`
}
