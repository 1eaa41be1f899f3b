package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// quorumState is how many voters are known to serve.
type quorumState uint8

const (
	quorumStateQuorum  quorumState = 1 << iota // a quorum serves
	quorumStateLost                            // so many are known to be down that the others are no quorum
	quorumStateUnclear                         // neither is known
)

func (o quorumState) String() string {
	return rules.Word(o, "quorum", "lost", "unclear")
}

// progress is what is in progress in the cluster.
type progress uint8

const (
	progressNone      progress = 1 << iota
	progressRepairing          // a member that was in the cluster is not a ready voter
	progressJoining            // a member that never was in the cluster is to join
	progressShared             // none, but anyone who was in the raft group before it was joined stays
	progressParting            // none, but anyone who was there before leaves
	progressLeaving            // the EtcdCluster is deleted, and its members leave the group that they joined
)

func (p progress) String() string {
	return rules.Word(p, "none", "repairing", "joining", "external members remain", "external members leave", "all leave the joined cluster")
}

// shrinking is what happens to the names in excess of replicas.
type shrinking uint8

const (
	shrinkingNone    shrinking = 1 << iota // none is
	shrinkingGoes                          // one leaves, or is about to
	shrinkingBlocked                       // one is to, and another member hinders it
)

func (s shrinking) String() string {
	return rules.Word(s, "none", "one leaves", "one is blocked")
}

// readiness summarizes the states of the members.
type readiness uint8

const (
	readinessAll     readiness = 1 << iota // each desired member is a ready voter
	readinessNot                           // one is known not to be, or missing
	readinessUnknown                       // of one it is not known
)

func (r readiness) String() string {
	return rules.Word(r, "all", "not", "unknown")
}

// conditionFacts is the complete input of the tables of conditions.
type conditionFacts struct {
	record      RecordState
	formed      rules.YesNo `fact:"ever formed"` // the status knows a cluster ID, or the record says Formed
	quorumState quorumState `fact:"voters"`
	progress    progress    `fact:"under way"`
	readiness   readiness   `fact:"members ready"`
	shrinking   shrinking   `fact:"names too many"`
	rolling     rolling     `fact:"outdated Pods"`
	resting     resting     `fact:"pause"`
	problem     rules.YesNo
}

const usableRecord = RecordForming | RecordFormed | RecordRecovering

// conditionVerdict is the status and the reason of a condition.
type conditionVerdict struct {
	status metav1.ConditionStatus `fact:"status"`
	reason string                 `fact:"reason"`
}

func (v conditionVerdict) parts() (metav1.ConditionStatus, string) { return v.status, v.reason }

var notDecided = conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}

// readyRows decide condition Ready.
var readyRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "paused-no-quorum", When: conditionFacts{resting: restingPaused}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPaused}},
	{Name: "forming", When: conditionFacts{record: RecordAbsent | RecordForming, formed: rules.No}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonForming}},
	{Name: "quorate", When: conditionFacts{quorumState: quorumStateQuorum}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonQuorate}},
	{Name: "quorum-resumes", When: conditionFacts{quorumState: quorumStateLost, resting: restingResumes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonResuming}},
	{Name: "quorum-lost", When: conditionFacts{quorumState: quorumStateLost}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonQuorumLost}},
	{Name: "unclear", When: conditionFacts{quorumState: quorumStateUnclear}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}},
})

// allReadyRows decide condition AllMembersReady.
var allReadyRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "paused-none-ready", When: conditionFacts{resting: restingPaused}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPaused}},
	{Name: "all-ready", When: conditionFacts{readiness: readinessAll}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonAllReady}},
	{Name: "not-ready", When: conditionFacts{readiness: readinessNot}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonMembersNotReady}},
	{Name: "not-known", When: conditionFacts{readiness: readinessUnknown}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonMembersUnknown}},
})

