package v1alpha1

// RecoveryPhase is the state of a lost quorum.
//
// +kubebuilder:validation:Enum=Waiting;Proposed;Refused
type RecoveryPhase string

// The phases.
const (
	// RecoveryWaiting: the quorum is lost, and it may return: wait, or bring back the members in the message.
	RecoveryWaiting RecoveryPhase = "Waiting"
	// RecoveryProposed: the quorum cannot return, and the plan names the best source for a new cluster.
	RecoveryProposed RecoveryPhase = "Proposed"
	// RecoveryRefused: the quorum cannot return, and druid knows no source.
	RecoveryRefused RecoveryPhase = "Refused"
)

// RecoveryStatus is what druid knows about a lost quorum. druid changes nothing: it says what is left and what you can do.
type RecoveryStatus struct {
	// phase says whether the quorum may return.
	// +required
	Phase RecoveryPhase `json:"phase"`

	// message says what druid waits for, or what you can do.
	// +optional
	Message string `json:"message,omitempty"`

	// plan is the best source for a new cluster, and what it lacks. It is present if the phase is Proposed.
	// +optional
	Plan *RecoveryPlan `json:"plan,omitempty"`
}

// RecoverySource says from what a new cluster is best formed.
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

// RecoveryPlan is the best source for a new cluster.
type RecoveryPlan struct {
	// source is Survivor or Backup.
	// +required
	Source RecoverySource `json:"source"`

	// member whose disk is the source, with source Survivor.
	// +optional
	Member string `json:"member,omitempty"`

	// lineage in the backup store, with source Backup.
	// +optional
	Lineage string `json:"lineage,omitempty"`

	// revision up to which the source has the data, as far as was reported.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// lostRevisions is how many revisions another member or backup reported that the source lacks. It is absent if the loss
	// is unknown.
	// +optional
	LostRevisions *int64 `json:"lostRevisions,omitempty"`

	// lostSeconds is how many seconds of writes before the loss of the quorum the source can lack. The times come from
	// different machines, so that a difference of their clocks adds to it. It is absent if the loss is unknown.
	// +optional
	LostSeconds *int64 `json:"lostSeconds,omitempty"`
}
