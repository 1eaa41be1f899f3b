package policy

import (
	"slices"

	"github.com/etcd-druid/druid/leases"
)

// Kind of a step: the one call that it makes.
type Kind string

// The kinds of steps.
const (
	CreateRecord Kind = "CreateRecord"
	UpdateRecord Kind = "UpdateRecord"
	ApplyObject  Kind = "ApplyObject"
	ApplyBudget  Kind = "ApplyBudget"
	// DeleteBudget deletes the PodDisruptionBudget of a cluster without Pods.
	DeleteBudget Kind = "DeleteBudget"
	// DeleteObject deletes an object that the spec does not request any more.
	DeleteObject      Kind = "DeleteObject"
	CreateLeaderLease Kind = "CreateLeaderLease"
	// CreateSnapshotLease and DeleteSnapshotLease follow spec.backup. Object is the Lease's component.
	CreateSnapshotLease Kind = "CreateSnapshotLease"
	DeleteSnapshotLease Kind = "DeleteSnapshotLease"
	CreateMemberLease   Kind = "CreateMemberLease"
	CreateClaim         Kind = "CreateClaim"
	CreatePod           Kind = "CreatePod"
	MarkLease           Kind = "MarkLease"
	LabelPod            Kind = "LabelPod"
	DeletePod           Kind = "DeletePod"
	// AdoptPod records on a Pod without that information that it matches the spec.
	AdoptPod Kind = "AdoptPod"
	// ReplaceAgent sets the agent's image in a running Pod to the one that druid was given.
	ReplaceAgent Kind = "ReplaceAgent"

	// OpenSlot, FreeSlot and RemoveName write the record, as UpdateRecord does.
	OpenSlot   Kind = "OpenSlot"
	FreeSlot   Kind = "FreeSlot"
	RemoveName Kind = "RemoveName"
	// RequestRemoval writes a removal request, and WithdrawRemoval deletes it.
	RequestRemoval  Kind = "RequestRemoval"
	WithdrawRemoval Kind = "WithdrawRemoval"
	// RepeatRemoval replaces an acknowledgement that druid does not believe with a claim, which the leader's agent takes over.
	RepeatRemoval Kind = "RepeatRemoval"
	DeleteClaim   Kind = "DeleteClaim"
	MarkRepairing Kind = "MarkHealing"
	// RetainClaim retains the claim of a removed member, without an owner.
	RetainClaim Kind = "RetainClaim"
	DeleteLease Kind = "DeleteLease"
	// TakeClaim adds the EtcdCluster as an owner of the claim, so that it is deleted with it. ReleaseClaim removes
	// that owner.
	TakeClaim    Kind = "TakeClaim"
	ReleaseClaim Kind = "ReleaseClaim"
	// GrowClaim requests a larger volume.
	GrowClaim Kind = "GrowClaim"
	// CreateSnapshot requests the backup before a change of version or before a restore in place. Object is its name.
	CreateSnapshot Kind = "CreateSnapshot"
	// OrderUpgrade requests that the leader's agent compare the members, and EndUpgrade removes that order from the
	// record. Object is its nonce.
	OrderUpgrade Kind = "OrderUpgrade"
	EndUpgrade   Kind = "EndUpgrade"
	// RequestRestorePlan requests that the leader's agent plan a restore in place, and ForgetRestorePlan removes that request. Object is
	// its nonce.
	RequestRestorePlan Kind = "RequestRestorePlan"
	ForgetRestorePlan  Kind = "ForgetRestorePlan"
	// IssueCertificates writes a Secret with certificates, and makes the certificate authority of its plane before that if
	// there never was one. Object is the name of the Secret.
	IssueCertificates Kind = "IssueCertificates"
	// CreateAuthority makes the next certificate authority of a plane. Object is the plane.
	CreateAuthority Kind = "CreateAuthority"
	// RequestCertificate writes a Certificate of cert-manager. Object is its name.
	RequestCertificate Kind = "RequestCertificate"

	// PrepareRecovery, ExecuteRecovery and ReleaseRecovery write the record, as UpdateRecord does. Object is the plan, or the
	// order.
	PrepareRecovery Kind = "PrepareRecovery"
	ExecuteRecovery Kind = "ExecuteRecovery"
	ReleaseRecovery Kind = "ReleaseRecovery"
)

