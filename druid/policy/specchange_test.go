package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestEditsAreAdoptedWhenNothingIsHalfDone(t *testing.T) {
	checkTable(t, adoptions, "spec-adoption", "Acceptance of a spec change: druid/policy.adoptions",
		func(f adoptionFacts, d rules.Decision[specDecision]) string {
			verdict := d.Verdict
			adopts := verdict == specDecisionAdopt
			inProgress := f.formationState != formationNeverFormed && f.reached == rules.No && f.clock == ClockRuns
			switch {
			case f.handsOff == rules.Yes && f.seen != SeenSame:
				if adopts {
					return "accepts a change on which it must not act"
				}
			case f.seen == SeenSame && verdict != specDecisionNothing:
				return "writes what is written already"
			case f.seen == SeenFirst && adopts && f.formationState != formationFormed && f.origin == rules.No:
				return "forms a cluster from an unknown source"
			case f.seen == SeenFirst && !adopts && (f.formationState == formationFormed || f.origin == rules.Yes):
				return "works towards nothing"
			case f.seen != SeenEdited:
			case adopts && inProgress && f.effect == effectAnother && f.stalled == rules.No && f.requested == rules.No:
				return "mixes two operations"
			case adopts && f.formationState == formationNeverFormed && f.clock == ClockPassed:
				return "takes up a bootstrap that failed"
			case !adopts && f.reached == rules.Yes && f.formationState != formationNeverFormed:
				return "keeps an edit waiting for nothing"
			case !adopts && f.clock != ClockRuns && f.formationState != formationNeverFormed:
				return "keeps an edit waiting after the deadline, or without one"
			case !adopts && (f.effect != effectAnother || f.stalled == rules.Yes || f.requested == rules.Yes) && f.formationState != formationNeverFormed:
				return "keeps out what begins nothing, or may be the repair"
			}
			return ""
		})
}

func TestEffectOfAnEdit(t *testing.T) {
	checkTable(t, effects, "edit-effect", "Impact of a spec change: druid/policy.effects",
		func(f effectFacts, d rules.Decision[effect]) string {
			if begins := f.pods == podsAnother || f.size == sizeAnother; begins != (d.Verdict == effectAnother) {
				return "wrong of what begins something else"
			}
			return ""
		})
}

// running is a target with time left.
func running(replicas int) Desired {
	return Desired{Replicas: replicas, ClusterID: 9, Target: Target{Deadline: someTime}}
}

