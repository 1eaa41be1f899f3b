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
	return !d.Deleted && d.Replicas > 0 && o.RecordState&(RecordFormed|RecordRecovering) != 0 && groupQuorum(o, o.listed()) == rules.No
}

// recoveryStep writes the order of a recovery to the record, or removes it.
func (e Evaluation) recoveryStep() (Step, bool) {
	r := e.recovery
	step := Step{Rule: r.rule, Stage: StageRecord, Irreversible: true}
	switch {
	case r.is(recoverPrepare) && r.plan != nil:
		order := r.ordered(e.Observed, "", e.Desired.Recovery)
		step.Kind, step.Member, step.Object, step.Recovery = PrepareRecovery, order.Chosen, r.plan.hash, &order
	case r.is(recoverExecute) && r.plan != nil && r.plan.source.claim != nil:
		order := *r.order
		order.Mode, order.Chosen, order.Claim = r.plan.source.mode, r.plan.source.member.Name, r.plan.source.claim.Digest()
		order.Known, order.Plan = max(order.Known, r.plan.highest), r.plan.hash
		order.Lineage, order.Revision = "", 0
		if order.Mode == leases.RecoverBackup {
			order.Lineage, order.Revision = r.plan.source.lineage, r.plan.source.revision
		}
		step.Kind, step.Member, step.Object, step.Recovery = ExecuteRecovery, order.Chosen, r.order.Name()+" "+order.Claim, &order
	case r.is(recoverRelease):
		step.Kind, step.Epoch = ReleaseRecovery, e.highestPrepared()
		if r.order != nil {
			step.Object = r.order.Name()
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
		order := *s.Recovery
		order.Nonce = nonce
		record, err = record.Prepare(order)
	case s.Kind == ExecuteRecovery:
		name, _, _ := strings.Cut(s.Object, " ")
		record, err = record.Execute(name, *s.Recovery)
	case s.Object != "":
		record, err = record.Release(s.Object)
	default:
		record, err = record.ReleaseUpTo(s.Epoch)
	}
	return record, err == nil
}

// recoveryProblem is that of a lost quorum about which you must act.
func recoveryProblem(r recovery) (Problem, bool) {
	switch {
	case r.is(recoverPropose) && r.plan != nil:
		return Problem{Reason: v1alpha1.ReasonRecoveryProposed, Message: "the quorum is lost, and the plan in status.recovery needs your approval: " + r.plan.words()}, true
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
	loss := "the loss is unknown"
	if p.measured {
		loss = fmt.Sprintf("at most %s and %s of writes are lost", plural(p.revisions, "revision"), plural(p.seconds, "second"))
	}
	words := from + "; " + loss
	if len(p.needs) > 0 {
		words += "; " + strings.Join(p.needs, "; ")
	}
	return words
}

func plural(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// recoveryStatus is status.recovery. It is absent as long as no quorum was lost.
func recoveryStatus(e Evaluation, before *v1alpha1.RecoveryStatus, now metav1.Time) *v1alpha1.RecoveryStatus {
	s := v1alpha1.RecoveryStatus{}
	if before != nil {
		s.Last = before.Last
	}
	if done := e.Record.Recovered; done != nil && e.RecordState == RecordFormed && (s.Last == nil || s.Last.Epoch < int64(done.Epoch)) {
		s.Last = &v1alpha1.LastRecovery{
			Epoch: int64(done.Epoch), Source: v1alpha1.RecoverySource(done.Mode), Member: done.Member, Parent: done.Parent, Fork: done.Fork, Revision: done.Revision, At: now,
		}
	}
	e.recovery.describe(&s, e.Desired.Recovery)
	if s.Phase == "" && s.Last != nil {
		s.Phase = v1alpha1.RecoveryRecovered
		s.Message = AsSentences(fmt.Sprintf("member %s formed the cluster again with epoch %d", s.Last.Member, s.Last.Epoch))
	}
	if s.Phase == "" {
		return nil
	}
	return &s
}

func (r recovery) describe(s *v1alpha1.RecoveryStatus, w RecoveryWish) {
	lost := r.facts.applies == rules.Yes && r.facts.quorum == rules.No
	switch {
	case r.facts.standing == standingExecute && r.verdict != recoverRelease:
		s.Phase, s.Message = v1alpha1.RecoveryExecuting, fmt.Sprintf("member %s forms the cluster again. Its agent reports the progress in status.members", r.order.Chosen)
	case r.is(recoverPropose) && r.plan != nil:
		s.Phase, s.Message = v1alpha1.RecoveryProposed, r.plan.words()
		s.Approve = fmt.Sprintf("kubectl annotate etcdcluster --namespace %s %s --overwrite %s=%s", w.Namespace, w.Name, v1alpha1.RecoverAnnotation, r.plan.hash)
	case r.is(recoverRefuse):
		s.Phase, s.Message = v1alpha1.RecoveryRefused, r.obstacle
	case r.facts.standing == standingPrepare && r.verdict != recoverRelease:
		s.Phase, s.Message = v1alpha1.RecoveryPreparing, "the members stop etcd and report what they hold. "+r.unacknowledged()
	case !lost:
		return
	case r.rule == "majority-may-return":
		s.Phase, s.Message = v1alpha1.RecoveryWaiting, r.obstacle
	case r.rule == "not-yet":
		s.Phase, s.Message = v1alpha1.RecoveryWaiting, "the quorum is lost. druid plans a recovery when it stays lost for spec.recovery.afterSeconds"
		return
	default:
		return
	}
	s.Message = AsSentences(s.Message)
	if r.plan != nil {
		s.Plan = r.plan.status()
	}
}

// unacknowledged names the members for whose acknowledgement druid waits.
func (r recovery) unacknowledged() string {
	var names []string
	for _, p := range r.parts {
		if !p.closed && p.known {
			names = append(names, p.member.Name)
		}
	}
	if len(names) == 0 {
		return "All members acknowledged"
	}
	slices.Sort(names)
	return "Not acknowledged yet: " + strings.Join(names, ", ")
}

func (p *recoveryPlan) status() *v1alpha1.RecoveryPlan {
	s := &v1alpha1.RecoveryPlan{Hash: p.hash, Source: v1alpha1.RecoverySource(p.source.mode), Member: p.source.member.Name, Revision: p.source.revision, GiveUp: p.giveUp}
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
		return fmt.Sprintf("member %s forms the cluster again, from %s", o.Chosen, map[leases.RecoveryMode]string{leases.RecoverSurvivor: "its disk", leases.RecoverBackup: "the backup store"}[o.Mode])
	default:
		return "the members stop etcd and report what they hold, before one of them forms the cluster again"
	}
}
