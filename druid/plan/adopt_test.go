package plan

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

var (
	seenWords    = []string{"for the first time", "as adopted", "edited"}
	clockWords   = []string{"none", "runs", "passed"}
	lifeWords    = []string{"unborn", "born", "unknown"}
	effectWords  = []string{"needs no operation", "takes back", "begins another"}
	podsWords    = []string{"the same", "those of before", "others"}
	sizeWords    = []string{"the same", "as before", "another"}
	consentWords = map[consent]string{consentNothing: "Nothing", consentWait: "Wait", consentAdopt: "Adopt"}
)

func TestEditsAreAdoptedWhenNothingIsHalfDone(t *testing.T) {
	count := map[string]int{}
	for _, seen := range bits(anySeen) {
		for _, life := range bits(anyLife) {
			for _, reached := range bits(anyAnswer) {
				for _, clock := range bits(anyClock) {
					for _, effect := range bits(anyEffect) {
						for _, stalled := range bits(anyAnswer) {
							for _, origin := range bits(anyAnswer) {
								checkAdoption(t, adoptionFacts{seen, life, reached, clock, effect, stalled, origin}, count)
							}
						}
					}
				}
			}
		}
	}
	var names []string
	var rows [][]string
	for _, r := range adoptions {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, cell(r.seen, anySeen, seenWords), cell(r.life, anyLife, lifeWords), answer(r.reached), cell(r.clock, anyClock, clockWords),
			cell(r.effect, anyEffect, effectWords), answer(r.stalled), answer(r.origin), bold(consentWords[r.consent]), r.why,
		})
	}
	fired(t, count, names...)
	section(t, "spec-adoption", "Whether an edit of the spec is adopted: druid/plan.adoptions", []string{
		"spec is seen", "raft group", "target reached", "deadline", "the edit", "under way gets stuck", "its snapshot known", "verdict", "why",
	}, rows, count)
}

func checkAdoption(t *testing.T, f adoptionFacts, count map[string]int) {
	t.Helper()
	verdict, rule := judgeAdoption(f)
	count[rule]++
	adopts := verdict == consentAdopt
	underWay := f.life != lifeUnborn && f.reached == rules.No && f.clock == ClockRuns
	switch {
	case f.seen == SeenSame && verdict != consentNothing:
		t.Errorf("%+v: %s writes what is written already", f, rule)
	case f.seen == SeenFirst && adopts && f.life != lifeBorn && f.origin == rules.No:
		t.Errorf("%+v: %s forms a cluster of nobody knows what", f, rule)
	case f.seen == SeenFirst && !adopts && (f.life == lifeBorn || f.origin == rules.Yes):
		t.Errorf("%+v: %s works towards nothing", f, rule)
	case f.seen != SeenEdited:
	case adopts && underWay && f.effect == effectAnother && f.stalled == rules.No:
		t.Errorf("%+v: %s mixes two operations", f, rule)
	case adopts && f.life == lifeUnborn && f.clock == ClockPassed:
		t.Errorf("%+v: %s takes up a birth that failed", f, rule)
	case !adopts && f.reached == rules.Yes && f.life != lifeUnborn:
		t.Errorf("%+v: %s keeps an edit waiting for nothing", f, rule)
	case !adopts && f.clock != ClockRuns && f.life != lifeUnborn:
		t.Errorf("%+v: %s keeps an edit waiting after the deadline, or without one", f, rule)
	case !adopts && (f.effect != effectAnother || f.stalled == rules.Yes) && f.life != lifeUnborn:
		t.Errorf("%+v: %s keeps out what begins nothing, or may be the cure", f, rule)
	}
}

