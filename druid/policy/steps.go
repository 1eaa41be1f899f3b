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

	// OpenSlot, FreeSlot and StrikeName write the record, as UpdateRecord does.
	OpenSlot   Kind = "OpenSlot"
	FreeSlot   Kind = "FreeSlot"
	StrikeName Kind = "StrikeName"
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
	CreateRecord, OpenSlot, FreeSlot, StrikeName, RequestRemoval, WithdrawRemoval, RepeatRemoval, DeletePod, DeleteClaim, TakeClaim, RetainClaim,
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

// Steps returns the steps that bring the cluster closer to the desired state, ordered by stage. A step that writes the
// record is alone, because all others follow from the new record. A steady cluster has no steps.
func Steps(e Evaluation) []Step {
	if e.Deleted && !e.goes() || bootstrapFailed(e) || e.handsOff() {
		return nil
	}
	if step, ok := recordStep(e); ok {
		return []Step{step}
	}
	if steps, only := recoverySteps(e); only {
		return steps
	}
	if step, ok := changeOfMembers(e); ok {
		return []Step{step}
	}
	o, leaves := e.Observed, e.scaleDown
	stages, add := staged()
	leaving := map[string]bool{}
	if o.RecordState&(RecordForming|RecordFormed|RecordRecovering) != 0 {
		sharedSteps(o, add)
		certificateSteps(e, add)
		requestSteps(e, add)
		backupSteps(e, add)
		for _, m := range e.listed {
			leaving[m.Name] = memberSteps(m, memberFactsOf(m, e), add) || leaves.leaving(m) || e.pause.holds(m, pauseDrain)
			growStep(m, e.Deleted || leaves.leaving(m), add)
		}
		leaves.markSteps(o, add)
		e.pause.step(leaving, add)
		healSteps(o, e.listed, leaving, add)
		changeSteps(e, leaving, add)
		budgetStep(e, add)
		e.restore.steps(e, add)
	}
	for _, m := range o.Members {
		leaving[m.Name] = partSteps(m, e, add) || leaving[m.Name]
		labelStep(m, labelFactsOf(m, leaving[m.Name], e), e, add)
	}
	steps := slices.Concat(stages[:]...)
	bearTolls(steps, leaves)
	return steps
}

// changeOfMembers writes the record, so that a member leaves, or comes to replace another one.
func changeOfMembers(e Evaluation) (Step, bool) {
	if step, ok := leaveStep(e); ok {
		return step, true
	}
	if step, ok := e.scaleDown.recordStep(e.Observed); ok {
		return step, true
	}
	return replaceStep(e)
}

// staged collects steps by stage.
func staged() (stages *[StageGrow + 1][]Step, add func(Step)) {
	stages = &[StageGrow + 1][]Step{}
	return stages, func(s Step) { stages[s.Stage] = append(stages[s.Stage], s) }
}

// recoverySteps are all steps of a cluster while a recovery is decided or ordered. It returns false if there is none. A
// cluster that is deleted needs no raft group.
func recoverySteps(e Evaluation) ([]Step, bool) {
	if e.Deleted {
		return nil, false
	}
	if step, ok := e.recoveryStep(); ok {
		return []Step{step}, true
	}
	if step, ok := e.restore.recordStep(e.Observed); ok {
		return []Step{step}, true
	}
	if e.RecordState == RecordRecovering || e.restore.cutsOff() {
		return recoveringSteps(e), true
	}
	return nil, false
}

// recoveringSteps keep the members able to carry out the order. druid repairs, removes, changes and deletes nothing else
// while an order stands: a Pod that is not ready can hold the best data. The exception is the Pod of a selected member that cannot carry
// out the order as it is.
func recoveringSteps(e Evaluation) []Step {
	stages, add := staged()
	sharedSteps(e.Observed, add)
	certificateSteps(e, add)
	backupSteps(e, add)
	leaving := map[string]bool{}
	for _, m := range e.listed {
		leaving[m.Name] = memberSteps(m, memberFactsOf(m, e), add)
		growStep(m, false, add) // the copy of a database needs room
	}
	failedStep(e, leaving, add)
	budgetStep(e, add)
	for _, m := range e.Members {
		labelStep(m, labelFactsOf(m, leaving[m.Name], e), e, add)
	}
	e.restore.steps(e, add)
	return slices.Concat(stages[:]...)
}

// changeSteps bring Pods to what the spec asks for. A deleted EtcdCluster asks for nothing.
func changeSteps(e Evaluation, leaving map[string]bool, add func(Step)) {
	if e.Deleted {
		return
	}
	upgradeSteps(e, add)
	rolloutSteps(e, leaving, add)
	agentSteps(e, leaving, add)
}

// partSteps deletes what a removed member left, and sets the owners of the claims of the others. It reports whether
// something of the member is being deleted. When the EtcdCluster is deleted, everything except Pods stays or is
// deleted afterwards, as the policy of the claims says.
func partSteps(m Member, e Evaluation, add func(Step)) bool {
	step, ok := leftoverStep(m, e.Desired, e.Observed)
	switch {
	case ok && (!e.Deleted || step.Kind == DeletePod):
		add(step)
		return true
	case !ok && !e.Deleted:
		ownershipStep(e.Desired, m, add)
	}
	return false
}

