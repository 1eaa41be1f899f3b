package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// QuorumLost reports whether no voter serves, as far as druid knows, so that the time until a recovery runs.
func QuorumLost(d Desired, o Observed) bool {
	if o.Record.Order().Restores() {
		return false // etcd is stopped on purpose
	}
	return wanted(d, o) && groupQuorum(o, o.listed()) == rules.No
}

// wanted says whether the cluster has or had a raft group that is to serve. An order ends before the cluster is paused: its members stopped
// etcd, and only a formed cluster can be paused.
func wanted(d Desired, o Observed) bool {
	return !d.Deleted && (d.Replicas > 0 || o.Record.Order() != nil) && o.RecordState&(RecordFormed|RecordRecovering) != 0
}

// recoveryStep writes the order of a recovery to the record, or removes it.
func (e Evaluation) recoveryStep() (Step, bool) {
	r := e.recovery
	step := Step{Rule: r.rule, Stage: StageRecord, Irreversible: true}
	switch {
	case r.is(recoverPrepare):
		order := r.ordered(e.Observed, e.Desired.Recovery)
		step.Kind, step.Member, step.Object, step.Recovery = PrepareRecovery, order.Chosen, r.plan.hash, &order
	case r.is(recoverExecute) && r.plan.source.report != nil:
		order := *r.order
		order.Report, order.Known, order.Plan = r.plan.source.report.Digest(), max(order.Known, r.plan.highest), r.plan.hash
		order.GiveUp = r.stillGivenUp(r.plan.giveUp)
		if r.facts.approved == rules.Yes { // you approved this plan while the order stood
			order.Approved, order.Unmeasured, order.Disputed = true, !r.plan.measured, r.plan.source.disputed(e.Observed)
			order.Revisions, order.Seconds = r.plan.revisions, r.plan.seconds
		}
		r.plan.source.fill(&order)
		step.Kind, step.Member, step.Object, step.Recovery = ExecuteRecovery, order.Chosen, r.order.Name()+" "+order.Report, &order
	case r.is(recoverRelease):
		step.Kind, step.Epoch = ReleaseRecovery, e.highestPrepared()
		if order := e.Record.Order(); order != nil {
			step.Object = order.Name()
		}
	default:
		return Step{}, false
	}
	return step, true
}

// highestPrepared is the highest epoch that an agent wrote to its volume.
func (o Observed) highestPrepared() (epoch uint32) {
	for _, m := range o.Members {
		if c := m.Reports.Disk; c != nil {
			epoch = max(epoch, c.Prepared)
		}
	}
	return epoch
}

// ChangeRecovery applies the step to a record that was just read. It returns false if the record is not what the plan saw.
func (s Step) ChangeRecovery(record leases.Record, nonce string) (leases.Record, bool) {
	var err error
	switch {
	case s.Kind == PrepareRecovery:
		if s.Restore != nil && record.Restore.Request.Nonce != s.Restore.Nonce {
			return record, false // clients were cut off for another request
		}
		order := *s.Recovery
		order.Nonce = nonce
		record, err = record.Prepare(order)
	case s.Kind == ExecuteRecovery:
		record, err = record.Execute(*s.Recovery)
	case s.Object != "":
		record, err = record.Release(s.Object)
	default:
		record, err = record.ReleaseUpTo(s.Epoch)
	}
	return record, err == nil
}

// RestoreRecord returns the record as the plan made it again, with what only the record knows. It returns false if the phase changed
// since the plan saw it.
func (s Step) RestoreRecord(record leases.Record, seen leases.Phase) (leases.Record, bool) {
	if record.Phase != seen {
		return record, false
	}
	made := *s.Record
	made.Members = slices.Compact(slices.Sorted(slices.Values(slices.Concat(made.Members, record.Members))))
	made.Replacing, made.PendingRemoval = record.Replacing, record.PendingRemoval
	made.MemberList, made.Leaving, made.Released = record.MemberList, record.Leaving, record.Released
	if record.Lineage == made.Lineage {
		made.Fork = record.Fork
	}
	if record.ClusterID != made.ClusterID { // they are about the raft group before
		made.MemberList, made.Replacing, made.PendingRemoval = nil, nil, nil
	}
	return made, true
}

// recoveryProblem is that of a lost quorum about which you must act.
func recoveryProblem(r recovery) (Problem, bool) {
	switch {
	case r.is(recoverPropose):
		return Problem{Reason: v1alpha1.ReasonRecoveryProposed,
			Message: "the quorum is lost, and the plan in status.recovery needs your approval: " + r.plan.words()}, true
	case r.is(recoverRefuse):
		return Problem{Reason: v1alpha1.ReasonRecoveryRefused, Message: "the quorum is lost, and druid cannot recover it: " + r.obstacle}, true
	}
	return Problem{}, false
}