func TestEffectOfAnEdit(t *testing.T) {
	count := map[string]int{}
	for _, pods := range bits(anyPodEffect) {
		for _, size := range bits(anySizeEffect) {
			effect, rule := judgeEffect(pods, size)
			count[rule]++
			if begins := pods == podsAnother || size == sizeAnother; begins != (effect == effectAnother) {
				t.Errorf("pods %d, size %d: %s says %d", pods, size, rule, effect)
			}
		}
	}
	var names []string
	var rows [][]string
	for _, r := range effects {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, cell(r.pods, anyPodEffect, podsWords), cell(r.size, anySizeEffect, sizeWords), bold(effectWords[r.effect>>1]),
		})
	}
	fired(t, count, names...)
	section(t, "edit-effect", "What an edit would change in what is under way: druid/plan.effects",
		[]string{"it asks for Pods", "it asks for a size", "so it"}, rows, count)
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
	joining := func(o *Observed) {
		m := &o.Members[2]
		m.Says, m.Voter, m.Serving, m.EtcdReady, m.Liveness = leases.Member{}, false, false, false, leases.Never
	}
	restarted := func(m *Member) { m.EtcdReady, m.Settled, m.Pod = false, false, PodUnstarted }
	noImage := func(m *Member) { m.EtcdReady, m.Settled, m.Idle, m.Blocked = false, false, true, true }
	passed := running(3)
	passed.Expired = true
	refused := running(3)
	refused.Refused = true
	backedUp := running(3)
	backedUp.Backup, backedUp.BackupTold = true, BackupToldGood
	tests := map[string]struct {
		d    Desired
		o    Observed
		e    Edit
		want Adoption
	}{
		"a new cluster":                            {Desired{Replicas: 3}, Observed{RecordState: RecordAbsent}, Edit{Seen: SeenFirst}, Adoption{"first-sight", true}},
		"a new cluster of none":                    {Desired{}, Observed{RecordState: RecordAbsent}, Edit{Seen: SeenFirst}, Adoption{"first-sight", false}},
		"an old cluster of which all is well":      {Desired{Replicas: 3}, whole(), Edit{Seen: SeenFirst}, Adoption{"first-sight", false}},
		"an old cluster in the middle of it":       {Desired{Replicas: 3}, edited(), Edit{Seen: SeenFirst}, Adoption{"first-sight", true}},
		"nothing new":                              {running(3), edited(), Edit{Seen: SeenSame}, Adoption{}},
		"a mistake in a new cluster":               {running(3), Observed{RecordState: RecordForming}, other, Adoption{"not-formed", true}},
		"other Pods, of a cluster that is whole":   {Desired{Replicas: 3}, whole(), other, Adoption{"target-reached", true}},
		"another schedule":                         {Desired{Replicas: 3}, whole(), same(3), Adoption{"target-reached", false}},
		"larger volumes":                           {Desired{Replicas: 3}, whole(), Edit{Seen: SeenEdited, Replicas: 3, SamePods: true, Grows: true}, Adoption{"target-reached", true}},
		"other Pods, in the middle":                {running(3), edited(brought(0)), other, Adoption{}},
		"other Pods, while one is made anew":       {running(3), edited(brought(0, restarted)), other, Adoption{}},
		"other Pods, while one cannot start":       {running(3), edited(brought(0, noImage)), other, Adoption{"stalled", true}},
		"the old Pods, in the middle":              {running(3), edited(brought(0)), Edit{Seen: SeenEdited, Replicas: 3, Makes: map[string]PodMake{"c-a": MakeOutdated, "c-b": MakeCurrent, "c-c": MakeCurrent}}, Adoption{"takes-back", true}},
		"another schedule, in the middle":          {running(3), edited(brought(0)), same(3), Adoption{"needs-no-operation", false}},
		"other Pods, after the deadline":           {passed, edited(brought(0)), other, Adoption{"retry-after-deadline", true}},
		"another schedule, after the deadline":     {passed, edited(brought(0)), same(3), Adoption{"retry-after-deadline", true}},
		"other Pods, while a member heals":         {Desired{Replicas: 3}, whole(func(o *Observed) { restarted(&o.Members[0]) }), other, Adoption{"no-operation", true}},
		"other Pods, while backups fail":           {backedUp, edited(brought(0), func(o *Observed) { o.Full.Liveness, o.Delta.Liveness = leases.Stale, leases.Live }), other, Adoption{"stalled", true}},
		"other Pods, while Pods are refused":       {refused, edited(brought(0)), other, Adoption{"stalled", true}},
		"more, while one leaves":                   {running(1), whole(), same(3), Adoption{"takes-back", true}},
		"fewer, while one leaves":                  {running(2), whole(), same(1), Adoption{}},
		"fewer, while one comes that did not join": {running(3), whole(joining), same(2), Adoption{"takes-back", true}},
		"fewer than joined, while one comes":       {running(3), whole(joining), same(1), Adoption{}},
		"more, while one comes":                    {running(3), whole(joining), same(5), Adoption{}},
		"a birth that failed":                      {passed, Observed{RecordState: RecordForming}, other, Adoption{"not-formed", true}},
	}
	// Of a cluster that never formed the status tells no ID.
	for _, name := range []string{"a mistake in a new cluster", "a birth that failed"} {
		test := tests[name]
		test.d.ClusterID = 0
		if tests[name] = test; test.d.Expired {
			test.want = Adoption{}
			tests[name] = test
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Adopt(test.d, test.o, test.e); got != test.want {
				t.Errorf("got %+v, want %+v by facts %+v", got, test.want, adoptionFactsOf(test.d, test.o, test.e))
			}
		})
	}
}
