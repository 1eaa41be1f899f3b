package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// Bounds of a loss without approval, where spec.recovery.maxDataLoss is not set.
const (
	defaultMaxRevisions = 0
	defaultMaxSeconds   = 30
)

// RecoveryWish is what spec.recovery and the annotation of the EtcdCluster request.
type RecoveryWish struct {
	Automatic bool
	// Renewal is how often an agent renews its member Lease. The last renewal before a loss can be as old.
	Renewal time.Duration
	// Expiry is how long after the last renewal of a Lease druid sees at the latest that its member does not serve, if druid runs and the
	// API server responds.
	Expiry time.Duration
	// After is for how long the quorum must be lost before druid plans a recovery.
	After time.Duration
	// MaxRevisions and MaxSeconds are the bounds, nil for none. At least one is set.
	MaxRevisions, MaxSeconds *int64
	// Approved is the hash in the annotation, or empty.
	Approved string
	// Restore is what spec.recovery.restore requests, or nil.
	Restore *leases.RestoreTarget
	// Store identifies the backup store.
	Store string
	// LastEpoch and LastRequest are those of the last recovery in the status. The request is removed there when the spec requests
	// no restore any more, so that the same restore can be requested again.
	LastEpoch   uint32
	LastRequest string
	// Cluster is the UID of the EtcdCluster, for the hash. Namespace and Name are in the command that approves.
	Cluster, Namespace, Name string
}

// unbounded says whether spec.recovery does not limit the writes after the last report.
func (w RecoveryWish) unbounded() bool { return w.Automatic && w.MaxSeconds == nil }

// BoundsOf returns the bounds of spec.recovery.
func BoundsOf(spec *v1alpha1.MaxDataLoss) (revisions, seconds *int64) {
	if spec == nil {
		return new(int64(defaultMaxRevisions)), new(int64(defaultMaxSeconds))
	}
	return spec.Revisions, spec.Seconds
}

// recoveryPlan is the best way to form a raft group again, and what it costs.
type recoveryPlan struct {
	source source
	giveUp []string
	// kept is the revision that the source holds for certain. Entries of its log after that may be no writes, or not committed.
	kept int64
	// revisions and seconds are lost at most, if known.
	revisions, seconds int64
	measured           bool
	// served is when a voter of the raft group renewed its Lease last. No voter does while the quorum is lost, so it identifies the loss. A
	// learner does: it never campaigns, so its etcd does not notice that the leader is gone.
	served time.Time
	// needs are the reasons why the plan needs an approval.
	needs []string
	// highest is the highest revision that any member or backup reported.
	highest int64
	hash    string
}

// recovery is the decision about a lost quorum.
type recovery struct {
	rule    string
	verdict recoveryVerdict
	why     string
	facts   recoveryFacts
	plan    *recoveryPlan
	// obstacle says why no recovery is possible, and what to do.
	obstacle string
	voters   []oldVoter
	// others are members without a vote that are here.
	others []oldVoter
	// unseen are the members with an ID in the raft group, here or away. Those that a list of voters lacks can have got a vote since.
	unseen []oldVoter
	// lists are the known lists of voters, by their IDs.
	lists [][]string
	// removable are the IDs of members that can have been removed since the lists of voters.
	removable []string
	order     *leases.Recovery
	epoch     uint32
}

// is reports whether the decision is one of these.
func (r recovery) is(verdict recoveryVerdict) bool { return r.verdict&verdict != 0 }

// recoveryOf decides about the recovery of the cluster.
func recoveryOf(d Desired, o Observed, listed []Member) recovery {
	r := recovery{order: o.Record.Order()}
	r.facts = recoveryFacts{
		applies:  rules.YesNoOf(recoverable(d, o)),
		corrects: rules.No, quorum: groupQuorum(o, listed), standing: standingNone, acks: acksFew, further: rules.No, chosen: rules.Yes,
		returns: returnsMay, failed: rules.No, otherwise: rules.No, better: rules.No, overdue: rules.YesNoOf(o.QuorumOverdue), obstacle: rules.No, approved: rules.No,
		automatic: rules.No, worse: rules.No,
	}
	if r.facts.applies == rules.Yes {
		r.observe(d, o, listed)
	}
	decision := recoveryRows.Decide(r.facts)
	r.rule, r.verdict, r.why = decision.Rule, decision.Verdict, decision.Why
	if r.rule == ruleCannotExecute {
		r.obstacle = r.failedWords(o, listed)
	}
	return r
}

// recoverable says whether druid may form the raft group of the cluster again.
func recoverable(d Desired, o Observed) bool {
	return wanted(d, o) && o.Record.FormedEpoch > 0 && !o.Record.Leaving
}

// recordBehind says whether a member formed a later raft group than the record names.
func recordBehind(o Observed, listed []Member) bool {
	return slices.ContainsFunc(listed, func(m Member) bool {
		disk := m.diskGroup(o)
		return m.Lease == LeaseOurs && m.Readable && m.Reports.EverFormed() && m.Reports.Epoch > o.Record.FormedEpoch ||
			disk.Epoch > o.Record.FormedEpoch && disk.ClusterID != o.Record.ClusterID
	})
}

