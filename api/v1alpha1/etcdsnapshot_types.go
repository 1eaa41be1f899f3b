package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdSnapshot asks once for a backup of an EtcdCluster, into the store that the cluster is backed up to, or into another
// bucket. It never changes its outcome: for another backup, create another EtcdSnapshot. Deleting it leaves the backup where
// it is, unless spec.deletionPolicy says otherwise.
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

	// spec is what is asked for. Nothing but deletionPolicy can be changed.
	// +required
	Spec EtcdSnapshotSpec `json:"spec"`
	// status is what became of it.
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

// EtcdSnapshotSpec is what is asked for.
//
// +kubebuilder:validation:XValidation:rule="self.clusterRef == oldSelf.clusterRef && has(self.type) == has(oldSelf.type) && (!has(self.type) || self.type == oldSelf.type) && has(self.final) == has(oldSelf.final) && (!has(self.final) || self.final == oldSelf.final) && has(self.verify) == has(oldSelf.verify) && (!has(self.verify) || self.verify == oldSelf.verify) && has(self.store) == has(oldSelf.store) && (!has(self.store) || self.store == oldSelf.store) && has(self.ttlSecondsAfterFinished) == has(oldSelf.ttlSecondsAfterFinished) && (!has(self.ttlSecondsAfterFinished) || self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished)",message="spec must not change, except for deletionPolicy: create another EtcdSnapshot for another backup"
// +kubebuilder:validation:XValidation:rule="!has(self.final) || !self.final || self.type == 'Full'",message="final is of a backup of type Full: a Delta is worth nothing without what it follows"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !self.verify || self.type == 'Full'",message="verify is of a backup of type Full: a Delta cannot be restored by itself"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !self.verify || !has(self.store)",message="verify goes not with store: what is made in another place is not proven there"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Delete' || self.type == 'Full'",message="deletionPolicy Delete is of a backup of type Full: a Delta leads from a full backup to later ones"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Delete' || !has(self.final) || !self.final",message="deletionPolicy Delete goes not with final: a final backup stays until a person deletes it in the store"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || self.type == 'Full'",message="store is of a backup of type Full: a Delta is worth nothing without what it follows"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.final) || !self.final",message="final goes not with store: no retention deletes what is in another place anyway"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.deletionPolicy) || self.deletionPolicy != 'Delete'",message="deletionPolicy Delete goes not with store: in another place the backup may be the only one, so a person deletes it there"
type EtcdSnapshotSpec struct {
	// clusterRef names the EtcdCluster, in the namespace of the EtcdSnapshot. It must be backed up (spec.backup).
	// +required
	ClusterRef ClusterReference `json:"clusterRef"`

	// type is Full for the whole database, or Delta for what changed since what was saved last.
	// +kubebuilder:default=Full
	// +optional
	Type SnapshotType `json:"type,omitempty"`

	// final is of the last backup of a cluster, before it is given up, paused or moved: what is not saved yet is, and then a full
	// that is named as the final one (<revision>-<time>.final.zst). Retention and `agent backup gc` never delete it. Nothing
	// keeps the cluster from going on.
	// +optional
	Final bool `json:"final,omitempty"`

	// verify has the agent that makes the backup restore it into a scratch directory, and compare it with what etcd says that
	// it holds, before it succeeds. One that is broken, or of which that cannot be found out, fails.
	// +optional
	Verify bool `json:"verify,omitempty"`

	// store is another bucket that this one backup goes to, as before the cluster moves there. What is made there is listed and
	// restored like the cluster's own backups, and nothing follows it: neither deltas, nor retention, nor proof. The agents reach it
	// with what spec.backup of the EtcdCluster gives them: a Secret of its own would need other Pods. Whoever may create an
	// EtcdSnapshot with a store can send all data of the cluster there.
	// +optional
	Store *SnapshotStore `json:"store,omitempty"`

	// deletionPolicy says what becomes of the backup when the EtcdSnapshot is deleted, by somebody or by ttlSecondsAfterFinished:
	// Retain leaves it to the retention of spec.backup. Delete has the leader's agent delete it, unless other backups need
	// it, it is the newest full backup or the one before it, the newest that was proven, or locked. An Event then says why it
	// stays, and the EtcdSnapshot goes all the same, after ten minutes at the latest. It can be changed at any time.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy SnapshotDeletionPolicy `json:"deletionPolicy,omitempty"`

	// ttlSecondsAfterFinished is how long the EtcdSnapshot is kept once it succeeded or failed. Without it, it stays until somebody
	// deletes it. The backup goes with it only if deletionPolicy is Delete.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// SnapshotStore is a bucket beside that of spec.backup.store of the EtcdCluster. Credentials, trusted certificates, checksums,
// encryption by the store and by the agents are as there. Object lock is not: it belongs to the bucket.
type SnapshotStore struct {
	// bucket that exists already.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9][a-zA-Z0-9._-]*$')",message="bucket must be the name of a bucket: put a path into prefix, a host into endpoint"
	// +required
	Bucket string `json:"bucket"`

	// prefix of all keys, without slashes at its ends; none unless set. The backup stands under <prefix>/<namespace>/<name> of the
	// EtcdCluster.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_-][a-zA-Z0-9._-]*(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*)*$')",message="prefix must be words of letters, digits, dots, dashes and underscores between slashes, like backups/etcd"
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// region of the bucket; that of spec.backup.store unless set, and us-east-1 where that is a directory.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Region string `json:"region,omitempty"`

	// endpoint is the URL of a store that is not AWS, or of a private way to AWS; that of spec.backup.store unless set.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",message="endpoint must be a URL like https://s3.example.com:9000"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// forcePathStyle puts the bucket into the URL's path and not into the host name; as in spec.backup.store unless set.
	// +optional
	ForcePathStyle *bool `json:"forcePathStyle,omitempty"`
}

// SnapshotDeletionPolicy says what becomes of a backup when its EtcdSnapshot is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type SnapshotDeletionPolicy string

// The policies.
const (
	SnapshotRetain SnapshotDeletionPolicy = "Retain"
	SnapshotDelete SnapshotDeletionPolicy = "Delete"
)

// SnapshotFinalizer holds an EtcdSnapshot whose backup is deleted with it until that was done or refused.
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

// SnapshotPhase is how far an EtcdSnapshot is.
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

// EtcdSnapshotStatus is what became of an EtcdSnapshot.
type EtcdSnapshotStatus struct {
	// phase goes from Pending over Running to Succeeded or Failed, which it keeps.
	// +optional
	Phase SnapshotPhase `json:"phase,omitempty"`
	// message says why, for a person.
	// +optional
	Message string `json:"message,omitempty"`
	// startedAt is when the leader's agent began, by its clock.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// finishedAt is when it succeeded or failed.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// artifact is what was saved.
	// +optional
	Artifact *SnapshotArtifact `json:"artifact,omitempty"`
}

// SnapshotArtifact is what was saved. Everything that was acknowledged before startedAt is in it, or in backups before it.
type SnapshotArtifact struct {
	// key of the object in the store; empty of a Delta where nothing was left to save.
	// +optional
	Key string `json:"key,omitempty"`
	// uri of the object: s3://<bucket>/<key>, or dir://<path> as the agents mount it.
	// +optional
	URI string `json:"uri,omitempty"`
	// revision of etcd up to which everything is saved.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// size of the object in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// sha256 of what the object holds, hex.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
	// storageVersion of etcd that a Full needs to be restored, like 3.6.0. Empty of a Delta, and where etcd does not tell it: before 3.6.
	// +optional
	StorageVersion string `json:"storageVersion,omitempty"`
}