// words describe the plan and its loss.
func (p *recoveryPlan) words() string {
	from := fmt.Sprintf("form the cluster again from the disk of member %s", p.source.member.Name)
	if p.source.mode == leases.RecoverBackup {
		from = fmt.Sprintf("restore the backup of lineage %s up to revision %d on member %s", p.source.lineage, p.source.revision, p.source.member.Name)
	}
	words := []string{from}
	if p.measured { // else the needs say that the loss is unknown
		words = append(words, fmt.Sprintf("at most %s and %s of writes are lost", counted(p.revisions, "revision"), counted(p.seconds, "second")))
	}
	return strings.Join(append(words, p.needs...), "; ")
}

// recoveryStatus is status.recovery. It is absent as long as no quorum was lost.
func recoveryStatus(e Evaluation, before *v1alpha1.RecoveryStatus, now metav1.Time) *v1alpha1.RecoveryStatus {
	s := v1alpha1.RecoveryStatus{Last: lastRecovery(e, before, now)}
	e.recovery.describe(&s, e.Desired.Recovery)
	if s.Phase == "" {
		e.restore.describe(&s, e.Desired.Recovery)
	}
	if s.Phase == "" && e.recovery.keeps(before, e.Desired.Recovery) {
		last := s.Last
		s = *before
		s.Last = last
	}
	if s.Phase == "" && s.Last != nil {
		s.Phase = v1alpha1.RecoveryRecovered
		s.Message = AsSentences(fmt.Sprintf("member %s formed the cluster again with epoch %d", s.Last.Member, s.Last.Epoch))
	}
	if s.Phase == "" {
		return nil
	}
	if since := e.LostSince; !since.IsZero() && e.recovery.facts.quorum != rules.Yes {
		s.LostSince = &metav1.Time{Time: since}
	}
	return &s
}

// lastRecovery is the last recovery that formed a raft group, nil for none.
func lastRecovery(e Evaluation, before *v1alpha1.RecoveryStatus, now metav1.Time) (last *v1alpha1.LastRecovery) {
	if before != nil {
		last = before.Last
	}
	if done := e.Record.Recovered; done != nil && e.RecordState == RecordFormed && (last == nil || last.Epoch < int64(done.Epoch)) {
		last = &v1alpha1.LastRecovery{
			Epoch: int64(done.Epoch), Source: v1alpha1.RecoverySource(done.Mode), Member: done.Member, Revision: done.Revision, At: now,
			Request: done.Request, Replaced: done.Replaced,
		}
		if fork := e.Record.Fork; fork != nil {
			last.Parent, last.Fork = fork.Parent, fork.Revision
		}
	}
	if last != nil && last.Request != "" && e.Desired.Recovery.Restore == nil {
		last = last.DeepCopy()
		last.Request = ""
	}
	return last
}

// keeps says whether the status of a lost quorum stays as it was: druid does not know whether the quorum returned, or it could not carry out a
// step that it began.
func (r recovery) keeps(before *v1alpha1.RecoveryStatus, w RecoveryWish) bool {
	if before == nil || r.facts.applies == rules.No || r.facts.quorum == rules.Yes {
		return false
	}
	ofLoss := []v1alpha1.RecoveryPhase{v1alpha1.RecoveryWaiting, v1alpha1.RecoveryProposed, v1alpha1.RecoveryRefused}
	return before.LostSince != nil || w.Restore == nil && slices.Contains(ofLoss, before.Phase)
}

func (r recovery) describe(s *v1alpha1.RecoveryStatus, w RecoveryWish) {
	lost := r.facts.applies == rules.Yes && r.facts.quorum == rules.No
	switch {
	case r.is(recoverRefuse):
		s.Phase, s.Message = v1alpha1.RecoveryRefused, r.obstacle
	case r.facts.standing == standingExecute && r.verdict != recoverRelease:
		s.Phase, s.Message = v1alpha1.RecoveryExecuting,
			fmt.Sprintf("member %s forms the cluster again. Its agent reports the progress in status.members", r.order.Chosen)
	case r.is(recoverPropose):
		s.Phase, s.Message = v1alpha1.RecoveryProposed, r.plan.words()
		if r.facts.further == rules.Yes {
			s.Message += ". " + r.unacknowledged()
		}
		s.Approve = w.approval(r.plan.hash)
	case r.facts.standing == standingPrepare && r.verdict != recoverRelease:
		s.Phase, s.Message = v1alpha1.RecoveryPreparing, "the members stop etcd and report what they hold. "+r.unacknowledged()
	case !lost || r.verdict != recoverWait:
		return
	default:
		s.Phase, s.Message = v1alpha1.RecoveryWaiting,
			fmt.Sprintf("the quorum is lost. druid plans a recovery if it stays lost for %d s (spec.recovery.afterSeconds)", int(w.After.Seconds()))
		return
	}
	s.Message = AsSentences(s.Message)
	if r.plan != nil {
		s.Plan = r.plan.status()
	}
}

