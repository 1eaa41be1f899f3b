package plan

import (
	"cmp"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// serving counts the voters other than m that are known to serve.
func serving(m Member, listed []Member) int {
	n := 0
	for _, other := range listed {
		if other.Name != m.Name && other.saysVoter() && other.up() {
			n++
		}
	}
	return n
}

// spared says whether the others are a healthy quorum without m. Before a raft group was formed no one is spared.
func spared(m Member, o Observed, listed []Member) rules.YesNo {
	return rules.YesNoOf(o.RecordState == RecordFormed && serving(m, listed) >= quorum(votersOf(o, listed)))
}

// turnOf says whether no one else replaces itself, leaves or heals: members are repaired one after another.
func turnOf(m Member, o Observed, listed []Member) rules.YesNo {
	replacing := o.Record.Replacing
	return rules.YesNoOf(o.Record.Retiring == nil && (replacing == nil || replacing.Member == m.Name) &&
		!slices.ContainsFunc(listed, func(other Member) bool { return other.Name != m.Name && other.heals() }))
}

// heals says whether the member is being brought back and has had no time for it yet. One whose time is over does not keep
// others from being repaired.
func (m Member) heals() bool {
	return !m.up() && !m.Stuck && (m.Pod&(PodAbsent|PodEnded) != 0 || m.Pod == PodTerminating && !m.NodeLost ||
		m.Claim == ClaimTerminating || m.Says.Healing.Restarts > 0 || m.Says.Healing.ClaimUID != "")
}

// healSteps repair what does not repair itself: at most one member at a time loses its Pod or its volume.
func healSteps(o Observed, listed []Member, leaving map[string]bool, add func(Step)) {
	if slices.ContainsFunc(listed, func(m Member) bool { return leaving[m.Name] }) {
		return // a Pod goes by this plan already; the next one sees what became of it
	}
	var due []Step
	for _, m := range listed {
		if word, ok := m.wordStep(o); ok {
			add(word)
			continue
		}
		step, ok := m.nodeStep(nodeFactsOf(m, o, listed))
		if !ok {
			step, ok = m.restartStep(restartFactsOf(m, o, listed))
		}
		switch {
		case !ok:
		case step.Rule == ruleElsewhere:
			// The node is lost, and the volume is not: the Pod is no one's any more, and the more of them move the better.
			leaving[m.Name] = true
			add(step)
		default:
			due = append(due, step)
		}
	}
	if len(due) == 0 {
		return
	}
	// What was announced is finished before anything else is begun; of two that wait the one that was restarted less.
	step := slices.MinFunc(due, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.Stage, a.Stage), cmp.Compare(restarts(a, listed), restarts(b, listed)), cmp.Compare(a.Member, b.Member))
	})
	leaving[step.Member] = step.Kind == DeletePod
	add(step)
}

// wordStep changes what the Lease says of the member, and nothing else: that a learner is not coming, or that all is well.
func (m Member) wordStep(o Observed) (Step, bool) {
	if d := orphanRows.Decide(orphanFactsOf(m, o)); d.Verdict == orphanMark {
		h := m.Says.Healing
		h.NotComing = m.unstarted(o)
		return m.healingStep(d.Rule, h, true), true
	}
	if m.Steady && m.Says.Healing != (leases.Healing{}) {
		return m.healingStep("healed", leases.Healing{}, false), true
	}
	return Step{}, false
}

func restarts(s Step, listed []Member) int {
	i := slices.IndexFunc(listed, func(m Member) bool { return m.Name == s.Member })
	return listed[i].Says.Healing.Restarts
}

// healingStep announces on the member's Lease what is about to be done.
func (m Member) healingStep(rule string, h leases.Healing, irreversible bool) Step {
	return Step{
		Kind: MarkHealing, Rule: rule, Stage: StageMarks, Member: m.Name, PodUID: m.PodUID, ClaimUID: m.ClaimUID,
		Healing: &h, Irreversible: irreversible,
	}
}

// healingProblems are those of members that do not repair themselves, and of what bears a name and is no member's.
func healingProblems(o Observed, listed []Member) []Problem {
	var all []Problem
	for _, m := range listed {
		p, found := nodeProblem(m, nodeFactsOf(m, o, listed))
		if !found {
			p, found = restartProblem(m, restartFactsOf(m, o, listed))
		}
		if found {
			all = append(all, p)
		}
	}
	for _, m := range o.Members {
		if p, found := orphanProblem(m, o); found {
			all = append(all, p)
		}
	}
	return all
}
