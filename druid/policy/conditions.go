package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// conditions are all conditions of an EtcdCluster, in the order of the status. Each is a function that returns status,
// reason and message, or false if the cluster does not have the condition. To add one, write a file with its table and
// its function, and add a row here.
var conditions = []struct {
	kind string
	// of returns status, reason and message, or false if the cluster does not have the condition.
	of func(messageContext) (metav1.Condition, bool)
	// events reports that the condition changed. It is nil where the Events of members, of steps or of the deadline do that.
	events func(was, is metav1.Condition, inform announcer)
}{
	{v1alpha1.ConditionReady, ready, readyEvents},
	{v1alpha1.ConditionAllMembersReady, allMembersReady, nil},
	{v1alpha1.ConditionProgressing, progressing, nil},
	{v1alpha1.ConditionDegraded, degraded, degradedEvents},
	{v1alpha1.ConditionSpread, spreadCondition, spreadEvents},
	{v1alpha1.ConditionBackupReady, backupReady, turnEvents},
	{v1alpha1.ConditionBackupVerified, backupVerified, turnEvents},
	{v1alpha1.ConditionCertificatesReady, certificatesReady, turnEvents},
	{v1alpha1.ConditionAuthReady, authReady, turnEvents},
}

// conditionVerdict is the status and the reason of a condition.
type conditionVerdict struct {
	status metav1.ConditionStatus `fact:"status"`
	reason string                 `fact:"reason"`
}

func (v conditionVerdict) parts() (metav1.ConditionStatus, string) { return v.status, v.reason }

var notDecided = conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonUnknown}

// conditionFacts is the complete input of the tables of conditions.
type conditionFacts struct {
	record      RecordState
	formed      rules.YesNo `fact:"ever formed"` // the status knows a cluster ID, or the record says Formed
	quorumState quorumState `fact:"voters"`
	progress    progress    `fact:"under way"`
	readiness   readiness   `fact:"members ready"`
	shrinking   shrinking   `fact:"more members than replicas"`
	rolling     rolling     `fact:"outdated Pods"`
	resting     resting     `fact:"pause"`
	awaits      awaits      `fact:"lost quorum"`
	problem     rules.YesNo
	cutOff      rules.YesNo `fact:"clients cut off"`
}

const usableRecord = RecordForming | RecordFormed | RecordRecovering

func conditionFactsOf(p messageContext) conditionFacts {
	return conditionFacts{
		record:      p.RecordState,
		formed:      rules.YesNoOf(p.ClusterID != 0 || p.formed() == rules.Yes),
		quorumState: quorumStateOf(p.Observed, p.listed),
		progress:    progressIn(p.Evaluation),
		readiness:   readinessOf(p.Desired, p.status.Members),
		shrinking:   p.Evaluation.shrinking(),
		rolling:     p.rolling(),
		resting:     p.resting(),
		awaits:      awaitsOf(p.recovery),
		problem:     rules.YesNoOf(len(p.found) > 0),
		cutOff:      rules.YesNoOf(p.CutOff || p.restore.cutsOff()),
	}
}

// decided returns the condition that a table decides, with the message of its reason.
func (p messageContext) decided(kind string, table *rules.Table[conditionFacts, conditionVerdict]) metav1.Condition {
	c := metav1.Condition{}
	c.Status, c.Reason = table.Decide(conditionFactsOf(p)).Verdict.parts()
	c.Message = sentence(kind, c.Reason, p)
	return c
}

// The end of these reasons counts as a transition, although the status of the condition stays the same: their time does not count as time
// with a problem. The begin of these counts too, because no change of the spec precedes it, and alerts measure how long it lasts.
var (
	timedEnds   = []string{v1alpha1.ReasonPaused, v1alpha1.ReasonHandsOff, v1alpha1.ReasonRecoveryProposed, v1alpha1.ReasonRecoveryRefused}
	timedBegins = []string{v1alpha1.ReasonHandsOff, v1alpha1.ReasonReplaceBlocked, v1alpha1.ReasonAgentUpdateBlocked}
)

// setCondition sets the condition.
func setCondition(conditions *[]metav1.Condition, c metav1.Condition) {
	was := meta.FindStatusCondition(*conditions, c.Type)
	counts := was != nil && was.Reason != c.Reason && (slices.Contains(timedEnds, was.Reason) || slices.Contains(timedBegins, c.Reason))
	c.Message = AsSentences(c.Message)
	meta.SetStatusCondition(conditions, c)
	if counts {
		meta.FindStatusCondition(*conditions, c.Type).LastTransitionTime = c.LastTransitionTime
	}
}
