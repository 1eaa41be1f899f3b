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

// Target is what an EtcdCluster's status reports the spec that was adopted.
type Target struct {
	// Deadline of what is under way, zero for none. Expired says that it has passed.
	Deadline time.Time
	Expired  bool
	// Allowed is how long what an edit asks for may take.
	Allowed time.Duration
	// Pending is the generation of an edit that waits, 0 for none.
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

// overdueRules decide what a passed deadline, and a bootstrap that no one began, make of the condition Progressing. Where no reason
// stands, it is reported what is under way.
var overdueRules = rules.New(conditionVerdict{}, []rules.Row[overdueFacts, conditionVerdict]{
	{Name: "record-not-usable", When: overdueFacts{record: RecordForeign | RecordUnreadable}, Verdict: conditionVerdict{"", ""}, Why: "Progressing says what is under way"},
	{Name: "bootstrap-failed", When: overdueFacts{record: RecordAbsent | RecordForming, wasFormed: rules.No, expired: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonBootstrapFailed}},
	{Name: "waiting-for-seed", When: overdueFacts{record: RecordAbsent | RecordForming, wasFormed: rules.No, expired: rules.No, claimed: rules.No}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonWaitingForSeed}},
	{Name: "deadline-exceeded", When: overdueFacts{expired: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded}},
	{Name: "in-time", When: overdueFacts{expired: rules.No}, Verdict: conditionVerdict{"", ""}, Why: "Progressing says what is under way"},
})

// overdueFacts is all that the policy may look at.
type overdueFacts struct {
	record    RecordState
	wasFormed rules.YesNo `fact:"formed"`
	expired   rules.YesNo `fact:"deadline passed"`
	claimed   rules.YesNo `fact:"a member has begun"` // a member has begun to form the cluster, or none is to
}

// overdueRolloutFacts is all that the policy may look at.
type overdueRolloutFacts struct {
	expired rules.YesNo `fact:"deadline passed"`
	verdict verdict     // of the rolling update
}

// overdueRollouts take from a rolling update what it may not do any more. Nothing else needs one: names and slots follow from the number
// of members, which counts as the right one then.
var overdueRollouts = rules.New(held, []rules.Row[overdueRolloutFacts, verdict]{
	{Name: "in-time", When: overdueRolloutFacts{expired: rules.No, verdict: keep | wait | held | remove | mark}, Verdict: keep},
	{Name: "goes-on", When: overdueRolloutFacts{expired: rules.Yes, verdict: keep | held | mark}, Verdict: keep},
	{Name: "after-deadline", When: overdueRolloutFacts{expired: rules.Yes, verdict: wait | remove}, Verdict: held},
})

// braked is the decision of a rolling update, or that of the brake on it.
func braked(expired rules.YesNo, d rules.Decision[verdict]) rules.Decision[verdict] {
	if b := overdueRollouts.Decide(overdueRolloutFacts{expired, d.Verdict}); b.Verdict == held {
		return b
	}
	return d
}

// overdueRolloutPause stops the way to a pause: its member serves on, and clients are sent to it again.
func overdueRolloutPause(expired rules.YesNo, s pause) pause {
	if expired == rules.Yes && s&(pauseDrain|pauseStop) != 0 {
		return pauseHeld
	}
	return s
}

// bootstrapFailed: no raft group was formed in time, and none is to be by another step of druid's. One that is formed all the same
// is as good as any.
func bootstrapFailed(d Desired, o Observed) bool {
	return d.Expired && formationStateOf(d, o) == formationNeverFormed
}

// deadlineAfter is the deadline that the status keeps: none when the target is reached. A cluster that has just formed gets as much
// time as any for the members that join it: a bootstrap from a backup may have taken all of it.
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

// progressing is condition Progressing: what the table decides, and what a deadline that passed makes of it.
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
			"create it again; or, to give it more time, write a later time into status.progressDeadline", until, c.Message)
		if p.Pending != 0 {
			c.Message += fmt.Sprintf("; %s is not accepted before that", generation(p.Pending))
		}
	default:
		c.Message = fmt.Sprintf("stopped at the deadline (%s): %s. druid continues with the next change of spec, or when "+
			"status.progressDeadline is later or gone", until, c.Message)
	}
	c.Status, c.Reason = status, reason
	return c
}

// waits adds to what is under way that an edit waits for it.
func (p messageContext) waits(c metav1.Condition) metav1.Condition {
	if p.Pending != 0 {
		c.Message += fmt.Sprintf("; %s is accepted when that is complete, or at %s", generation(p.Pending), p.Deadline.UTC().Format(time.RFC3339))
	}
	return c
}

func generation(n int64) string { return fmt.Sprintf("generation %d of spec", n) }

// adoptionReasons are those of Progressing after an adoption, by its rule, where it is not SpecChanged.
var adoptionReasons = map[string]string{
	"first-sight": v1alpha1.ReasonSpecAccepted, "retry-after-deadline": v1alpha1.ReasonRetryAfterDeadline,
}

// Adopted is the status with which the spec of generation is adopted. All else in it is as it was: it reports what was seen
// before.
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

// deadlineEvents report that druid stopped, and that an edit waits.
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

// PendingEvent reports, once, that an edit waits. After the deadline nothing but the condition reports one.
func PendingEvent(d Desired, before v1alpha1.EtcdClusterStatus) (Event, bool) {
	was := condition(before, v1alpha1.ConditionProgressing)
	if d.Pending == 0 || d.Expired || strings.Contains(was.Message, generation(d.Pending)) {
		return Event{}, false
	}
	return Event{Reason: v1alpha1.ReasonSpecChanged, Note: fmt.Sprintf("%s waits until the change in progress is complete, at most until %s",
		generation(d.Pending), d.Deadline.UTC().Format(time.RFC3339))}, true
}
