package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RecoverAnnotation on an EtcdCluster approves the plan whose hash it names. status.recovery.approve has the command. A
// hash of another plan approves nothing.
const RecoverAnnotation = "etcd.druid.dev/recover"

// RecoverySpec configures what druid does when the cluster lost its quorum and the members cannot form it again.
type RecoverySpec struct {
	// policy is Manual or Automatic. With Manual, druid shows a plan in status.recovery, and you approve it. With
	// Automatic, druid also carries out a plan by itself if its loss is within maxDataLoss and no member that may return
	// holds more. Defaults to Manual.
	// +kubebuilder:default=Manual
	// +optional
	Policy RecoveryPolicy `json:"policy,omitempty"`

	// afterSeconds is how long the quorum must be lost before druid plans a recovery, by druid's clock. Defaults to 300.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=86400
	// +optional
	AfterSeconds int32 `json:"afterSeconds,omitempty"`

	// maxDataLoss is the loss up to which druid recovers without your approval. It has no effect with policy Manual. If not
	// set, the bounds are 0 revisions and 30 seconds. Without revisions, only seconds bounds the loss. Without seconds, each
	// plan needs your approval, because the number of writes since the last report is unknown.
	// +optional
	MaxDataLoss *MaxDataLoss `json:"maxDataLoss,omitempty"`

	// restore brings an earlier state of the data back, in place of the present one. druid shows in status.recovery what it
	// would do, and does nothing before you approve that plan. Then it cuts clients off, makes a final backup, and forms the
	// cluster again from the backups. If that fails or takes longer than 30 minutes, the cluster continues with its
	// present data. It also does so if you remove this field before the cluster is formed. Each plan is carried out at most once. The restore needs
	// spec.backup. It takes effect at once, also while an earlier edit of the spec is not complete.
	// +optional
	Restore *RestoreInPlace `json:"restore,omitempty"`
}

// RestoreInPlace is one state in the history of the cluster.
//
// +kubebuilder:validation:XValidation:rule="(has(self.revision) ? 1 : 0) + (has(self.time) ? 1 : 0) + (has(self.latest) && self.latest ? 1 : 0) == 1",message="exactly one of revision, time and latest: true must be set"
type RestoreInPlace struct {
	// revision of etcd. The state right after that revision is restored.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// time is a moment, by the clock of the member that saved the backup. The state at that moment is restored.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// latest restores the newest state in the lineage. With the lineage in status.recovery.last.replaced, it undoes a restore.
	// +optional
	Latest bool `json:"latest,omitempty"`

	// lineage of the backups: the part of their keys between the name of the cluster and the kind of the backup. If not set, it is
	// the one in which the cluster saves now.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{8}-[0-9a-z]{1,32}$')",message="lineage must be that of a backup, like 00000001-6f1c0e9a2b3c4d5e"
	// +optional
	Lineage string `json:"lineage,omitempty"`
}

// RecoveryPolicy says who approves a recovery.
//
// +kubebuilder:validation:Enum=Manual;Automatic
type RecoveryPolicy string

// The policies.
const (
	RecoveryManual    RecoveryPolicy = "Manual"
	RecoveryAutomatic RecoveryPolicy = "Automatic"
)

// MaxDataLoss bounds the loss of a recovery. Each bound that is set must hold.
//
// +kubebuilder:validation:XValidation:rule="has(self.revisions) || has(self.seconds)",message="maxDataLoss must set revisions or seconds"
type MaxDataLoss struct {
	// revisions that the new raft group may lack, of those that a member or a backup reported.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Revisions *int64 `json:"revisions,omitempty"`

	// seconds before the loss of the quorum whose writes the new raft group may lack, also writes that no member reported. The times come from different
	// machines, so that a difference of their clocks adds to it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Seconds *int64 `json:"seconds,omitempty"`
}

// RecoveryPhase is the state of a recovery.
type RecoveryPhase string

// The phases.
const (
	// RecoveryWaiting: the quorum is lost, and it may return by itself, or druid waits for spec.recovery.afterSeconds.
	RecoveryWaiting RecoveryPhase = "Waiting"
	// RecoveryProposed: the plan needs your approval.
	RecoveryProposed RecoveryPhase = "Proposed"
	// RecoveryRefused: no recovery is possible, and the message says what to do.
	RecoveryRefused RecoveryPhase = "Refused"
	// RecoveryPlanning: a restore is requested, and the leader's agent plans it.
	RecoveryPlanning RecoveryPhase = "Planning"
	// RecoverySaving: a restore is approved, clients are cut off, and a final backup is made.
	RecoverySaving RecoveryPhase = "Saving"
	// RecoveryPreparing: the agents stop etcd and acknowledge.
	RecoveryPreparing RecoveryPhase = "Preparing"
	// RecoveryExecuting: one agent forms the new raft group.
	RecoveryExecuting RecoveryPhase = "Executing"
	// RecoveryRecovered: the last recovery is complete.
	RecoveryRecovered RecoveryPhase = "Recovered"
)

