package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// Target reports how druid accepts the spec, according to the status.
type Target struct {
	// Deadline of the change in progress, zero if there is none. Expired reports whether it has passed.
	Deadline time.Time
	Expired  bool
	// Allowed is the time that a change of the spec may take.
	Allowed time.Duration
	// Pending is the generation of an edit that is not accepted yet, or 0.
	Pending int64
}

func (t Target) clock() Clock {
	switch {
	case t.Expired:
		return ClockPassed
	case t.Deadline.IsZero():
		return ClockNone
	default:
		return ClockRuns
	}
}

// overdueRules decide how condition Progressing changes when the deadline has passed, or when no member has begun the
// bootstrap. An empty reason leaves the condition as progressingRows decide it.
var overdueRules = rules.New(conditionVerdict{}, []rules.Row[overdueFacts, conditionVerdict]{
	{Name: "record-not-usable", When: overdueFacts{record: RecordForeign | RecordUnreadable}, Verdict: conditionVerdict{"", ""}, Why: "the condition shows what is in progress"},
	{Name: "bootstrap-failed", When: overdueFacts{record: RecordAbsent | RecordForming, wasFormed: rules.No, expired: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBootstrapFailed}},
	{Name: "waiting-for-seed", When: overdueFacts{record: RecordAbsent | RecordForming, wasFormed: rules.No, expired: rules.No, claimed: rules.No}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonWaitingForSeed}},
	{Name: "deadline-exceeded", When: overdueFacts{expired: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded}},
	{Name: "in-time", When: overdueFacts{expired: rules.No}, Verdict: conditionVerdict{"", ""}, Why: "the condition shows what is in progress"},
})

// overdueFacts is the complete input of overdueRules.
type overdueFacts struct {
	record    RecordState
	wasFormed rules.YesNo `fact:"formed"`
	expired   rules.YesNo `fact:"deadline passed"`
	claimed   rules.YesNo `fact:"a member has begun"` // a member has begun to form the cluster, or none is to
}

// overdueRolloutFacts is the complete input of overdueRollouts.
type overdueRolloutFacts struct {
	expired rules.YesNo `fact:"deadline passed"`
	verdict verdict     // of the rolling update
}

// overdueRollouts stop a rolling update after the deadline. Nothing else needs such a table: after the deadline, the
// present number of members counts as the desired one.
var overdueRollouts = rules.New(held, []rules.Row[overdueRolloutFacts, verdict]{
	{Name: "in-time", When: overdueRolloutFacts{expired: rules.No, verdict: keep | wait | held | remove | mark}, Verdict: keep},
	{Name: "goes-on", When: overdueRolloutFacts{expired: rules.Yes, verdict: keep | held | mark}, Verdict: keep},
	{Name: "after-deadline", When: overdueRolloutFacts{expired: rules.Yes, verdict: wait | remove}, Verdict: held},
})

// braked returns the decision of a rolling update, or the decision that stops it.
func braked(expired rules.YesNo, d rules.Decision[verdict]) rules.Decision[verdict] {
	if b := overdueRollouts.Decide(overdueRolloutFacts{expired, d.Verdict}); b.Verdict == held {
		return b
	}
	return d
}

// overdueRolloutPause stops a pause after the deadline. The last member continues to serve and receives clients again.
func overdueRolloutPause(expired rules.YesNo, s pause) pause {
	if expired == rules.Yes && s&(pauseDrain|pauseStop) != 0 {
		return pauseHeld
	}
	return s
}

// bootstrapFailed reports that no raft group formed before the deadline. druid takes no further step towards one. If
// one forms nevertheless, druid uses it.
func bootstrapFailed(d Desired, o Observed) bool {
	return d.Expired && formationStateOf(d, o) == formationNeverFormed
}