func TestAdoption(t *testing.T) {
	all := func(made PodMake) map[string]PodMake {
		return map[string]PodMake{"c-a": made, "c-b": made, "c-c": made}
	}
	same := func(replicas int) Edit { return Edit{Seen: SeenEdited, Replicas: replicas, SamePods: true} }
	other := Edit{Seen: SeenEdited, Replicas: 3, Makes: all(MakeOutdated)}
	now := other
	now.Requested = true
	joining := func(o *Observed) {
		m := &o.Members[2]
		m.Reports, m.Voter, m.Serving, m.EtcdReady, m.Liveness = leases.Member{}, false, false, false, leases.Never
	}
	restarted := func(m *Member) { m.EtcdReady, m.Stable, m.Pod = false, false, PodUnstarted }
	noImage := func(m *Member) { m.EtcdReady, m.Stable, m.Idle, m.Blocked = false, false, true, true }
	passed := running(3)
	passed.Expired = true
	refused := running(3)
	refused.Refused = true
	backedUp := running(3)
	backedUp.Backup, backedUp.BackupReported = true, BackupReportedGood
	tests := map[string]struct {
		d    Desired
		o    Observed
		e    Edit
		want Adoption
	}{
		"a new cluster":                          {Desired{Replicas: 3}, Observed{RecordState: RecordAbsent}, Edit{Seen: SeenFirst}, Adoption{"first-spec", true}},
		"a new cluster of none":                  {Desired{}, Observed{RecordState: RecordAbsent}, Edit{Seen: SeenFirst}, Adoption{"first-spec", false}},
		"an old cluster of which all is well":    {Desired{Replicas: 3}, whole(), Edit{Seen: SeenFirst}, Adoption{"first-spec", false}},
		"an old cluster in the middle of it":     {Desired{Replicas: 3}, edited(), Edit{Seen: SeenFirst}, Adoption{"first-spec", true}},
		"nothing new":                            {running(3), edited(), Edit{Seen: SeenSame}, Adoption{}},
		"a mistake in a new cluster":             {running(3), Observed{RecordState: RecordForming}, other, Adoption{"not-formed", true}},
		"other Pods, of a cluster that is whole": {Desired{Replicas: 3}, whole(), other, Adoption{"target-reached", true}},
		"another schedule":                       {Desired{Replicas: 3}, whole(), same(3), Adoption{"target-reached", false}},
		"larger volumes": {Desired{Replicas: 3}, whole(), Edit{Seen: SeenEdited, Replicas: 3, SamePods: true, Grows: true},
			Adoption{"target-reached", true}},
		"other Pods, in the middle":             {running(3), edited(brought(0)), other, Adoption{}},
		"other Pods, in the middle, on request": {running(3), edited(brought(0)), now, Adoption{"apply-now", true}},
		"other Pods, while one is made again":   {running(3), edited(brought(0, restarted)), other, Adoption{}},
		"other Pods, while one cannot start":    {running(3), edited(brought(0, noImage)), other, Adoption{"stalled", true}},
		"the old Pods, in the middle": {running(3), edited(brought(0)),
			Edit{Seen: SeenEdited, Replicas: 3, Makes: map[string]PodMake{"c-a": MakeOutdated, "c-b": MakeCurrent, "c-c": MakeCurrent}}, Adoption{"reverts", true}},
		"another schedule, in the middle":      {running(3), edited(brought(0)), same(3), Adoption{"replaces-nothing", false}},
		"other Pods, after the deadline":       {passed, edited(brought(0)), other, Adoption{"retry-after-deadline", true}},
		"another schedule, after the deadline": {passed, edited(brought(0)), same(3), Adoption{"retry-after-deadline", true}},
		"other Pods, while a member heals": {Desired{Replicas: 3}, whole(func(o *Observed) { restarted(&o.Members[0]) }), other,
			Adoption{"no-change-in-progress", true}},
		"other Pods, while backups fail": {backedUp,
			edited(brought(0), func(o *Observed) { o.Full.Liveness, o.Delta.Liveness = leases.Stale, leases.Live }), other, Adoption{"stalled", true}},
		"other Pods, while Pods are refused":       {refused, edited(brought(0)), other, Adoption{"stalled", true}},
		"more, while one leaves":                   {running(1), whole(), same(3), Adoption{"reverts", true}},
		"fewer, while one leaves":                  {running(2), whole(), same(1), Adoption{}},
		"fewer, while one comes that did not join": {running(3), whole(joining), same(2), Adoption{"reverts", true}},
		"fewer than joined, while one comes":       {running(3), whole(joining), same(1), Adoption{}},
		"more, while one comes":                    {running(3), whole(joining), same(5), Adoption{}},
		"a bootstrap that failed":                  {passed, Observed{RecordState: RecordForming}, other, Adoption{"not-formed", true}},
	}
	// Of a cluster that never formed the status reports no ID.
	for _, name := range []string{"a mistake in a new cluster", "a bootstrap that failed"} {
		test := tests[name]
		test.d.ClusterID = 0
		if tests[name] = test; test.d.Expired {
			test.want = Adoption{}
			tests[name] = test
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Adopt(Evaluate(test.d, test.o), test.e); got != test.want {
				t.Errorf("got %+v, want %+v by facts %+v", got, test.want, adoptionFactsOf(Evaluate(test.d, test.o), test.e))
			}
		})
	}
}

var someTime = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func TestOverdueChanges(t *testing.T) {
	checkTable(t, overdueRules, "lapses", "Condition Progressing and the deadline: druid/policy.overdueRules",
		func(f overdueFacts, d rules.Decision[conditionVerdict]) string {
			reason := d.Verdict.reason
			switch {
			case reason == v1alpha1.ReasonBootstrapFailed && (f.wasFormed == rules.Yes || f.expired == rules.No):
				return "gives up a cluster that formed, or has time"
			case (reason == v1alpha1.ReasonHandsOff) != (f.handsOff == rules.Yes):
				return "hides or invents that druid must not act"
			case reason == v1alpha1.ReasonDeadlineExceeded && f.expired == rules.No:
				return "stops what has time"
			case reason == "" && f.expired == rules.Yes && f.record&(RecordForeign|RecordUnreadable) == 0:
				return "does not report that druid stopped"
			}
			return ""
		})
}