// Stage orders the steps. The steps of one stage are independent and run in parallel. druid creates what the kubelet
// needs before it creates the Pod. It raises a PodDisruptionBudget before a Pod gets the label that the budget counts,
// and lowers it after a Pod lost that label. It removes a Pod from the client endpoints before it deletes the Pod.
type Stage uint8

// The stages.
const (
	StageRecord Stage = iota
	StageShared
	// StageBound is for objects that refer to those of StageShared.
	StageBound
	StagePods
	StageMarks
	StageRaise
	StageLabels
	StageLate
	StageDelete
	StageGrow
)

// Step is one request to the API server, as data.
type Step struct {
	Kind  Kind
	Rule  string
	Stage Stage
	// Member whose object it is, empty for what the members share.
	Member string
	// Object is the kind and name of an object to apply or to delete, or the component of a snapshot Lease.
	Object string
	// PodUID and ClaimUID identify the objects that the step was planned for.
	PodUID, ClaimUID string
	// Record to create or to restore, without the names and the nonce: only the code that carries out the step can
	// draw them.
	Record *leases.Record
	// Draw is how many new names the record gets. Seed is the member that becomes the seed, with a new nonce.
	Draw int
	Seed string
	// Names to add to the record again.
	Names []string
	// Slot that the step was planned under, or that it takes. If it has no mark, one is drawn.
	Slot *leases.PendingRemoval
	// Release is the slot of the record to release.
	Release *leases.Replacing
	// Leave requests that all members leave the group that they joined.
	Leave bool
	// Repairing is what the step writes on the member's Lease.
	Repairing *leases.Repairing
	// Mark is the mark of a restore in place to write to the Pod together with its labels. An empty one removes the mark.
	Mark *string
	// Serving, Voter and Leader are the labels to set (true) or to clear (false). nil leaves a label unchanged.
	Serving, Voter, Leader *bool
	// Order to write to the record. An empty one removes the order.
	Order *leases.UpgradeOrder
	// Restore is the request for a plan to write to the record. One without a nonce removes the request.
	Restore *leases.RestoreRequest
	// Final says that retention never deletes the backup to create.
	Final bool
	// Recovery is the order to write to the record. Epoch is the highest one to release.
	Recovery *leases.Recovery
	Epoch    uint32
	// MinAvailable of the budget, and the sentence that explains it.
	MinAvailable int
	Explanation  string
	// Toll is what the step costs the cluster.
	Toll Toll
	// Irreversible is set for a step whose kind is not always irreversible: some writes of the record, and
	// announcements of a repair.
	Irreversible bool
}

// irreversible are the kinds of steps that druid cannot undo, or that the agents act upon.
var irreversible = []Kind{
	CreateRecord, OpenSlot, FreeSlot, RemoveName, RequestRemoval, WithdrawRemoval, RepeatRemoval, DeletePod, DeleteClaim, TakeClaim, RetainClaim,
	DeleteLease, DeleteSnapshotLease, ReplaceAgent, OrderUpgrade, EndUpgrade, PrepareRecovery, ExecuteRecovery, ReleaseRecovery,
}

// MustConfirm says whether druid plans the step again from live reads and takes it only if the second plan contains
// it.
func (s Step) MustConfirm() bool { return s.Irreversible || slices.Contains(irreversible, s.Kind) }

// Same says whether two plans contain the same step.
func (s Step) Same(other Step) bool {
	return s.Kind == other.Kind && s.Rule == other.Rule && s.Member == other.Member && s.Object == other.Object &&
		s.PodUID == other.PodUID && s.ClaimUID == other.ClaimUID
}

// Guarded says whether the step is carried out only if its Pod is as the plan saw it: it sends clients to the Pod, or marks it.
func (s Step) Guarded() bool { return s.Mark != nil || s.Serving != nil && *s.Serving }
