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
	// RecoveryPreparing: the agents stop etcd and acknowledge.
	RecoveryPreparing RecoveryPhase = "Preparing"
	// RecoveryExecuting: one agent forms the new raft group.
	RecoveryExecuting RecoveryPhase = "Executing"
	// RecoveryRecovered: the last recovery is complete.
	RecoveryRecovered RecoveryPhase = "Recovered"
)

// RecoveryStatus is the state of a recovery from a lost quorum. It is absent while no quorum is lost and no recovery took place.
type RecoveryStatus struct {
	// phase of the recovery.
	// +optional
	Phase RecoveryPhase `json:"phase,omitempty"`

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
// +kubebuilder:validation:Enum=Survivor;Backup
type RecoverySource string

// The sources.
const (
	// RecoveryFromSurvivor is the disk of a member.
	RecoveryFromSurvivor RecoverySource = "Survivor"
	// RecoveryFromBackup is the backup store.
	RecoveryFromBackup RecoverySource = "Backup"
)

// RecoveryPlan is one way to form a raft group again.
type RecoveryPlan struct {
	// hash identifies the plan. It covers the UID of the EtcdCluster, the cluster ID, the epoch, the source, the members that
	// are given up, and the loss.
	Hash string `json:"hash"`
	// source is Survivor or Backup.
	Source RecoverySource `json:"source"`
	// member that forms the new raft group. With source Survivor, its disk is the source.
	Member string `json:"member"`
	// backup is the lineage and the revision in the backup store, with source Backup.
	// +optional
	Backup string `json:"backup,omitempty"`
	// revision up to which the source has the data for certain. The log of a survivor can have more.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// giveUp are members that are neither lost nor here. Your approval asserts that their data is destroyed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	GiveUp []string `json:"giveUp,omitempty"`
	// lostRevisions is how many revisions that a member or a backup had are lost at most. It is absent if it is unknown.
	// +optional
	LostRevisions *int64 `json:"lostRevisions,omitempty"`
	// lostSeconds is how many seconds of writes are lost at most. It is absent if it is unknown.
	// +optional
	LostSeconds *int64 `json:"lostSeconds,omitempty"`
}

// LastRecovery is a recovery that formed a raft group.
type LastRecovery struct {
	// epoch of the raft group.
	Epoch int64 `json:"epoch"`
	// source is Survivor or Backup.
	Source RecoverySource `json:"source"`
	// member that formed the raft group.
	// +optional
	Member string `json:"member,omitempty"`
	// parent is the backup lineage from which the data came.
	// +optional
	Parent string `json:"parent,omitempty"`
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