// RecoveryStatus is the state of a recovery from a lost quorum, or of a restore in place. It is absent while no quorum is lost, no
// restore is requested, and none took place.
type RecoveryStatus struct {
	// phase of the recovery.
	// +optional
	Phase RecoveryPhase `json:"phase,omitempty"`

	// lostSince is when druid first saw that the quorum is lost, by its own clock. It is absent if no quorum is lost.
	// +optional
	LostSince *metav1.Time `json:"lostSince,omitempty"`

	// plan is what druid would do, or does.
	// +optional
	Plan *RecoveryPlan `json:"plan,omitempty"`

	// message says what druid waits for, and what you can do.
	// +optional
	Message string `json:"message,omitempty"`

	// approve is the command that approves the plan. It is absent if no approval is needed.
	// +optional
	Approve string `json:"approve,omitempty"`

	// last is the last recovery that formed a raft group.
	// +optional
	Last *LastRecovery `json:"last,omitempty"`
}

// RecoverySource says from what the raft group is formed again.
//
// +kubebuilder:validation:Enum=Survivor;Backup;Restore
type RecoverySource string

// The sources.
const (
	// RecoveryFromSurvivor is the disk of a member.
	RecoveryFromSurvivor RecoverySource = "Survivor"
	// RecoveryFromBackup is the backup store.
	RecoveryFromBackup RecoverySource = "Backup"
	// RecoveryFromRestore is the backup store, up to the state that spec.recovery.restore requests.
	RecoveryFromRestore RecoverySource = "Restore"
)

// RecoveryPlan is one way to form a raft group again.
type RecoveryPlan struct {
	// hash identifies the plan. It covers the UID of the EtcdCluster, the cluster ID and the epoch. With source Restore, it also covers
	// the request, the lineage, the full backup, the revision and the notes. Otherwise, it also covers the source, the members that are
	// given up, and the loss.
	Hash string `json:"hash"`
	// source is Survivor, Backup or Restore.
	Source RecoverySource `json:"source"`
	// member that forms the new raft group. With source Survivor, its disk is the source. With source Restore, druid chooses it when
	// all members have stopped etcd.
	// +optional
	Member string `json:"member,omitempty"`
	// target is what spec.recovery.restore requests, in words, with source Restore.
	// +optional
	Target string `json:"target,omitempty"`
	// backup is the lineage and the revision in the backup store, with source Backup or Restore.
	// +optional
	Backup string `json:"backup,omitempty"`
	// revision up to which the source has the data for certain. The log of a survivor can have more.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// giveUp are members that are neither lost nor here, and IDs of voters that no member has. Your approval asserts that their data is destroyed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	GiveUp []string `json:"giveUp,omitempty"`
	// full is the key of the full backup from which the restore begins, with source Restore.
	// +optional
	Full string `json:"full,omitempty"`
	// deltas is the number of delta backups that the restore reads after the full one, with source Restore.
	// +optional
	Deltas int32 `json:"deltas,omitempty"`
	// notes say in which way the restored state differs from the requested one.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Notes []string `json:"notes,omitempty"`
	// lostRevisions is how many revisions that a member or a backup had are lost at most. With source Restore, it is how
	// many revisions the restore undoes at least. It is absent if it is unknown.
	// +optional
	LostRevisions *int64 `json:"lostRevisions,omitempty"`
	// lostSeconds is how many seconds of writes are lost at most. What members acknowledged while they did not reach the API server is not
	// counted, and the message names them. It is absent if it is unknown.
	// +optional
	LostSeconds *int64 `json:"lostSeconds,omitempty"`
}

// LastRecovery is a recovery that formed a raft group.
type LastRecovery struct {
	// epoch of the raft group.
	Epoch int64 `json:"epoch"`
	// source is Survivor, Backup or Restore.
	Source RecoverySource `json:"source"`
	// request identifies the restore that was carried out, with source Restore, as long as spec.recovery.restore is set.
	// +optional
	Request string `json:"request,omitempty"`
	// member that formed the raft group.
	// +optional
	Member string `json:"member,omitempty"`
	// parent is the backup lineage from which the data came.
	// +optional
	Parent string `json:"parent,omitempty"`
	// replaced is the backup lineage of the raft group that was replaced. Restore its latest state to undo a restore.
	// +optional
	Replaced string `json:"replaced,omitempty"`
	// fork is the last revision of the parent that the new raft group has.
	// +optional
	Fork int64 `json:"fork,omitempty"`
	// revision with which the new raft group started.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// at is when druid saw it, by druid's clock.
	// +optional
	At metav1.Time `json:"at,omitempty,omitzero"`
}