// approval is the command that approves a plan.
func (w RecoveryWish) approval(hash string) string {
	return fmt.Sprintf("kubectl annotate etcdcluster --namespace %s %s --overwrite %s=%s", w.Namespace, w.Name, v1alpha1.RecoverAnnotation, hash)
}

// unacknowledged names the members for whose acknowledgement druid waits.
func (r recovery) unacknowledged() string {
	var names []string
	for _, p := range slices.Concat(r.voters, r.unseen) {
		switch {
		case p.closed:
		case p.known:
			names = append(names, p.member.Name)
		case r.facts.acks == acksFew:
			names = append(names, "a member with ID "+p.id)
		}
	}
	for _, p := range r.others {
		if r.awaits(p) {
			names = append(names, p.member.Name)
		}
	}
	if len(names) == 0 {
		return "All members acknowledged"
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return "Not acknowledged yet: " + strings.Join(names, ", ")
}

func (p *recoveryPlan) status() *v1alpha1.RecoveryPlan {
	s := &v1alpha1.RecoveryPlan{Hash: p.hash, Source: v1alpha1.RecoverySource(p.source.mode), Member: p.source.member.Name, Revision: p.kept, GiveUp: p.giveUp}
	if p.source.mode == leases.RecoverBackup {
		s.Backup = fmt.Sprintf("%s@%d", p.source.lineage, p.source.revision)
	}
	if p.measured {
		s.LostRevisions, s.LostSeconds = &p.revisions, &p.seconds
	}
	return s
}

// recoveryMessage is that of condition Progressing while an order stands.
func recoveryMessage(p messageContext) string {
	o := p.Record.Order()
	switch {
	case o == nil:
		return "the cluster record names no recovery order that is in effect"
	case o.Stage == leases.StageExecute:
		return fmt.Sprintf("member %s forms the cluster again, from %s", o.Chosen,
			map[leases.RecoveryMode]string{leases.RecoverSurvivor: "its disk", leases.RecoverBackup: "the backup store",
				leases.RecoverRestore: "the backup store"}[o.Mode])
	default:
		return "the members stop etcd and report what they hold, before one of them forms the cluster again"
	}
}

// ordered is the order that carries out the plan.
func (r *recovery) ordered(o Observed, w RecoveryWish) leases.Recovery {
	p := r.plan
	order := leases.Recovery{
		Epoch: nextEpoch(o), GiveUp: r.stillGivenUp(p.giveUp), Known: p.highest, Plan: p.hash,
		Revisions: p.revisions, Seconds: p.seconds, Unmeasured: !p.measured, Disputed: p.source.disputed(o), Approved: r.facts.approved == rules.Yes,
	}
	p.source.fill(&order)
	if r.order != nil { // it inherits what was approved
		order.Epoch = max(order.Epoch, r.order.Epoch+1)
		order.Approved, order.Unmeasured = r.order.Approved, r.order.Unmeasured && p.source.isOf(r.order)
		order.Disputed = r.order.Disputed && p.source.isOf(r.order)
		if order.Unable = r.order.Unable; p.source.instead {
			order.Unable = append(slices.Clone(order.Unable), r.order.Chosen)
		}
		if known := r.order.Unmeasured && !order.Unmeasured && order.Mode == r.order.Mode; !known { // else the loss that is known now is the limit
			order.Revisions, order.Seconds = r.order.Revisions, r.order.Seconds
		}
	} else if r.facts.approved == rules.No && w.Automatic {
		order.Revisions, order.Seconds = unbounded, unbounded
		if w.MaxRevisions != nil {
			order.Revisions = *w.MaxRevisions
		}
		if w.MaxSeconds != nil {
			order.Seconds = *w.MaxSeconds
		}
	}
	return order
}

// unbounded is the bound of a loss that spec.recovery.maxDataLoss does not limit.
const unbounded = 1<<53 - 1
