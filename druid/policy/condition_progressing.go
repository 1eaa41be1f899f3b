package policy

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// progress is what is in progress in the cluster.
type progress uint8

const (
	progressNone      progress = 1 << iota
	progressRepairing          // a member that was in the cluster is not a ready voter
	progressJoining            // a member that never was in the cluster is to join
	progressShared             // none, but the members of the joined raft group stay
	progressParting            // none, but the members of the joined raft group leave
	progressLeaving            // the EtcdCluster is deleted, and its members leave the group that they joined
)

func (p progress) String() string {
	return rules.Word(p, "none", "repairing", "joining", "external members remain", "external members leave", "all leave the joined cluster")
}

// shrinking is what happens to the names in excess of replicas, and to the member that a user lets druid replace.
type shrinking uint8

const (
	shrinkingNone           shrinking = 1 << iota // there are none
	shrinkingGoes                                 // one leaves, or is about to
	shrinkingBlocked                              // one is to, and another member hinders it
	shrinkingReplaces                             // a new member joins, and then the member that it replaces leaves
	shrinkingReplaceBlocked                       // another member hinders that
)

func (s shrinking) String() string {
	return rules.Word(s, "none", "one leaves", "one is blocked", "one is replaced", "one cannot be replaced")
}

// awaits says whether the repair of a lost quorum waits for you.
type awaits uint8

const (
	awaitsNothing  awaits = 1 << iota // it does not, or no quorum was lost
	awaitsApproval                    // a plan needs your approval
	awaitsRepair                      // druid has no plan before you act
)

func (a awaits) String() string {
	return rules.Word(a, "needs nothing of you", "plan needs your approval", "needs your repair")
}

func awaitsOf(r recovery) awaits {
	switch {
	case r.is(recoverPropose):
		return awaitsApproval
	case r.is(recoverRefuse):
		return awaitsRepair
	default:
		return awaitsNothing
	}
}

// progressingRows decide condition Progressing.
var progressingRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "leaves-joined-cluster", When: conditionFacts{progress: progressLeaving},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonLeavingJoinedCluster}},
	{Name: "record-blocked", When: conditionFacts{record: RecordForeign | RecordUnreadable},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonClusterRecordInvalid}},
	{Name: "paused", When: conditionFacts{resting: restingPaused}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPaused}},
	{Name: "pause-begins", When: conditionFacts{resting: restingBegins}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonPausing}},
	{Name: "pause-blocked", When: conditionFacts{resting: restingBlocked}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPauseBlocked}},
	{Name: "recovery-proposed", When: conditionFacts{record: RecordAbsent | usableRecord, awaits: awaitsApproval},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonRecoveryProposed}},
	{Name: "recovery-refused", When: conditionFacts{record: RecordAbsent | usableRecord, awaits: awaitsRepair},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonRecoveryRefused}},
	{Name: "recovers", When: conditionFacts{record: RecordRecovering}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonRecovering}},
	{Name: "group-not-formed", When: conditionFacts{record: RecordAbsent | RecordForming, formed: rules.No},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonForming}},
	{Name: "resumes", When: conditionFacts{record: usableRecord, quorumState: quorumStateLost | quorumStateUnclear, resting: restingResumes},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonResuming}},
	{Name: "member-leaves", When: conditionFacts{record: RecordAbsent | usableRecord, shrinking: shrinkingGoes},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonScalingDown}},
	{Name: "member-cannot-leave", When: conditionFacts{record: RecordAbsent | usableRecord, shrinking: shrinkingBlocked},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonScaleDownBlocked}},
	{Name: "member-replaced", When: conditionFacts{record: RecordAbsent | usableRecord, shrinking: shrinkingReplaces},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonReplacingMember}},
	{Name: "member-cannot-be-replaced", When: conditionFacts{record: RecordAbsent | usableRecord, shrinking: shrinkingReplaceBlocked},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonReplaceBlocked}},
	{Name: "pods-outdated", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: rollingGoes},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonRollingUpdate}},
	{Name: "version-changes", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: rollingUpgrades},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonUpgrading}},
	{Name: "pods-outdated-blocked", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: rollingBlocked},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonRollingUpdateBlocked}},
	{Name: "version-changes-blocked", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing,
		rolling: rollingUpgradeBlocked},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonUpgradeBlocked}},
	{Name: "agents-outdated", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: agentsGo},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonUpdatingAgents}},
	{Name: "agents-outdated-blocked", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing,
		rolling: agentsBlocked},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAgentUpdateBlocked}},
	{Name: "member-repaired", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressRepairing},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonRepairingMember}},
	{Name: "members-join", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressJoining},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonScalingUp}},
	{Name: "external-members-remain", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressShared},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonExternalMembersPresent}},
	{Name: "external-members-leave", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressParting},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonRemovingExternalMembers}},
	{Name: "up-to-date", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone, shrinking: shrinkingNone, rolling: rollingNone},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonReconciled}},
})