// observe fills in the facts of a cluster that druid may recover.
func (r *recovery) observe(d Desired, o Observed, listed []Member) {
	r.epoch = nextEpoch(o)
	if r.order != nil && r.order.Epoch < o.highestPrepared() {
		r.facts.standing, r.order = standingOutdated, nil // its agents wait for a later one
	}
	if r.order != nil {
		r.facts.standing = map[leases.Stage]standing{leases.StagePrepare: standingPrepare, leases.StageExecute: standingExecute}[r.order.Stage]
		r.epoch = r.order.Epoch
	}
	r.facts.corrects = rules.YesNoOf(recordBehind(o, listed) || recordAhead(d, o))
	if r.order.Restores() {
		r.facts.standing = standingRestore
		return
	}
	if r.facts.quorum == rules.Yes {
		return
	}
	r.observeVoters(o, listed)
	r.makePlan(d, o)
	r.comparePlan(d.Recovery, o)
}

// observeVoters fills in what is known of the voters of the old raft group.
func (r *recovery) observeVoters(o Observed, listed []Member) {
	lists := r.observeVoterLists(o, listed)
	if len(r.voters) == 0 {
		lists = r.soleVoter(o, listed)
	}
	r.observeOthers(o, listed)
	r.observeUnseen(o, listed)
	r.lists = lists
	r.facts.acks = r.acknowledged()
	r.facts.chosen = rules.YesNoOf(r.order == nil || r.chosenUsable(listed))
	r.facts.failed = rules.YesNoOf(r.order != nil && r.order.Stage == leases.StageExecute && r.failure() != "")
	r.facts.returns = r.returning(o)
}

// comparePlan compares the plan with what is approved and with the order.
func (r *recovery) comparePlan(w RecoveryWish, o Observed) {
	if r.plan == nil {
		r.facts.obstacle = rules.Yes
		return
	}
	r.facts.approved = rules.YesNoOf(w.Approved != "" && w.Approved == r.plan.hash)
	within := w.Automatic && len(r.plan.needs) == 0
	// Before the agents acknowledge, revisions are estimates from Leases. The bounds are checked again with their disk reports.
	estimated := r.order == nil && r.plan.source.report == nil && r.plan.source.mode == leases.RecoverSurvivor
	r.facts.automatic = rules.YesNoOf(within && (estimated || r.plan.within(w)))
	r.facts.worse = rules.YesNoOf(r.order != nil && r.worse(o))
	r.facts.better = rules.YesNoOf(r.betterThanOrdered(o))
	r.facts.otherwise = rules.YesNoOf(r.order != nil && r.otherwise())
}

// otherwise says whether the plan has another source than the order, or another member for it. Another disk needs no approval of its own,
// because it has the same data.
func (r *recovery) otherwise() bool {
	s, order := r.plan.source, r.order
	switch {
	case s.mode != order.Mode:
		return true
	case s.mode == leases.RecoverBackup:
		return s.lineage != order.Lineage || s.member.Name != order.Chosen
	default:
		return s.instead && r.facts.worse == rules.No
	}
}

// makePlan finds the best source and what it costs. Without a plan, obstacle says why.
func (r *recovery) makePlan(d Desired, o Observed) {
	best, found := r.bestSource(d, o)
	if r.obstacle = r.obstacleTo(best, found, d, o); r.obstacle != "" {
		return
	}
	p := recoveryPlan{source: best}
	if r.order != nil {
		var further []string
		if r.facts.quorum == rules.No { // unknown: they can be back
			further = r.furtherToGiveUp()
		}
		r.facts.further = rules.YesNoOf(len(further) > 0)
		p.giveUp = slices.Sorted(slices.Values(slices.Concat(r.order.GiveUp, further)))
	} else if r.facts.returns == returnsMay {
		names, enough := r.membersToGiveUp(o)
		if !enough {
			r.obstacle = "the members that may still hold their data are a quorum. " + r.away()
			return
		}
		p.giveUp = names
	}
	r.plan = &p
	p.measure(r.ofGroup(), d.Recovery, o)
	p.needs = r.needsApproval(p, d.Recovery, o)
	p.hash = p.digest(o, r.epoch, d.Recovery.Cluster)
}

// measure computes the loss. Times come from different machines, so that they are only an estimate. A reported revision that
// the source does not hold for certain counts as lost.
func (p *recoveryPlan) measure(voters []oldVoter, w RecoveryWish, o Observed) {
	reported := max(o.Full.Reports.Revision, o.Delta.Reports.Revision)
	p.highest, p.kept = reported, p.source.kept
	for _, m := range o.Members {
		if m.Lease != LeaseOurs || !m.Readable || m.Reports.ClusterID != o.Record.ClusterID {
			continue
		}
		p.highest = max(p.highest, m.Reports.Revision)
		if m.Reports.Role != leases.RoleLearner && m.Renewed.After(p.served) {
			p.served = m.Renewed
		}
		if p.source.includes(m.Reports.Raft.Term, m.Reports.Raft.Committed) {
			p.kept = max(p.kept, m.Reports.Revision)
		} else {
			reported = max(reported, m.Reports.Revision)
		}
	}
	p.revisions = max(0, p.reported(voters, reported)-p.kept)
	if done := o.Record.Recovered; done != nil && done.Epoch == o.Record.FormedEpoch {
		p.highest = max(p.highest, done.Revision) // the revision with which the raft group started
	}
	p.measured = p.source.lost == "" && p.highest > 0 && !p.served.IsZero() && !p.source.at.IsZero() && p.source.class == dataIntact
	if p.measured {
		p.seconds = int64((max(0, p.served.Sub(p.source.at)) + w.servedAfter(p.served, o.LostSince) + time.Second - 1) / time.Second)
	}
}

