package policy

import (
	"slices"

	"github.com/etcd-druid/druid/leases"
)

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
// while an order stands: a Pod that is not ready can hold the best data. The exception is the Pod or the agent of a selected member that
// cannot carry out the order as it is.
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
