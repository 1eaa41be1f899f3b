package plan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// outlook is how many voters are known to serve.
type outlook uint8

const (
	outlookQuorum  outlook = 1 << iota // a quorum serves
	outlookLost                        // so many are known to be down that the others are no quorum
	outlookUnclear                     // neither is known

	anyOutlook = outlookQuorum | outlookLost | outlookUnclear
)

// progress is what is under way.
type progress uint8

const (
	progressNone    progress = 1 << iota
	progressHealing          // a member that was in the cluster is not a ready voter
	progressJoining          // a member that never was in the cluster is to join
	progressShared           // none, but whoever was in the raft group before it was joined stays
	progressParting          // none, but whoever was there before leaves
	progressLeaving          // the EtcdCluster is deleted, and its members leave the group that they joined

	anyProgress = progressNone | progressHealing | progressJoining | progressShared | progressParting | progressLeaving
)

// shrinking is what becomes of names that are too many.
type shrinking uint8

const (
	shrinkingNone    shrinking = 1 << iota // none is
	shrinkingGoes                          // one leaves, or is about to
	shrinkingBlocked                       // one is to, and another member hinders it

	anyShrinking = shrinkingNone | shrinkingGoes | shrinkingBlocked
)

// readiness sums up the members.
type readiness uint8

const (
	readinessAll     readiness = 1 << iota // each desired member is a ready voter
	readinessNot                           // one is known not to be, or missing
	readinessUnknown                       // of one it is not known

	anyReadiness = readinessAll | readinessNot | readinessUnknown
)

// conditionFacts is all that the policy of the conditions may look at.
type conditionFacts struct {
	record    RecordState
	formed    rules.YesNo // the status knows a cluster ID, or the record says Formed
	outlook   outlook
	progress  progress
	readiness readiness
	shrinking shrinking
	rolling   rolling
	resting   resting
	problem   rules.YesNo
}

const usableRecord = RecordForming | RecordFormed | RecordRecovering

// conditionRows decide each condition's status and reason, first match per type. The reason of Degraded is that of the
// gravest problem.
var conditionRows = []struct {
	name      string
	kind      string
	record    RecordState
	formed    rules.YesNo
	outlook   outlook
	progress  progress
	readiness readiness
	shrinking shrinking
	rolling   rolling
	resting   resting
	problem   rules.YesNo
	status    metav1.ConditionStatus
	reason    string
}{
	{"paused-no-quorum", v1alpha1.ConditionReady, anyRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, restingPaused, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonPaused},
	{"forming", v1alpha1.ConditionReady, RecordAbsent | RecordForming, rules.No, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonForming},
	{"quorate", v1alpha1.ConditionReady, anyRecord, anyAnswer, outlookQuorum, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonQuorate},
	{"quorum-resumes", v1alpha1.ConditionReady, anyRecord, anyAnswer, outlookLost, anyProgress, anyReadiness, anyShrinking, anyRolling, restingResumes, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonResuming},
	{"quorum-lost", v1alpha1.ConditionReady, anyRecord, anyAnswer, outlookLost, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonQuorumLost},
	{"unclear", v1alpha1.ConditionReady, anyRecord, anyAnswer, outlookUnclear, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionUnknown, v1alpha1.ReasonUnknown},

	{"paused-nobody-ready", v1alpha1.ConditionAllMembersReady, anyRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, restingPaused, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonPaused},
	{"all-ready", v1alpha1.ConditionAllMembersReady, anyRecord, anyAnswer, anyOutlook, anyProgress, readinessAll, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonAllReady},
	{"not-ready", v1alpha1.ConditionAllMembersReady, anyRecord, anyAnswer, anyOutlook, anyProgress, readinessNot, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonMembersNotReady},
	{"not-known", v1alpha1.ConditionAllMembersReady, anyRecord, anyAnswer, anyOutlook, anyProgress, readinessUnknown, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionUnknown, v1alpha1.ReasonMembersUnknown},

	{"leaves-the-others", v1alpha1.ConditionProgressing, anyRecord, anyAnswer, anyOutlook, progressLeaving, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonLeaving},
	{"record-blocked", v1alpha1.ConditionProgressing, RecordForeign | RecordUnreadable, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonRecordBlocked},
	{"paused", v1alpha1.ConditionProgressing, anyRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, restingPaused, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonPaused},
	{"pause-begins", v1alpha1.ConditionProgressing, anyRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, restingBegins, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonPausing},
	{"pause-blocked", v1alpha1.ConditionProgressing, anyRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, restingBlocked, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonPauseBlocked},
	{"group-to-be-born", v1alpha1.ConditionProgressing, RecordAbsent | RecordForming, rules.No, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonForming},
	{"resumes", v1alpha1.ConditionProgressing, usableRecord, anyAnswer, outlookLost | outlookUnclear, anyProgress, anyReadiness, anyShrinking, anyRolling, restingResumes, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonResuming},
	{"member-leaves", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, shrinkingGoes, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonScalingDown},
	{"member-cannot-leave", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, shrinkingBlocked, anyRolling, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonScaleDownBlocked},
	{"pods-outdated", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressNone | progressHealing, anyReadiness, anyShrinking, rollingGoes, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonRollingUpdate},
	{"version-changes", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressNone | progressHealing, anyReadiness, anyShrinking, rollingUpgrades, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonUpgrading},
	{"pods-outdated-blocked", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressNone | progressHealing, anyReadiness, anyShrinking, rollingBlocked, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonRollingUpdateBlocked},
	{"version-changes-blocked", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressNone | progressHealing, anyReadiness, anyShrinking, rollingUpgradeBlocked, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonUpgradeBlocked},
	{"agents-outdated", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressNone | progressHealing, anyReadiness, anyShrinking, agentsGo, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonUpdatingAgents},
	{"agents-outdated-blocked", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressNone | progressHealing, anyReadiness, anyShrinking, agentsBlocked, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonAgentUpdateBlocked},
	{"members-heal", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressHealing, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonHealing},
	{"members-join", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressJoining, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonScalingUp},
	{"others-remain", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressShared, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonOthersRemain},
	{"others-leave", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressParting, anyReadiness, anyShrinking, anyRolling, anyResting, anyAnswer, metav1.ConditionTrue, v1alpha1.ReasonRemovingOthers},
	{"up-to-date", v1alpha1.ConditionProgressing, RecordAbsent | usableRecord, anyAnswer, anyOutlook, progressNone, anyReadiness, shrinkingNone, rollingNone, anyResting, anyAnswer, metav1.ConditionFalse, v1alpha1.ReasonReconciled},

	{"problem", v1alpha1.ConditionDegraded, anyRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, rules.Yes, metav1.ConditionTrue, ""},
	{"no-problem", v1alpha1.ConditionDegraded, anyRecord, anyAnswer, anyOutlook, anyProgress, anyReadiness, anyShrinking, anyRolling, anyResting, rules.No, metav1.ConditionFalse, v1alpha1.ReasonAsExpected},
}

