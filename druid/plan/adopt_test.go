package plan

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestEditsAreAdoptedWhenNothingIsHalfDone(t *testing.T) {
	checkTable(t, adoptions, "spec-adoption", "Whether an edit of the spec is adopted: druid/plan.adoptions", func(f adoptionFacts, d rules.Decision[consent]) string {
		verdict := d.Verdict
		adopts := verdict == consentAdopt
		underWay := f.life != lifeNeverFormed && f.reached == rules.No && f.clock == ClockRuns
		switch {
		case f.seen == SeenSame && verdict != consentNothing:
			return "writes what is written already"
		case f.seen == SeenFirst && adopts && f.life != lifeFormed && f.origin == rules.No:
			return "forms a cluster of no one knows what"
		case f.seen == SeenFirst && !adopts && (f.life == lifeFormed || f.origin == rules.Yes):
			return "works towards nothing"
		case f.seen != SeenEdited:
		case adopts && underWay && f.effect == effectAnother && f.stalled == rules.No:
			return "mixes two operations"
		case adopts && f.life == lifeNeverFormed && f.clock == ClockPassed:
			return "takes up a bootstrap that failed"
		case !adopts && f.reached == rules.Yes && f.life != lifeNeverFormed:
			return "keeps an edit waiting for nothing"
		case !adopts && f.clock != ClockRuns && f.life != lifeNeverFormed:
			return "keeps an edit waiting after the deadline, or without one"
		case !adopts && (f.effect != effectAnother || f.stalled == rules.Yes) && f.life != lifeNeverFormed:
			return "keeps out what begins nothing, or may be the cure"
		}
		return ""
	})
}

func TestEffectOfAnEdit(t *testing.T) {
	checkTable(t, effects, "edit-effect", "What an edit would change in what is under way: druid/plan.effects", func(f effectFacts, d rules.Decision[effect]) string {
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
	backedUp.Backup, backedUp.BackupReported = true, BackupReportedGood
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
		"other Pods, while one is made again":      {running(3), edited(brought(0, restarted)), other, Adoption{}},
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
			if got := Adopt(test.d, test.o, test.e); got != test.want {
				t.Errorf("got %+v, want %+v by facts %+v", got, test.want, adoptionFactsOf(test.d, test.o, test.e))
			}
		})
	}
}