// overdueRules decide how condition Progressing changes when druid must not act, when the deadline has passed, or when no member has
// begun the bootstrap. An empty reason leaves the condition as progressingRows decide it.
var overdueRules = rules.New(conditionVerdict{}, []rules.Row[overdueFacts, conditionVerdict]{
	{Name: "hands-off", When: overdueFacts{handsOff: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonHandsOff}},
	{Name: "record-not-usable", When: overdueFacts{record: RecordForeign | RecordUnreadable}, Verdict: conditionVerdict{"", ""},
		Why: "the condition shows what is in progress"},
	{Name: "bootstrap-failed", When: overdueFacts{record: RecordAbsent | RecordForming, wasFormed: rules.No, expired: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBootstrapFailed}},
	{Name: "waiting-for-seed", When: overdueFacts{record: RecordAbsent | RecordForming, wasFormed: rules.No, expired: rules.No, claimed: rules.No},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonWaitingForSeed}},
	{Name: "deadline-exceeded", When: overdueFacts{expired: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded}},
	{Name: "in-time", When: overdueFacts{expired: rules.No}, Verdict: conditionVerdict{"", ""}, Why: "the condition shows what is in progress"},
})

// overdueFacts is the complete input of overdueRules.
type overdueFacts struct {
	record    RecordState
	wasFormed rules.YesNo `fact:"formed"`
	expired   rules.YesNo `fact:"deadline passed"`
	claimed   rules.YesNo `fact:"a member has begun"` // a member has begun to form the cluster, or none has to
	handsOff  rules.YesNo `fact:"hands off"`          // druid must not act for this cluster
}

// progressing is condition Progressing: the decision of the table, changed if the deadline has passed.
func progressing(p messageContext) (metav1.Condition, bool) {
	if p.Deleted { // no deadline matters any more
		return p.decided(v1alpha1.ConditionProgressing, progressingRows), true
	}
	return p.inTime(), true
}

// inTime is condition Progressing of a cluster that is not being deleted.
func (p messageContext) inTime() metav1.Condition {
	if p.Origin.known() == rules.No && !p.handsOff() {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWaitingForSnapshot, Message: p.Origin.Words}
	}
	overdueRule := overdueRules.Decide(overdueFacts{
		record: p.RecordState, wasFormed: rules.YesNoOf(p.ClusterID != 0 || p.formed() == rules.Yes),
		expired: rules.YesNoOf(p.Expired && reached(p.Evaluation) == rules.No),
		claimed: rules.YesNoOf(p.Record.Executor != "" || p.Replicas == 0), handsOff: rules.YesNoOf(p.handsOff()),
	}).Verdict
	status, reason := overdueRule.status, overdueRule.reason
	if reason == v1alpha1.ReasonHandsOff {
		return metav1.Condition{Status: status, Reason: reason, Message: sentence(v1alpha1.ConditionProgressing, reason, p)}
	}
	if reason == v1alpha1.ReasonWaitingForSeed {
		return p.waits(metav1.Condition{Status: status, Reason: reason, Message: sentence(v1alpha1.ConditionProgressing, reason, p)})
	}
	until := p.Deadline.UTC().Format(time.RFC3339)
	if p.Expired { // the message names the operation that is late
		p.Expired = false
		p.Evaluation = Evaluate(p.Desired, p.Observed)
	}
	c := p.decided(v1alpha1.ConditionProgressing, progressingRows)
	switch reason {
	case "":
		return p.waits(c)
	case v1alpha1.ReasonBootstrapFailed:
		if len(p.found) > 0 {
			_, c.Message = describe(p.found)
		}
		c.Message = fmt.Sprintf("the cluster did not form before the deadline (%s), and druid takes no further action: %s. Delete this EtcdCluster and "+
			"create it again. To give it more time instead, set status.progressDeadline to a later time", until, c.Message)
		if p.Pending != 0 {
			c.Message += fmt.Sprintf(". Until then, %s is not accepted", generation(p.Pending))
		}
	default:
		c.Message = fmt.Sprintf("stopped at the deadline (%s): %s. druid continues with the next change of the spec, or when "+
			"you set status.progressDeadline to a later time or remove it", until, c.Message)
	}
	c.Status, c.Reason = status, reason
	return c
}

// waits adds to the message that an edit is not accepted yet.
func (p messageContext) waits(c metav1.Condition) metav1.Condition {
	if p.Pending != 0 {
		c.Message += fmt.Sprintf(". The edit (%s) is accepted when that is complete, or at %s. To apply it now, set annotation %s to %d",
			generation(p.Pending), p.Deadline.UTC().Format(time.RFC3339), v1alpha1.ApplyNowAnnotation, p.Pending)
	}
	return c
}

// progressIn returns what is in progress with the members, external members included.
func progressIn(e Evaluation) progress {
	if e.Finalizer.Verdict&(FinalizerLeave|FinalizerWait) != 0 {
		return progressLeaving
	}
	return e.externals.alongside(progressOf(e.Desired, e.listed))
}

func progressOf(d Desired, listed []Member) progress {
	all := progressNone
	if len(listed) < d.Replicas {
		all = progressJoining
	}
	for _, m := range listed {
		switch progressFrom(m) {
		case progressRepairing:
			return progressRepairing
		case progressJoining:
			all = progressJoining
		default:
		}
	}
	return all
}

// progressFrom returns what is in progress with one member.
func progressFrom(m Member) progress {
	switch {
	case m.votes() && m.up(): // also next to a silent agent: etcd needs no healing
		return progressNone
	case m.Readable && !m.Reports.EverFormed() && !m.Voter:
		return progressJoining
	default:
		return progressRepairing
	}
}
