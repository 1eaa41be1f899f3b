package policy

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// recordStep writes the order of a restore to the record, or releases it.
func (r restore) recordStep(o Observed) (Step, bool) {
	step := Step{Rule: r.rule, Stage: StageRecord, Irreversible: true}
	switch {
	case r.is(restorePrepare):
		order, ok := r.ordered(o)
		if !ok {
			return Step{}, false
		}
		step.Kind, step.Member, step.Object, step.Recovery = PrepareRecovery, order.Chosen, r.hash, &order
		step.Restore = &r.request
	case r.is(restoreExecute):
		chosen, ok := r.restorer()
		if !ok {
			return Step{}, false
		}
		order := *r.group.order
		order.Chosen, order.Report, order.Known = chosen.member.Name, chosen.report.Digest(), max(order.Known, highestRevision(o))
		step.Kind, step.Member, step.Object, step.Recovery = ExecuteRecovery, order.Chosen, order.Name()+" "+order.Report, &order
	case r.is(restoreRelease):
		step.Kind, step.Epoch, step.Object = ReleaseRecovery, o.highestPrepared(), r.group.order.Name()
	default:
		return Step{}, false
	}
	return step, true
}

// ordered is the order that carries out the plan. Until all members stopped, the chosen one is only the first of those that can
// restore.
func (r restore) ordered(o Observed) (leases.Recovery, bool) {
	order := leases.Recovery{
		Epoch: r.group.epoch, Mode: leases.RecoverRestore, Lineage: r.plan.Lineage, Revision: r.plan.Revision, Request: r.request.Key,
		Target: &r.request.Target, Known: max(r.request.Known, highestRevision(o)), Plan: r.hash, Revisions: r.undone(), Approved: true,
	}
	for _, m := range o.listed() {
		if m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Pod == PodLive && m.votes() && m.ofGroup(o) {
			order.Chosen = m.Name
			return order, true
		}
	}
	return order, false
}

// undone is how many revisions the restore undoes at least, 0 if that is unknown: the revisions of another lineage cannot be compared.
func (r restore) undone() int64 {
	if r.plan.Lineage != r.lineage || r.plan.Revision == 0 || r.request.Known == 0 {
		return 0
	}
	return max(0, r.request.Known-r.plan.Revision)
}

// steps request a plan, and the final backup.
func (r restore) steps(e Evaluation, add func(Step)) {
	switch {
	case e.Deleted:
	case r.is(restoreAsk):
		request := r.request
		request.Known = highestRevision(e.Observed)
		switch request.Failed = ""; {
		case r.rule == ruleInterrupted:
			request.Failed = r.interruption(e.Observed)
		case r.facts.saved == SaveFailed:
			request.Failed = r.failedSave()
		}
		add(Step{Kind: RequestRestorePlan, Rule: r.rule, Stage: StageMarks, Object: request.Key, Restore: &request})
	case r.is(restoreForget):
		add(Step{Kind: ForgetRestorePlan, Rule: r.rule, Stage: StageMarks, Object: r.request.Nonce, Restore: &leases.RestoreRequest{}})
	case r.is(restoreSave):
		add(Step{Kind: CreateSnapshot, Rule: r.rule, Stage: StageLate, Object: r.save.Name, Final: true})
	}
}

// describe writes the state of the restore to status.recovery. It writes nothing if no restore is requested.
func (r restore) describe(s *v1alpha1.RecoveryStatus, w RecoveryWish) {
	switch {
	case r.is(restoreRefuse):
		s.Phase, s.Message = v1alpha1.RecoveryRefused, r.refusal()
	case r.group.order.Restores():
		r.describeOrder(s)
	case r.plans():
		s.Phase, s.Message = v1alpha1.RecoveryPlanning,
			"the leader's agent plans to restore "+r.request.Target.String()+". Nothing changes before you approve the plan"
	case r.is(restorePropose):
		s.Phase, s.Message, s.Approve = v1alpha1.RecoveryProposed, "the restore needs your approval: "+r.promise(), w.approval(r.hash)
	case r.is(restoreWait):
		s.Phase, s.Message = v1alpha1.RecoveryWaiting, "the restore is approved, and waits: "+r.busy
	case r.cutsOff():
		s.Phase, s.Message = v1alpha1.RecoverySaving,
			fmt.Sprintf("clients are cut off, and EtcdSnapshot %s becomes the final backup of the present data", r.save.Name)
	case r.rule == "restored":
		s.Phase, s.Message = v1alpha1.RecoveryRecovered, r.restored(s.Last)
	default:
		return
	}
	if failed := r.request.Failed; failed != "" && (r.plans() || r.is(restorePropose|restoreRefuse)) {
		s.Message = AsSentences(failed) + " " + AsSentences(s.Message)
	}
	s.Message = AsSentences(s.Message)
	if r.facts.plan == planMade && r.facts.wanted == rules.Yes && s.Phase != v1alpha1.RecoveryRecovered {
		s.Plan = r.status()
	}
}