// progressingRows decide condition Progressing.
var progressingRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "leaves-joined-cluster", When: conditionFacts{progress: progressLeaving}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonLeavingJoinedCluster}},
	{Name: "record-blocked", When: conditionFacts{record: RecordForeign | RecordUnreadable}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonClusterRecordInvalid}},
	{Name: "paused", When: conditionFacts{resting: restingPaused}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPaused}},
	{Name: "pause-begins", When: conditionFacts{resting: restingBegins}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonPausing}},
	{Name: "pause-blocked", When: conditionFacts{resting: restingBlocked}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPauseBlocked}},
	{Name: "group-not-formed", When: conditionFacts{record: RecordAbsent | RecordForming, formed: rules.No}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonForming}},
	{Name: "resumes", When: conditionFacts{record: usableRecord, quorumState: quorumStateLost | quorumStateUnclear, resting: restingResumes}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonResuming}},
	{Name: "member-leaves", When: conditionFacts{record: RecordAbsent | usableRecord, shrinking: shrinkingGoes}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonScalingDown}},
	{Name: "member-cannot-leave", When: conditionFacts{record: RecordAbsent | usableRecord, shrinking: shrinkingBlocked}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonScaleDownBlocked}},
	{Name: "pods-outdated", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: rollingGoes}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonRollingUpdate}},
	{Name: "version-changes", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: rollingUpgrades}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonUpgrading}},
	{Name: "pods-outdated-blocked", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: rollingBlocked}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonRollingUpdateBlocked}},
	{Name: "version-changes-blocked", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: rollingUpgradeBlocked}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonUpgradeBlocked}},
	{Name: "agents-outdated", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: agentsGo}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonUpdatingAgents}},
	{Name: "agents-outdated-blocked", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone | progressRepairing, rolling: agentsBlocked}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAgentUpdateBlocked}},
	{Name: "member-repaired", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressRepairing}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonRepairingMember}},
	{Name: "members-join", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressJoining}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonScalingUp}},
	{Name: "external-members-remain", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressShared}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonExternalMembersPresent}},
	{Name: "external-members-leave", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressParting}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonRemovingExternalMembers}},
	{Name: "up-to-date", When: conditionFacts{record: RecordAbsent | usableRecord, progress: progressNone, shrinking: shrinkingNone, rolling: rollingNone}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonReconciled}},
})

// degradedRows decide condition Degraded. If it is True, its reason is that of the most severe problem.
var degradedRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "problem", When: conditionFacts{problem: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionTrue, ""}, Why: "the most severe problem determines the reason"},
	{Name: "no-problem", When: conditionFacts{problem: rules.No}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAsExpected}},
})

// conditions are all conditions of an EtcdCluster, in the order of the status. Each is a function that returns status,
// reason and message, or false if the cluster does not have the condition. To add one, write a file with its table and
// its function, and add a row here.
var conditions = []struct {
	kind string
	of   func(messageContext) (metav1.Condition, bool)
}{
	{v1alpha1.ConditionReady, ready},
	{v1alpha1.ConditionAllMembersReady, allMembersReady},
	{v1alpha1.ConditionProgressing, progressing},
	{v1alpha1.ConditionDegraded, degraded},
	{v1alpha1.ConditionSpread, spreadCondition},
	{v1alpha1.ConditionBackupReady, backupReady},
	{v1alpha1.ConditionBackupVerified, backupVerified},
}

func ready(p messageContext) (metav1.Condition, bool) {
	return p.decided(v1alpha1.ConditionReady, readyRows), true
}

func allMembersReady(p messageContext) (metav1.Condition, bool) {
	return p.decided(v1alpha1.ConditionAllMembersReady, allReadyRows), true
}

func degraded(p messageContext) (metav1.Condition, bool) {
	c := p.decided(v1alpha1.ConditionDegraded, degradedRows)
	if c.Status == metav1.ConditionTrue {
		c.Reason, c.Message = describe(p.found)
	}
	return c, true
}

// decided returns the condition that a table decides, with the message of its reason.
func (p messageContext) decided(kind string, table *rules.Table[conditionFacts, conditionVerdict]) metav1.Condition {
	c := metav1.Condition{}
	c.Status, c.Reason = table.Decide(conditionFactsOf(p.Desired, p.Observed, p.status.Members, p.found)).Verdict.parts()
	c.Message = sentence(kind, c.Reason, p)
	return c
}