// reported adds the disk reports to what is kept and what was reported, and returns the latter.
func (p *recoveryPlan) reported(voters []oldVoter, reported int64) int64 {
	for _, v := range voters {
		if v.report == nil {
			continue
		}
		last := v.report.Revision + int64(v.report.Tail)
		p.highest = max(p.highest, last)
		switch own := p.source.mode == leases.RecoverSurvivor && v.member.Name == p.source.member.Name; {
		case own: // what it holds is not lost
		case v.report.State == leases.DiskIntact && p.source.includes(v.report.LastTerm, v.report.Last):
			p.kept = max(p.kept, v.report.Revision)
		default:
			reported = max(reported, last)
		}
	}
	return reported
}

// needsApproval lists why the plan needs an approval under the policy Automatic too.
func (r *recovery) needsApproval(p recoveryPlan, w RecoveryWish, o Observed) (needs []string) {
	add := func(format string, args ...any) { needs = append(needs, fmt.Sprintf(format, args...)) }
	if len(p.giveUp) > 0 {
		add("it gives up %s, and your approval asserts that their data is destroyed", strings.Join(p.giveUp, ", "))
	}
	needs = slices.Concat(needs, r.unknownVoters(p.giveUp, o), p.source.doubts(o))
	for _, v := range slices.Concat(r.voters, r.unlisted(r.voters)) {
		if v.known && v.holds == holdsUnknown && p.behind(v.member) && !slices.Contains(p.giveUp, v.member.Name) {
			add("member %s is away and holds more: bring it back first if you can", v.member.Name)
		}
	}
	if names := r.unheard(); p.measured && len(names) > 0 {
		add("members %s did not reach the API server after %s, and the writes that they acknowledged later are not counted", strings.Join(names, ", "),
			p.served.UTC().Format(time.RFC3339))
	}
	if seen := o.LostSince; p.measured && !seen.IsZero() && p.served.Sub(seen) > w.Expiry {
		add("the quorum served after %s, and druid did not see for how long", seen.UTC().Format(time.RFC3339))
	}
	if !p.measured {
		add("the loss is unknown")
	}
	if w.unbounded() {
		add("how many revisions were written after the last report is unknown, and spec.recovery.maxDataLoss does not set seconds")
	}
	if o.RecoveredRecently {
		add("the last recovery was less than ten minutes ago")
	}
	return needs
}

// behind says whether the member reported more than the source holds for certain.
func (p *recoveryPlan) behind(m Member) bool {
	if m.Reports.Revision > p.kept {
		return true
	}
	return p.source.mode == leases.RecoverSurvivor && p.source.report != nil && m.Reports.Raft.Committed > p.source.last // its log ends before
}

// within says whether the loss is within the bounds of spec.recovery. Only a bound of seconds limits what was written after the
// last report.
func (p *recoveryPlan) within(w RecoveryWish) bool {
	return p.measured && (w.MaxRevisions == nil || p.revisions <= *w.MaxRevisions) && w.MaxSeconds != nil && p.seconds <= *w.MaxSeconds
}

// worse says whether the plan costs more than the order permits.
func (r *recovery) worse(observed Observed) bool {
	p, o := r.plan, r.order
	switch {
	case p.source.disputed(observed) && !(o.Disputed && p.source.isOf(o)):
		return true
	case r.facts.automatic == rules.Yes, o.Approved && o.Unmeasured && (p.source.isOf(o) || p.measured && p.source.mode == o.Mode):
		return false // within the bounds of the spec, or you approved a loss that is not known
	case !o.Approved && len(p.needs) > 0:
		return true
	}
	return !p.measured || p.revisions > o.Revisions || p.seconds > o.Seconds
}

// digest is the hash by which a plan is approved. It is about this EtcdCluster, this raft group, this epoch and this loss, so
// that an approval is of no use twice or elsewhere.
func (p *recoveryPlan) digest(o Observed, epoch uint32, uid string) string {
	words := fmt.Sprintf("%s %x %d %s %s %s %d %s %d %d %t %d %t %d", uid, o.Record.ClusterID, epoch, p.source.mode, p.source.member.Name,
		p.source.lineage, p.source.revision, strings.Join(p.giveUp, ","), p.revisions, p.seconds, p.measured, p.source.class, p.source.disputed(o),
		p.served.UnixMicro())
	sum := sha256.Sum256([]byte(words))
	return hex.EncodeToString(sum[:6])
}