// plans says whether the leader's agent has to make a plan, the first one or another one.
func (r restore) plans() bool {
	return r.is(restoreAsk|restoreForget) && r.facts.wanted == rules.Yes || r.is(restoreWait) && r.facts.plan != planMade
}

// describeOrder is describe while an order stands.
func (r restore) describeOrder(s *v1alpha1.RecoveryStatus) {
	switch {
	case r.is(restoreRelease):
		s.Phase, s.Message = v1alpha1.RecoveryPreparing, "the restore is released: "+r.why
	case r.facts.order == restoreOrderExecute:
		s.Phase = v1alpha1.RecoveryExecuting
		s.Message = fmt.Sprintf("member %s restores %s. Its agent reports the progress in status.members", r.group.order.Chosen, r.group.order.Target)
	default:
		s.Phase, s.Message = v1alpha1.RecoveryPreparing, "the members stop etcd for the restore. "+r.group.unacknowledged()
	}
}

// restored says what became of the request.
func (r restore) restored(last *v1alpha1.LastRecovery) string {
	words := fmt.Sprintf("restored %s. You can remove spec.recovery.restore", r.request.Target)
	if last != nil && last.Replaced != "" {
		words += ". To undo it, restore the latest state of lineage " + last.Replaced
	}
	return words
}

// failedSave says why the restore did not begin.
func (r restore) failedSave() string {
	return fmt.Sprintf("the restore did not begin, because EtcdSnapshot %s, the final backup, failed: %s. Correct the cause", r.save.Name, r.save.Message)
}

// interruption says why the approval of the plan does not count any more.
func (r restore) interruption(o Observed) string {
	var names []string
	for _, m := range o.listed() {
		if m.Serving || !m.cutOff(o) {
			names = append(names, m.Name)
		}
	}
	return fmt.Sprintf("the restore did not begin, because the Pod of %s ended, was replaced or served clients after EtcdSnapshot %s, the final backup, began. "+
		"A client can have written since, so your approval does not count any more. Approve the next plan with the command in status.recovery.approve",
		strings.Join(names, ", "), r.save.Name)
}

// refusal says why there is no restore.
func (r restore) refusal() string {
	if r.rule == "plan-failed" {
		return fmt.Sprintf("druid cannot restore %s: %s", r.request.Target, r.plan.Error)
	}
	return "druid cannot restore in place: " + r.obstacle
}

// promise is what the plan does, in words.
func (r restore) promise() string {
	words := fmt.Sprintf("restore %s, up to revision %d of lineage %s", r.request.Target, r.plan.Revision, r.plan.Lineage)
	if n := r.undone(); n > 0 {
		words += fmt.Sprintf("; at least %s are undone", counted(n, "revision"))
	}
	words += "; clients are cut off meanwhile"
	return strings.Join(append([]string{words}, r.plan.Notes...), "; ")
}

func (r restore) status() *v1alpha1.RecoveryPlan {
	s := &v1alpha1.RecoveryPlan{
		Hash: r.hash, Source: v1alpha1.RecoveryFromRestore, Target: r.request.Target.String(), Backup: fmt.Sprintf("%s@%d", r.plan.Lineage, r.plan.Revision),
		Revision: r.plan.Revision, Full: r.plan.Full, Deltas: int32(r.plan.Deltas), Notes: r.plan.Notes,
	}
	if n := r.undone(); n > 0 {
		s.LostRevisions = &n
	}
	if order := r.group.order; order != nil {
		s.Member, s.Hash = order.Chosen, order.Plan
	}
	return s
}