func recordStep(e Evaluation) (Step, bool) {
	d, o := e.Desired, e.Observed
	decision := records.Decide(recordFactsOf(e))
	step := Step{Rule: decision.Rule, Stage: StageRecord, Kind: UpdateRecord}
	switch decision.Verdict {
	case orderBootstrap:
		step.Kind, step.Draw = CreateRecord, d.Replicas
		step.Record = &leases.Record{Phase: leases.PhaseForming, Epoch: 1}
	case orderRecreate:
		r := recreated(d, o)
		step.Kind, step.Record = CreateRecord, &r
	case orderRestore:
		r := recreated(d, o)
		step.Irreversible, step.Record = true, &r
		return step, r.ClusterID != 0
	case orderRelist:
		step.Names, step.Irreversible = lostNames(d, o), true
	case orderGrow:
		step.Draw = d.Replicas - len(o.Record.Members)
	case orderMoveSeed:
		step.Seed = successor(o)
		return step, step.Seed != ""
	default:
		return slotStep(o)
	}
	return step, true
}

func sharedSteps(o Observed, add func(Step)) {
	for _, object := range o.Objects {
		if object.State == ObjectUnwanted {
			add(Step{Kind: DeleteObject, Rule: ruleUnwanted, Stage: object.Stage, Object: object.Kind + "/" + object.Name})
		}
		if object.State&(ObjectAbsent|ObjectOutdated) == 0 {
			continue
		}
		add(Step{Kind: ApplyObject, Rule: objectRule(object.State), Stage: object.Stage, Object: object.Kind + "/" + object.Name})
	}
	if o.LeaderLease == LeaseAbsent {
		add(Step{Kind: CreateLeaderLease, Rule: "leader-lease-missing", Stage: StageShared})
	}
}

// The rules by which shared objects are applied.
const (
	ruleMissing  = "object-missing"
	ruleOutdated = "object-outdated"
	ruleUnwanted = "object-unwanted"
	ruleLowered  = "budget-lowered"
	// ruleExplained changes the sentence of a budget, and not its number.
	ruleExplained = "budget-explained"
)

func objectRule(s ObjectState) string {
	if s == ObjectAbsent {
		return ruleMissing
	}
	return ruleOutdated
}

// memberSteps returns whether the member's Pod is being deleted.
func memberSteps(m Member, f memberFacts, add func(Step)) bool {
	if d := leaseRows.Decide(f); d.Verdict == create {
		add(Step{Kind: CreateMemberLease, Rule: d.Rule, Stage: StageShared, Member: m.Name})
	}
	if d := claimRows.Decide(f); d.Verdict == create {
		add(Step{Kind: CreateClaim, Rule: d.Rule, Stage: StageBound, Member: m.Name})
	}
	decision := podRows.Decide(f)
	step := Step{Rule: decision.Rule, Member: m.Name, PodUID: m.PodUID}
	switch decision.Verdict {
	case create:
		step.Kind, step.Stage, step.PodUID = CreatePod, StagePods, ""
	case mark:
		step.Kind, step.Stage, step.ClaimUID = MarkLease, StageMarks, m.ClaimUID
	case remove:
		step.Kind, step.Stage = DeletePod, StageDelete
		if m.Pod == PodLive {
			step.Toll = TollHeal
		}
	default:
		return false
	}
	add(step)
	return decision.Verdict == remove
}

// noOne says whether the cluster is paused and no Pod of it is left that could be evicted.
func (e Evaluation) noOne() bool {
	return e.pause.is(pauseRest) &&
		!slices.ContainsFunc(e.Members, func(m Member) bool { return m.Pod&(PodAbsent|PodForeign) == 0 })
}

func labelStep(m Member, f labelFacts, e Evaluation, add func(Step)) {
	if m.Pod&(PodAbsent|PodForeign|PodEnded) != 0 {
		return
	}
	serving, voter := servingRows.Decide(f), voterRows.Decide(f)
	leader := leaderRows.Decide(leaderFactsOf(m, serving.Verdict, e))
	step := Step{Kind: LabelPod, Stage: StageLabels, Member: m.Name, PodUID: m.PodUID}
	if step.Leader = labelChange(m.Leader, leader.Verdict); step.Leader != nil {
		step.Rule = leader.Rule
	}
	if step.Voter = labelChange(m.Voter, voter.Verdict); step.Voter != nil {
		step.Rule = voter.Rule
	}
	if step.Serving = labelChange(m.Serving, serving.Verdict); step.Serving != nil {
		step.Rule = serving.Rule
	}
	markStep(&step, m, e)
	if step.Rule != "" {
		add(step)
	}
}

// markStep marks a Pod from which clients are cut off for a restore in place, and removes the mark when the Pod serves them again. Both
// are confirmed by live reads, because a later restore relies on that mark.
func markStep(step *Step, m Member, e Evaluation) {
	mark := e.CutFor()
	switch serves := step.Serving != nil && *step.Serving; {
	case mark != "" && m.CutFor != mark:
		step.Rule, step.Object = e.restore.rule, mark
	case mark == "" && serves && m.CutFor != "":
	default:
		return
	}
	step.Mark, step.Irreversible = &mark, true
}

// Guarded says whether the step is carried out only if its Pod is as the plan saw it: it sends clients to the Pod, or marks it.
func (s Step) Guarded() bool { return s.Mark != nil || s.Serving != nil && *s.Serving }

// labelChange returns the value to write, or nil if the label is right.
func labelChange(has bool, verdict labelVerdict) *bool {
	if want := verdict == labelSet; verdict != labelKeep && want != has {
		return &want
	}
	return nil
}