func conditionFactsOf(d Desired, o Observed, members []v1alpha1.MemberStatus, problems []Problem) conditionFacts {
	listed := o.listed()
	return conditionFacts{
		record:      o.RecordState,
		formed:      rules.YesNoOf(d.ClusterID != 0 || o.formed() == rules.Yes),
		quorumState: quorumStateOf(o, listed),
		progress:    progressIn(d, o, listed),
		readiness:   readinessOf(d, members),
		shrinking:   scaleDownOf(d, o).shrinking(),
		rolling:     rollingOf(d, o),
		resting:     restingOf(d, o),
		problem:     rules.YesNoOf(len(problems) > 0),
	}
}

// progressIn returns what is in progress with the members, external members included.
func progressIn(d Desired, o Observed, listed []Member) progress {
	if guardDeletion := FinalizerOf(d, o).Verdict; guardDeletion == FinalizerLeave || guardDeletion == FinalizerWait {
		return progressLeaving
	}
	return externalsOf(d, o).alongside(progressOf(d, listed))
}

// quorumStateOf counts the voters. It reports a lost quorum only if the size of the group is known.
func quorumStateOf(o Observed, listed []Member) quorumState {
	voters, up, down := 0, 0, 0
	for _, m := range listed {
		switch {
		case !m.votes() && !(m.mute() && m.publishedVoter(o)):
			continue
		case m.up():
			up++
		case m.down():
			down++
		}
		voters++
	}
	switch {
	case voters == 0:
		return quorumStateUnclear
	case up >= quorum(voters):
		return quorumStateQuorum
	case voters-down < quorum(voters) && !o.sizeUnknown():
		return quorumStateLost
	default:
		return quorumStateUnclear
	}
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

func readinessOf(d Desired, members []v1alpha1.MemberStatus) readiness {
	r := readinessAll
	for _, m := range members {
		switch m.Status {
		case v1alpha1.MemberReady:
		case v1alpha1.MemberNotReady:
			return readinessNot
		default:
			r = readinessUnknown
		}
	}
	if len(members) < d.Replicas {
		return readinessNot
	}
	return r
}

// gravity orders the reasons of Degraded: first what stops the cluster, last what one member can recover from by
// itself.
var gravity = []string{
	v1alpha1.ReasonRecordUnreadable, v1alpha1.ReasonRecordLost, v1alpha1.ReasonSnapshotUnusable, v1alpha1.ReasonDataLost, v1alpha1.ReasonAlarmRaised, v1alpha1.ReasonObjectNotOwned, v1alpha1.ReasonVolumeDeleted,
	v1alpha1.ReasonNodeLost, v1alpha1.ReasonAPIRequestRejected, v1alpha1.ReasonLeaseUnreadable, v1alpha1.ReasonStorageClassMissing,
	v1alpha1.ReasonVolumePending, v1alpha1.ReasonPodUnschedulable, v1alpha1.ReasonImagePullFailed,
	v1alpha1.ReasonContainerCannotStart, v1alpha1.ReasonMemberCannotStart, v1alpha1.ReasonAgentNotRunning, v1alpha1.ReasonMemberStuck, v1alpha1.ReasonVolumeNotExpanded, v1alpha1.ReasonOrphanedObjects,
}

// maxProblems is how many problems a message names. It only counts the others.
const maxProblems = 3

// describe sorts the problems by gravity and member. It returns the reason and the message of the condition.
func describe(problems []Problem) (reason, message string) {
	sorted := slices.Clone(problems)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		if d := slices.Index(gravity, a.Reason) - slices.Index(gravity, b.Reason); d != 0 {
			return d
		}
		return strings.Compare(a.Member+a.Message, b.Member+b.Message)
	})
	sorted = slices.Compact(sorted)
	var words []string
	for i, p := range sorted {
		if i == maxProblems {
			words = append(words, fmt.Sprintf("and %d more", len(sorted)-i))
			break
		}
		if p.Member == "" {
			words = append(words, p.Message)
			continue
		}
		words = append(words, fmt.Sprintf("member %s: %s", p.Member, p.Message))
	}
	return sorted[0].Reason, strings.Join(words, "; ")
}