// deadlineAfter returns the deadline that the status keeps, or nil if the target is reached. A cluster that has just
// formed gets the full time for the members that join it, because a bootstrap from a backup can have used all of it.
func deadlineAfter(d Desired, o Observed, formedNow bool, before *metav1.Time, now metav1.Time) *metav1.Time {
	switch {
	case before == nil || reached(d, o) == rules.Yes:
		return nil
	case formedNow && before.Time.Before(now.Add(d.Allowed)):
		return new(metav1.NewTime(now.Add(d.Allowed).Truncate(time.Second)))
	default:
		return before
	}
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
	if p.Origin.known() == rules.No {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWaitingForSnapshot, Message: p.Origin.Words}
	}
	overdueRule := overdueRules.Decide(overdueFacts{
		record: p.RecordState, wasFormed: rules.YesNoOf(p.ClusterID != 0 || p.formed() == rules.Yes), expired: rules.YesNoOf(p.Expired && reached(p.Desired, p.Observed) == rules.No),
		claimed: rules.YesNoOf(p.Record.Executor != "" || p.Replicas == 0),
	}).Verdict
	status, reason := overdueRule.status, overdueRule.reason
	if reason == v1alpha1.ReasonWaitingForSeed {
		return p.waits(metav1.Condition{Status: status, Reason: reason, Message: sentence(v1alpha1.ConditionProgressing, reason, p)})
	}
	until := p.Deadline.UTC().Format(time.RFC3339)
	p.Expired = false // what would be under way
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
		c.Message += fmt.Sprintf(". The edit (%s) is accepted when that is complete, or at %s", generation(p.Pending), p.Deadline.UTC().Format(time.RFC3339))
	}
	return c
}

func generation(n int64) string { return fmt.Sprintf("generation %d of spec", n) }

// adoptionReasons are the reasons of Progressing after an accepted edit, by rule, where the reason is not SpecChanged.
var adoptionReasons = map[string]string{
	"first-sight": v1alpha1.ReasonSpecAccepted, "retry-after-deadline": v1alpha1.ReasonRetryAfterDeadline,
}

// Adopted returns the status after the spec of a generation is accepted. The rest of the status stays, because it
// reports earlier observations.
func (a Adoption) Adopted(before v1alpha1.EtcdClusterStatus, spec v1alpha1.EtcdClusterSpec, number int64, allowed time.Duration, now metav1.Time) (v1alpha1.EtcdClusterStatus, error) {
	s := *before.DeepCopy()
	if err := s.Adopt(spec); err != nil {
		return s, err
	}
	s.ObservedGeneration = number
	if a.Begins {
		s.ProgressDeadline = new(metav1.NewTime(now.Add(allowed).Truncate(time.Second)))
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSpecChanged,
		Message: fmt.Sprintf("%s was accepted (%s)", generation(number), a.Rule), ObservedGeneration: number, LastTransitionTime: now,
	}
	if reason, ok := adoptionReasons[a.Rule]; ok {
		condition.Reason = reason
	}
	setCondition(&s.Conditions, condition)
	return s, nil
}

// deadlineEvents report that druid stopped, or that it accepted an edit.
func deadlineEvents(before, after v1alpha1.EtcdClusterStatus, inform announcer) {
	was, is := condition(before, v1alpha1.ConditionProgressing), condition(after, v1alpha1.ConditionProgressing)
	stops := []string{v1alpha1.ReasonBootstrapFailed, v1alpha1.ReasonDeadlineExceeded}
	adopts := []string{v1alpha1.ReasonSpecChanged, v1alpha1.ReasonRetryAfterDeadline}
	switch {
	case slices.Contains(stops, is.Reason) && was.Reason != is.Reason:
		inform(true, is.Reason, "", "%s", is.Message)
	case slices.Contains(adopts, is.Reason) && is.Message != was.Message:
		inform(false, is.Reason, "", "%s", is.Message)
	}
}

// PendingEvent reports once that an edit is not accepted yet. After the deadline, only the condition reports it.
func PendingEvent(d Desired, before v1alpha1.EtcdClusterStatus) (Event, bool) {
	was := condition(before, v1alpha1.ConditionProgressing)
	if d.Pending == 0 || d.Expired || strings.Contains(was.Message, generation(d.Pending)) {
		return Event{}, false
	}
	return Event{Reason: v1alpha1.ReasonSpecChanged, Note: fmt.Sprintf("%s waits until the change in progress is complete, at most until %s",
		generation(d.Pending), d.Deadline.UTC().Format(time.RFC3339))}, true
}
