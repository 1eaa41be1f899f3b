package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// RestoreLimit is how long an order to restore in place stands, and how long its final backup may take. It holds a backup of some
// 8 GiB at 5 MB/s.
const RestoreLimit = 30 * time.Minute

// restore is the decision about a restore in place.
type restore struct {
	rule    string
	verdict restoreVerdict
	why     string
	facts   restoreFacts
	// group is what is known of the voters. Its order is the one to restore that stands, or nil.
	group recovery
	// lineage is that of the record.
	lineage string
	// request for the plan, as the spec and the record have it, and the plan in the record.
	request leases.RestoreRequest
	plan    leases.RestorePlan
	hash    string
	// obstacle says why no restore is possible, and busy what it waits for.
	obstacle, busy string
	save           Save
}

// is reports whether the decision is one of these.
func (r restore) is(verdict restoreVerdict) bool { return r.verdict&verdict != 0 }

// cutsOff says whether no client is to be sent to any member before the order is written. After that, the phase of the record says so.
func (r restore) cutsOff() bool { return r.is(restoreCutOff | restoreSave | restorePrepare) }

// restoreOf decides about spec.recovery.restore.
func restoreOf(d Desired, o Observed, listed []Member) restore {
	pausing := d.Replicas == 0
	r := restore{group: recovery{order: o.Record.Order(), epoch: nextEpoch(o)}, lineage: o.Record.Lineage, save: o.RestoreSave}
	if r.group.order.Restores() {
		d.Replicas = max(d.Replicas, 1) // a cluster that is to be paused must not stay stopped by the order
	}
	r.facts = restoreFacts{
		applies: rules.YesNoOf(recoverable(d, o)), corrects: rules.YesNoOf(recordBehind(o, listed) || recordAhead(d, o)), order: restoreOrderNone, wanted: rules.No,
		overdue: rules.YesNoOf(o.RestoreOverdue), chosen: rules.Yes, failed: rules.No, acks: acksFew, done: rules.No, quorum: groupQuorum(o, listed),
		obstacle: rules.No, plan: planUnasked, approved: rules.No, busy: rules.No, clients: clientsOf(o), saved: max(SaveUnasked, o.RestoreSave.State),
	}
	if r.facts.applies == rules.Yes {
		r.observeRequest(d, o)
		r.observeOrder(o, listed)
		r.facts.wanted = rules.YesNoOf(r.facts.wanted == rules.Yes && !pausing)
		r.observeMembers(d, o, listed)
	}
	decision := restoreRows.Decide(r.facts)
	r.rule, r.verdict, r.why = decision.Rule, decision.Verdict, decision.Why
	return r
}

// RestoreApproved says whether druid must know the final backup: a plan for the request is approved, and no order stands.
func RestoreApproved(d Desired, o Observed) bool {
	r := restoreOf(d, o, o.listed())
	return r.facts.order == restoreOrderNone && r.facts.wanted == rules.Yes && r.facts.done == rules.No && r.facts.approved == rules.Yes
}

// RestoreCutsOff says whether clients are cut off for a restore, or are to be, before its order is written. Pods with the mark of the
// request count also while the decision waits for something else.
func RestoreCutsOff(d Desired, o Observed) bool {
	r := restoreOf(d, o, o.listed())
	return r.cutsOff() || r.facts.order == restoreOrderNone && r.facts.clients&clientsMarked != 0
}

// observeRequest compares what the spec requests with the request and the plan in the record.
func (r *restore) observeRequest(d Desired, o Observed) {
	asked, w := o.Record.Restore, d.Recovery
	if w.Restore != nil {
		r.facts.wanted = rules.Yes
		r.request = leases.RestoreRequest{
			Key: restoreKey(w), ClusterID: leases.FormatID(o.Record.ClusterID), Target: *w.Restore, Known: highestRevision(o),
		}
		if done := o.Record.Recovered; done != nil && done.Request == r.request.Key {
			r.facts.done = rules.YesNoOf(w.LastEpoch < done.Epoch || w.LastRequest == done.Request)
		}
	}
	switch {
	case asked.Request.Nonce == "", w.Restore != nil && (asked.Request.Key != r.request.Key || asked.Request.ClusterID != r.request.ClusterID):
		return
	case asked.Plan.Final():
		r.facts.plan = planMade
	case asked.Plan.Error != "":
		r.facts.plan = planFailed
	default:
		r.facts.plan = planAwaited
	}
	r.request, r.plan = asked.Request, asked.Plan
	r.hash = r.digest(o.Record.ClusterID, w.Cluster)
	r.facts.approved = rules.YesNoOf(r.facts.plan == planMade && w.Approved == r.hash)
}

// restoreKey identifies what is requested: the EtcdCluster, the backup store and the target.
func restoreKey(w RecoveryWish) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %d", w.Cluster, w.Store, w.Restore.Lineage, w.Restore.Revision, w.Restore.Time.Unix()))
	return hex.EncodeToString(sum[:6])
}

// digest is the hash by which the plan is approved. It covers the EtcdCluster, the raft group, the epoch and the plan, so that an
// approval is of no use twice or elsewhere.
func (r *restore) digest(cluster uint64, uid string) string {
	words := fmt.Appendf(nil, "restore %s %x %d %s %s %s %d %v", uid, cluster, r.group.epoch, r.request.Nonce, r.plan.Lineage, r.plan.Full,
		r.plan.Revision, r.plan.Notes)
	sum := sha256.Sum256(words)
	return hex.EncodeToString(sum[:6])
}

