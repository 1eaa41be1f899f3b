package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdSnapshot requests one backup of an EtcdCluster, to the store of the cluster or to a store of its own. Its result
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
	// status is the result. Before druid has observed the EtcdSnapshot, it has only condition Reconciling.
	// +kubebuilder:default={"conditions":{{"type":"Reconciling","status":"True","reason":"Pending","message":"druid has not observed the EtcdSnapshot yet.","lastTransitionTime":"1970-01-01T00:00:00Z"}}}
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
// +kubebuilder:validation:XValidation:rule="self.clusterRef == oldSelf.clusterRef && has(self.type) == has(oldSelf.type) && (!has(self.type) || self.type == oldSelf.type) && has(self.final) == has(oldSelf.final) && (!has(self.final) || self.final == oldSelf.final) && has(self.verify) == has(oldSelf.verify) && (!has(self.verify) || self.verify == oldSelf.verify) && has(self.store) == has(oldSelf.store) && (!has(self.store) || self.store == oldSelf.store) && has(self.encryption) == has(oldSelf.encryption) && (!has(self.encryption) || self.encryption == oldSelf.encryption) && has(self.ttlSecondsAfterFinished) == has(oldSelf.ttlSecondsAfterFinished) && (!has(self.ttlSecondsAfterFinished) || self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished)",message="spec must not change, except for deletionPolicy; create another EtcdSnapshot for another backup"
// +kubebuilder:validation:XValidation:rule="!has(self.final) || !self.final || self.type == 'Full'",message="final needs type Full: a Delta is useless without the backups before it"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !self.verify || self.type == 'Full'",message="verify needs type Full: a Delta cannot be restored by itself"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !self.verify || !has(self.store)",message="verify must not be combined with store: a backup in store is read back, and only the agents restore backups and compare them"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Delete' || self.type == 'Full'",message="deletionPolicy Delete needs type Full: later backups need the Delta"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Delete' || !has(self.final) || !self.final",message="deletionPolicy Delete must not be combined with final: a final backup stays until you delete it in the store"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || self.type == 'Full'",message="store needs type Full: a Delta is useless without the backups before it"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.final) || !self.final",message="final must not be combined with store: retention does not delete backups in another store"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.store.directory) || has(self.store.directory.claimName)",message="store.directory needs claimName: the Pod that saves may not mount a directory of the node"
// +kubebuilder:validation:XValidation:rule="!has(self.encryption) || has(self.store)",message="encryption needs store: without store, spec.backup of the EtcdCluster applies to both"
type EtcdSnapshotSpec struct {
	// clusterRef names the EtcdCluster, in the namespace of the EtcdSnapshot. Without store, the cluster must have
	// spec.backup.
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

	// store is where this one backup is saved, with credentials of its own. If not set, it is spec.backup.store of the
	// EtcdCluster. druid creates a Pod that mounts the Secrets or the PersistentVolumeClaim, streams a snapshot from etcd
	// and reads the object back. The EtcdCluster needs no spec.backup. No delta backups, retention or verification follow.
	// To create an EtcdSnapshot with a store, you must have the permission to update the EtcdCluster. You must also have
	// the permissions to get each Secret that store and encryption name, and to update the PersistentVolumeClaim.
	// +optional
	Store *BackupStore `json:"store,omitempty"`

	// encryption configures encryption of the backup in store before it is sent. If not set, it is not encrypted, unless
	// the store itself encrypts.
	// +optional
	Encryption *BackupEncryption `json:"encryption,omitempty"`

	// deletionPolicy is what happens to the backup when the EtcdSnapshot is deleted, by a user or by
	// ttlSecondsAfterFinished. Retain leaves it to the retention of spec.backup, or keeps it in store. Delete makes the
	// leader's agent delete it, or a Pod for a backup in store. A backup that other backups need or that is locked stays.
	// In the store of the cluster, the two newest full backups and the newest verified one stay too. An Event then
	// gives the reason, and the EtcdSnapshot is still deleted within ten minutes. You can change it at any time. Defaults
	// to Retain.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy SnapshotDeletionPolicy `json:"deletionPolicy,omitempty"`

	// ttlSecondsAfterFinished is the time in seconds after which a finished EtcdSnapshot is deleted. If not set, it
	// stays until you delete it. The backup is deleted with it only if deletionPolicy is Delete.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
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

// Condition types of an EtcdSnapshot. An EtcdSnapshot has both from its first phase. The reason is the phase, and the
// message is that of the status. ConditionReconciling is True before it ends, and ConditionStalled when it failed. They are
// absent otherwise.
const (
	// SnapshotConditionComplete is True when the backup is saved.
	SnapshotConditionComplete = "Complete"
	// SnapshotConditionFailed is True when the backup is not saved, and never will be.
	SnapshotConditionFailed = "Failed"
)

// EtcdSnapshotStatus is the result of an EtcdSnapshot.
type EtcdSnapshotStatus struct {
	// conditions are Complete and Failed, as those of a Job. Complete is True when phase is Succeeded, and Failed when
	// phase is Failed. Both are False before. For tools that wait, Reconciling is True before, and Stalled when phase is
	// Failed.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// phase is Pending, Running, Succeeded or Failed. Succeeded and Failed are final.
	// +optional
	Phase SnapshotPhase `json:"phase,omitempty"`
	// message explains the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// startedAt is when the leader's agent or the Pod started, by its clock.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// finishedAt is when the EtcdSnapshot succeeded or failed.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// artifact is the backup.
	// +optional
	Artifact *SnapshotArtifact `json:"artifact,omitempty"`
	// attempts counts the Pods for an EtcdSnapshot with store. It is removed when phase is final, and counts again when
	// the backup is deleted with the EtcdSnapshot.
	// +optional
	Attempts *SnapshotAttempts `json:"attempts,omitempty"`
}

// SnapshotAttempts are the Pods that druid created or tried to create for one purpose. The pause between two of them starts
// at 10 seconds and doubles up to 5 minutes.
type SnapshotAttempts struct {
	// count is how many there were.
	Count int32 `json:"count"`
	// firstAt is when the first one was. The EtcdSnapshot fails an hour and five minutes later, if nothing is saved.
	FirstAt metav1.Time `json:"firstAt"`
	// lastAt is when the last one was.
	LastAt metav1.Time `json:"lastAt"`
}

// SnapshotArtifact is a saved backup. It and the backups before it contain every write that etcd acknowledged before
// startedAt.
type SnapshotArtifact struct {
	// key of the object in the store. It is empty for a Delta if there was no change to save.
	// +optional
	Key string `json:"key,omitempty"`
	// uri of the object: s3://<bucket>/<key>, or dir://<path> as the Pods mount it.
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
