package policy

import (
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

// readyRows decide condition Ready.
var readyRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "paused-no-quorum", When: conditionFacts{resting: restingPaused}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPaused}},
	{Name: "forming", When: conditionFacts{record: RecordAbsent | RecordForming, formed: rules.No},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonForming}},
	{Name: "clients-cut-off", When: conditionFacts{quorumState: quorumStateQuorum, cutOff: rules.Yes},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonClientsCutOff}},
	{Name: "quorate", When: conditionFacts{quorumState: quorumStateQuorum, cutOff: rules.No},
		Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonQuorate}},
	{Name: "quorum-resumes", When: conditionFacts{quorumState: quorumStateLost, resting: restingResumes},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonResuming}},
	{Name: "quorum-lost", When: conditionFacts{quorumState: quorumStateLost}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonQuorumLost}},
	{Name: "unclear", When: conditionFacts{quorumState: quorumStateUnclear}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}},
})

func ready(p messageContext) (metav1.Condition, bool) {
	return p.decided(v1alpha1.ConditionReady, readyRows), true
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

// readyEvents reports that the quorum was lost, that it serves again, and that clients are cut off.
func readyEvents(was, is metav1.Condition, inform announcer) {
	switch {
	case was.Reason == is.Reason:
	case is.Reason == v1alpha1.ReasonQuorumLost:
		inform(true, v1alpha1.EventQuorumLost, "", "%s", is.Message)
	case !hasQuorum(is):
	case was.Reason == v1alpha1.ReasonResuming:
		inform(false, v1alpha1.EventResumed, "", "%s", is.Message)
	case was.Reason == v1alpha1.ReasonQuorumLost:
		inform(false, v1alpha1.EventQuorumRestored, "", "%s", is.Message)
	case is.Reason == v1alpha1.ReasonClientsCutOff:
		inform(false, v1alpha1.ReasonClientsCutOff, "", "%s", is.Message)
	case was.Reason == v1alpha1.ReasonClientsCutOff:
		inform(false, v1alpha1.EventClientsServed, "", "%s", is.Message)
	}
}

// hasQuorum says whether condition Ready reports that a quorum serves, with clients or without.
func hasQuorum(ready metav1.Condition) bool {
	return ready.Reason == v1alpha1.ReasonQuorate || ready.Reason == v1alpha1.ReasonClientsCutOff
}

// allReadyRows decide condition AllMembersReady.
var allReadyRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "paused-none-ready", When: conditionFacts{resting: restingPaused}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonPaused}},
	{Name: "all-ready", When: conditionFacts{readiness: readinessAll}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonAllReady}},
	{Name: "not-ready", When: conditionFacts{readiness: readinessNot}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonMembersNotReady}},
	{Name: "not-known", When: conditionFacts{readiness: readinessUnknown}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonMembersUnknown}},
})

func allMembersReady(p messageContext) (metav1.Condition, bool) {
	return p.decided(v1alpha1.ConditionAllMembersReady, allReadyRows), true
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
