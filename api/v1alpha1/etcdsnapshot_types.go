package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdSnapshot asks once for a backup of an EtcdCluster, into the store that the cluster is backed up to. It never changes
// its outcome: for another backup, create another EtcdSnapshot. Deleting it leaves the backup where it is.
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

	// spec is what is asked for. It cannot be changed.
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
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec must not change: create another EtcdSnapshot for another backup"
// +kubebuilder:validation:XValidation:rule="!has(self.final) || !self.final || self.type == 'Full'",message="final is of a backup of type Full: a Delta is worth nothing without what it follows"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !self.verify || self.type == 'Full'",message="verify is of a backup of type Full: a Delta cannot be restored by itself"
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

	// ttlSecondsAfterFinished is how long the EtcdSnapshot, not the backup, is kept once it succeeded or failed. Without it, it
	// stays until somebody deletes it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

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