// observeOrder finds how far the order in the record is carried out.
func (r *restore) observeOrder(o Observed, listed []Member) {
	order := r.group.order
	switch {
	case order == nil:
		return
	case !order.Restores(), order.Epoch < o.highestPrepared():
		r.facts.order, r.group.order = restoreOrderOther, nil
		return
	}
	r.facts.order = map[leases.Stage]restoreOrder{leases.StagePrepare: restoreOrderPrepare, leases.StageExecute: restoreOrderExecute}[order.Stage]
	r.facts.wanted = rules.YesNoOf(r.facts.wanted == rules.Yes && r.request.Key == order.Request)
	r.group.observeVoters(o, listed)
	r.facts.acks = r.group.facts.acks
	r.facts.chosen = r.group.facts.chosen
	r.facts.failed = rules.YesNoOf(r.failure(order) != "")
	_, found := r.restorer()
	unable := order.Stage == leases.StagePrepare && r.facts.acks == acksEnough && !found
	away := order.Stage == leases.StageExecute && slices.ContainsFunc(listed, func(m Member) bool { return m.Name == order.Chosen && m.NodeLost })
	if unable || away {
		r.facts.chosen = rules.No
	}
}

// failure is what the selected member reports about an order that it cannot carry out.
func (r *restore) failure(order *leases.Recovery) leases.RestoreFailure {
	for _, v := range r.group.voters {
		if v.known && v.member.Name == order.Chosen && v.acknowledged {
			return v.report.Failed
		}
	}
	return ""
}

// restorer is the member that restores the backup: the one that the order names, or else the one with most free space.
func (r *restore) restorer() (oldVoter, bool) {
	able := slices.DeleteFunc(slices.Clone(r.group.voters), func(v oldVoter) bool { return !v.known || !v.acknowledged || !v.canRestore() })
	if len(able) == 0 {
		return oldVoter{}, false
	}
	return slices.MaxFunc(able, func(a, b oldVoter) int {
		if a.member.Name == r.group.order.Chosen || b.member.Name == r.group.order.Chosen {
			return cmp.Compare(chosenFirst(a, r.group.order), chosenFirst(b, r.group.order))
		}
		return cmp.Compare(a.report.Free, b.report.Free)
	}), true
}

func chosenFirst(v oldVoter, order *leases.Recovery) int {
	if v.member.Name == order.Chosen {
		return 1
	}
	return 0
}

// observeMembers finds what prevents a restore, and what it waits for.
func (r *restore) observeMembers(d Desired, o Observed, listed []Member) {
	switch {
	case !d.Backup:
		r.obstacle = "spec.backup is not set, and a restore in place reads from its store"
	case hasExternals(o.Record):
		r.obstacle = "the raft group has external members, which druid cannot stop. Wait until they left it"
	case r.group.epoch == 0:
		r.obstacle = "a Lease reports the largest epoch, and a new raft group needs a larger one. Restore into a new EtcdCluster with spec.bootstrap.restore"
	}
	r.facts.obstacle = rules.YesNoOf(r.obstacle != "")
	r.busy = changing(d, o, listed)
	r.facts.busy = rules.YesNoOf(r.busy != "")
}

// clientsOf says whether clients are cut off. Only the mark on a Pod proves that: a druid that another one replaced could still write
// the label of a Pod as it was before, but not that of a Pod that changed since, or that has the mark of the request in the record.
func clientsOf(o Observed) clientsCut {
	marked, others := false, false
	for _, m := range o.Members {
		if m.Pod&(PodEnded|PodAbsent|PodForeign) != 0 {
			continue
		}
		marked = marked || m.cutOff(o)
		others = others || !m.cutOff(o) || m.Serving
	}
	switch {
	case !marked:
		return clientsServed
	case others:
		return clientsPartly
	default:
		return clientsNone
	}
}

// cutOff says whether the Pod has the mark of the request in the record, which is about the present raft group.
func (m Member) cutOff(o Observed) bool {
	r := o.Record.Restore.Request
	return r.Nonce != "" && m.CutFor == r.Nonce && r.ClusterID == leases.FormatID(o.Record.ClusterID)
}

// CutFor is the mark of the Pods of a cluster whose clients are cut off for a restore in place, or empty.
func (e Evaluation) CutFor() string {
	if !e.restore.cutsOff() {
		return ""
	}
	return e.restore.request.Nonce
}

// changing says which change of the members a restore waits for.
func changing(d Desired, o Observed, listed []Member) string {
	if o.Record.PendingRemoval != nil {
		return "member " + o.Record.PendingRemoval.Member + " is being removed"
	}
	if o.Record.Replacing != nil {
		return "member " + o.Record.Replacing.Member + " is being replaced"
	}
	for _, m := range listed {
		switch {
		case m.Pod != PodLive || m.NodeLost:
		case m.Lease == LeaseOurs && m.Liveness&(leases.Stale|leases.Never) != 0:
			return "the agent of member " + m.Name + " does not report, so that it could not stop its etcd"
		case m.Agent != AgentCurrent:
			return "the agent of member " + m.Name + " is being updated"
		case m.Lease == LeaseOurs && m.Readable && m.Reports.Version != "" && m.Reports.Version != d.Version:
			return fmt.Sprintf("member %s runs etcd %s, and the spec requests %s", m.Name, m.Reports.Version, d.Version)
		}
	}
	return ""
}

// highestRevision is the highest revision that a member or a backup reported, or that a volume can hold.
func highestRevision(o Observed) int64 {
	highest := max(o.Full.Reports.Revision, o.Delta.Reports.Revision)
	for _, m := range o.Members {
		if m.Lease != LeaseOurs || !m.Readable {
			continue
		}
		highest = max(highest, m.Reports.Revision)
		if c := m.Reports.Disk; c != nil {
			highest = max(highest, c.Revision+int64(c.Tail))
		}
	}
	return highest
}