func TestOverdueRollouts(t *testing.T) {
	checkTable(t, overdueRollouts, "brakes", "A rolling update whose deadline passed: druid/policy.overdueRollouts",
		func(f overdueRolloutFacts, d rules.Decision[verdict]) string {
			if f.verdict&(keep|wait|held|remove|mark) == 0 {
				return rulestest.Impossible
			}
			got := braked(f.expired, rules.Decision[verdict]{Verdict: f.verdict}).Verdict
			if f.expired == rules.No && got != f.verdict || f.expired == rules.Yes && got == remove {
				return "makes " + got.String() + " of " + f.verdict.String()
			}
			return ""
		})
}

func TestStepsAfterTheDeadline(t *testing.T) {
	late := func(replicas int) Desired {
		return Desired{Replicas: replicas, ClusterID: 9, Target: Target{Deadline: someTime, Expired: true}}
	}
	lost := func(o *Observed) {
		o.Members[1].Pod, o.Members[1].EtcdReady, o.Members[1].PodUID = PodAbsent, false, ""
	}
	slot := func(state leases.RemovalState) func(*Observed) {
		return func(o *Observed) {
			o.Record.PendingRemoval, o.BudgetMin = &leases.PendingRemoval{Member: "c-c", Mark: "m"}, 3
			o.Members[2].Serving = false
			if state != "" {
				o.Members[2].Reports.Removal = leases.RemovalRequest{State: state, Mark: "m", By: "pod-c-a", ClusterID: leases.FormatID(9)}
				leading(o, 0)
			}
		}
	}
	neverFormed := late(3)
	neverFormed.ClusterID = 0
	tests := map[string]struct {
		d      Desired
		o      Observed
		want   []string
		reason string
	}{
		"no names are drawn":                  {late(5), whole(), []string{}, v1alpha1.ReasonDeadlineExceeded},
		"no slot is taken":                    {late(1), whole(), []string{}, v1alpha1.ReasonDeadlineExceeded},
		"a slot without a mark is given back": {late(1), whole(slot("")), []string{"FreeSlot reverted c-c"}, v1alpha1.ReasonDeadlineExceeded},
		"a request that was not claimed is taken back": {late(1), whole(slot(leases.RemovalRequested)), []string{
			"WithdrawRemoval reverted-request c-c",
		}, v1alpha1.ReasonDeadlineExceeded},
		"a removal that was claimed goes on": {late(1), whole(slot(leases.RemovalBegun)), []string{}, v1alpha1.ReasonDeadlineExceeded},
		"a removal that is done is ended":    {late(1), whole(slot(leases.RemovalDone)), []string{"RemoveName removed c-c"}, v1alpha1.ReasonDeadlineExceeded},
		"no Pod is replaced, and evictions are allowed again": {late(3), edited(brought(0)), []string{
			"ApplyBudget budget-lowered  2",
		}, v1alpha1.ReasonDeadlineExceeded},
		"a lost Pod comes back": {late(5), whole(lost), []string{"CreatePod pod-missing c-b"}, v1alpha1.ReasonDeadlineExceeded},
		"nothing was left":      {late(3), whole(), []string{}, v1alpha1.ReasonReconciled},
		"no cluster is formed":  {neverFormed, Observed{RecordState: RecordAbsent}, []string{}, v1alpha1.ReasonBootstrapFailed},
		"a bootstrap is left alone": {neverFormed, Observed{
			RecordState: RecordForming, SeedStuck: rules.Yes, Record: leases.Record{Members: []string{"c-a"}, Seed: "c-a"},
			Members: []Member{{Name: "c-a", Listed: true, Lease: LeaseAbsent, Claim: ClaimAbsent, Pod: PodAbsent}},
		}, []string{}, v1alpha1.ReasonBootstrapFailed},
		"a cluster that formed late": {neverFormed, whole(), []string{}, v1alpha1.ReasonReconciled},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSteps(t, test.want, short(Steps(Evaluate(test.d, test.o))))
			before := v1alpha1.EtcdClusterStatus{ProgressDeadline: new(metav1.NewTime(someTime))}
			s := Status(Evaluate(test.d, test.o), before, nil, 1, metav1.NewTime(someTime.Add(time.Hour)))
			p := condition(s, v1alpha1.ConditionProgressing)
			if p.Reason != test.reason || p.Status != metav1.ConditionFalse {
				t.Errorf("condition is %+v, want %s", p, test.reason)
			}
			stopped := slices.Contains([]string{v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonBootstrapFailed}, p.Reason)
			if stopped != strings.Contains(p.Message, "status.progressDeadline") || stopped != (s.ProgressDeadline != nil) {
				t.Errorf("message %q, deadline %v", p.Message, s.ProgressDeadline)
			}
		})
	}
}