// conditionTypes in the order in which the status lists them.
var conditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAllMembersReady, v1alpha1.ConditionProgressing, v1alpha1.ConditionDegraded,
}

func judgeCondition(kind string, f conditionFacts) (status metav1.ConditionStatus, reason, rule string) {
	for _, r := range conditionRows {
		if r.kind == kind && r.record&f.record != 0 && r.formed&f.formed != 0 && r.outlook&f.outlook != 0 &&
			r.progress&f.progress != 0 && r.readiness&f.readiness != 0 && r.shrinking&f.shrinking != 0 &&
			r.rolling&f.rolling != 0 && r.resting&f.resting != 0 && r.problem&f.problem != 0 {
			return r.status, r.reason, r.name
		}
	}
	return metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "uncovered"
}

func conditionFactsOf(d Desired, o Observed, members []v1alpha1.MemberStatus, problems []Problem) conditionFacts {
	listed := o.listed()
	return conditionFacts{
		record:    o.RecordState,
		formed:    rules.YesNoOf(d.ClusterID != 0 || o.formed() == rules.Yes),
		outlook:   outlookOf(o, listed),
		progress:  progressIn(d, o, listed),
		readiness: readinessOf(d, members),
		shrinking: retreatOf(d, o).shrinking(),
		rolling:   rollingOf(d, o),
		resting:   restingOf(d, o),
		problem:   rules.YesNoOf(len(problems) > 0),
	}
}

// progressIn is what is under way with all of them, and with the others.
func progressIn(d Desired, o Observed, listed []Member) progress {
	if guard, _ := GuardOf(d, o); guard == GuardLeave || guard == GuardWait {
		return progressLeaving
	}
	return guestsOf(d, o).beside(progressOf(d, listed))
}

// outlookOf counts the voters. That a quorum was lost is not known where the size of the group is not.
func outlookOf(o Observed, listed []Member) outlook {
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
		return outlookUnclear
	case up >= quorum(voters):
		return outlookQuorum
	case voters-down < quorum(voters) && !o.sizeUnknown():
		return outlookLost
	default:
		return outlookUnclear
	}
}

func progressOf(d Desired, listed []Member) progress {
	all := progressNone
	if len(listed) < d.Replicas {
		all = progressJoining
	}
	for _, m := range listed {
		switch progressFrom(m) {
		case progressHealing:
			return progressHealing
		case progressJoining:
			all = progressJoining
		default:
		}
	}
	return all
}

// progressFrom is what is under way with one member.
func progressFrom(m Member) progress {
	switch {
	case m.votes() && m.up(): // also beside a silent agent: etcd needs no healing
		return progressNone
	case m.Readable && !m.Says.EverFormed() && !m.Voter:
		return progressJoining
	default:
		return progressHealing
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

// gravity orders the reasons of Degraded: what stops the whole cluster first, what one member may get over last.
var gravity = []string{
	v1alpha1.ReasonRecordUnreadable, v1alpha1.ReasonRecordLost, v1alpha1.ReasonSnapshotUnusable, v1alpha1.ReasonDataLost, v1alpha1.ReasonAlarmRaised, v1alpha1.ReasonForeignObject, v1alpha1.ReasonVolumeDeleted,
	v1alpha1.ReasonNodeLost, v1alpha1.ReasonRefusedByAPI, v1alpha1.ReasonLeaseUnreadable, v1alpha1.ReasonStorageClassMissing,
	v1alpha1.ReasonVolumePending, v1alpha1.ReasonPodUnschedulable, v1alpha1.ReasonImagePullFailed,
	v1alpha1.ReasonContainerCannotStart, v1alpha1.ReasonMemberCannotStart, v1alpha1.ReasonAgentNotRunning, v1alpha1.ReasonMemberStuck, v1alpha1.ReasonVolumeNotExpanded, v1alpha1.ReasonOrphan,
}

// maxProblems named in one message; the rest are counted.
const maxProblems = 3

// describe sorts the problems by gravity and member, and words them.
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
