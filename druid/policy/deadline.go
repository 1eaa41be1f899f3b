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

// overdueRolloutFacts is the complete input of overdueRollouts.
type overdueRolloutFacts struct {
	expired rules.YesNo `fact:"deadline passed"`
	verdict verdict     // of the rolling update
}

// overdueRollouts stop a rolling update after the deadline. Nothing else needs such a table: after the deadline, the
// present number of members counts as the desired one.
var overdueRollouts = rules.New(held, []rules.Row[overdueRolloutFacts, verdict]{
	{Name: "in-time", When: overdueRolloutFacts{expired: rules.No, verdict: keep | wait | held | remove | mark}, Verdict: keep},
	{Name: "continues", When: overdueRolloutFacts{expired: rules.Yes, verdict: keep | held | mark}, Verdict: keep},
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
func bootstrapFailed(e Evaluation) bool {
	return e.Expired && formationStateOf(e) == formationNeverFormed
}

// deadlineAfter returns the deadline that the status keeps, or nil if the target is reached. A cluster that has just
// formed gets the full time for the members that join it, because a bootstrap from a backup can have used all of it.
func deadlineAfter(e Evaluation, formedNow bool, before *metav1.Time, now metav1.Time) *metav1.Time {
	switch {
	case before == nil || reached(e) == rules.Yes:
		return nil
	case formedNow && before.Time.Before(now.Add(e.Allowed)):
		return new(metav1.NewTime(now.Add(e.Allowed).Truncate(time.Second)))
	default:
		return before
	}
}

func generation(n int64) string { return fmt.Sprintf("generation %d of spec", n) }

// adoptionReasons are the reasons of Progressing after an accepted edit, by rule, where the reason is not SpecChanged.
var adoptionReasons = map[string]string{
	"first-spec": v1alpha1.ReasonSpecAccepted, "retry-after-deadline": v1alpha1.ReasonRetryAfterDeadline,
}

// Adopted returns the status after the spec of a generation is accepted. The rest of the status stays, because it
// reports earlier observations.
func (a Adoption) Adopted(before v1alpha1.EtcdClusterStatus, spec v1alpha1.EtcdClusterSpec, number int64, allowed time.Duration,
	now metav1.Time) (v1alpha1.EtcdClusterStatus, error) {
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
	setToolConditions(&s.Conditions, number, now)
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
	if d.Pending == 0 || d.Expired || d.HandsOff != "" || strings.Contains(was.Message, generation(d.Pending)) {
		return Event{}, false
	}
	return Event{Reason: v1alpha1.EventSpecChangePending, Note: fmt.Sprintf("%s waits until the change in progress is complete, at most until %s",
		generation(d.Pending), d.Deadline.UTC().Format(time.RFC3339))}, true
}