// TestJoinRestartsBootstrapDeadline: the deadline of a bootstrap begins again for those who join.
func TestJoinRestartsBootstrapDeadline(t *testing.T) {
	joins := func(o *Observed) { o.Members[2].Reports.Role, o.Members[2].Voter = leases.RoleLearner, false }
	d := Desired{Replicas: 3, Target: Target{Deadline: someTime, Expired: true, Allowed: time.Minute}}
	before := v1alpha1.EtcdClusterStatus{ProgressDeadline: new(metav1.NewTime(someTime))}
	now := metav1.NewTime(someTime.Add(time.Hour))
	s := Status(Evaluate(d, whole(joins)), before, nil, 1, now)
	if want := now.Add(time.Minute); s.ProgressDeadline == nil || !s.ProgressDeadline.Time.Equal(want) {
		t.Errorf("deadline is %v, want %v", s.ProgressDeadline, want)
	}
	// From then on it belongs to the user alone.
	if again := Status(Evaluate(d, whole(joins)), s, nil, 1, metav1.NewTime(now.Add(time.Hour))); !again.ProgressDeadline.Equal(s.ProgressDeadline) {
		t.Errorf("deadline is %v, was %v", again.ProgressDeadline, s.ProgressDeadline)
	}
}

func TestAnEditThatWaitsIsReportedOnce(t *testing.T) {
	d := running(3)
	d.Pending = 7
	o := edited(brought(0))
	e, waits := PendingEvent(d, v1alpha1.EtcdClusterStatus{})
	if !waits || e.Reason != v1alpha1.EventSpecChangePending || !strings.Contains(e.Note, "generation 7") {
		t.Errorf("got %+v, %t", e, waits)
	}
	s := Status(Evaluate(d, o), v1alpha1.EtcdClusterStatus{ProgressDeadline: new(metav1.NewTime(someTime))}, nil, 6, metav1.Now())
	p := condition(s, v1alpha1.ConditionProgressing)
	if p.Reason != v1alpha1.ReasonRollingUpdate ||
		!strings.Contains(p.Message, "The edit (generation 7 of spec) is accepted when that is complete, or at 2026-11-22T10:00:00Z") {
		t.Errorf("condition is %+v", p)
	}
	if _, again := PendingEvent(d, s); again || s.ObservedGeneration != 6 {
		t.Errorf("it is reported again, or the status answers generation %d", s.ObservedGeneration)
	}
}

// TestFailedBootstrapEditNotPromised: an edit of a cluster that failed to form is not promised.
func TestFailedBootstrapEditNotPromised(t *testing.T) {
	d := Desired{Replicas: 3, Target: Target{Deadline: someTime, Expired: true, Allowed: time.Minute, Pending: 7}}
	o := Observed{RecordState: RecordAbsent}
	before := v1alpha1.EtcdClusterStatus{ProgressDeadline: new(metav1.NewTime(someTime))}
	s := Status(Evaluate(d, o), before, nil, 6, metav1.NewTime(someTime.Add(time.Hour)))
	p := condition(s, v1alpha1.ConditionProgressing)
	if p.Reason != v1alpha1.ReasonBootstrapFailed || !strings.Contains(p.Message, "Until then, generation 7 of spec is not accepted") {
		t.Errorf("condition is %s %q, and reports nothing of the edit", p.Reason, p.Message)
	}
	if e, reported := PendingEvent(d, before); reported {
		t.Errorf("%q reports an edit that is not adopted", e.Note)
	}
}

// TestDeadlineStoppedPauseReported: a pause that its deadline stopped reports so.
func TestDeadlineStoppedPauseReported(t *testing.T) {
	o := whole(last, func(o *Observed) { o.Members[0].Pod, o.Members[0].EtcdReady = PodUnscheduled, false })
	s := Evaluate(Desired{ClusterID: 9, Target: Target{Expired: true}}, o).pause
	if !s.is(pauseHeld) || !strings.Contains(s.hindrance, "progressDeadline") {
		t.Errorf("%s is held because %q, want the deadline", s.rule, s.hindrance)
	}
}
