package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// serving counts the voters of the record's raft group other than m that are known to serve. A member of an earlier
// group can serve too, but it does not have the data of this one.
func serving(m Member, o Observed, listed []Member) int {
	n := 0
	for _, other := range listed {
		if other.Name != m.Name && other.ofGroup(o) && other.reportsVoter() && other.up() {
			n++
		}
	}
	return n
}

// spared reports whether the other members are a healthy quorum without m. Before a raft group is formed, it is No.
func spared(m Member, o Observed, listed []Member) rules.YesNo {
	return rules.YesNoOf(o.RecordState == RecordFormed && serving(m, o, listed) >= quorum(votersOf(o, listed)))
}

// turnOf reports whether no other member replaces itself, is being removed or is being repaired. Members are repaired
// one at a time.
func turnOf(m Member, o Observed, listed []Member) rules.YesNo {
	replacing := o.Record.Replacing
	return rules.YesNoOf(o.Record.PendingRemoval == nil && (replacing == nil || replacing.Member == m.Name) &&
		!slices.ContainsFunc(listed, func(other Member) bool { return other.Name != m.Name && other.heals() }))
}

// heals reports whether the member is being repaired and has time left for it. A member that used up its time does not
// block the repair of others.
func (m Member) heals() bool {
	return !m.up() && !m.Stuck && (m.Pod&(PodAbsent|PodEnded) != 0 || m.Pod == PodTerminating && !m.NodeLost ||
		m.Claim == ClaimTerminating || m.Reports.Repairing.Restarts > 0 || m.Reports.Repairing.ClaimUID != "")
}

// healSteps repair what does not recover by itself. At most one member at a time loses its Pod or its volume.
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
			// The node is lost, and the volume is not: the Pod belongs to no node any more, and the more of them move the better.
			leaving[m.Name] = true
			add(step)
		default:
			due = append(due, step)
		}
	}
	if len(due) == 0 {
		return
	}
	// An announced step is completed before another one begins. Of two members that wait, the one with fewer restarts
	// goes first.
	step := slices.MinFunc(due, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.Stage, a.Stage), cmp.Compare(restarts(a, listed), restarts(b, listed)), cmp.Compare(a.Member, b.Member))
	})
	leaving[step.Member] = step.Kind == DeletePod
	add(step)
}

// wordStep changes only the annotation on the Lease: that a learner is not coming, or that the repair is complete.
func (m Member) wordStep(o Observed) (Step, bool) {
	if d := orphanRows.Decide(orphanFactsOf(m, o)); d.Verdict == orphanMark {
		h := m.Reports.Repairing
		h.NotComing = m.unstarted(o)
		return m.repairingStep(d.Rule, h, true), true
	}
	if m.Steady && m.Reports.Repairing != (leases.Repairing{}) {
		return m.repairingStep("healed", leases.Repairing{}, false), true
	}
	return Step{}, false
}

func restarts(s Step, listed []Member) int {
	i := slices.IndexFunc(listed, func(m Member) bool { return m.Name == s.Member })
	return listed[i].Reports.Repairing.Restarts
}

// repairingStep announces on the member's Lease the next step of the repair.
func (m Member) repairingStep(rule string, h leases.Repairing, irreversible bool) Step {
	return Step{
		Kind: MarkRepairing, Rule: rule, Stage: StageMarks, Member: m.Name, PodUID: m.PodUID, ClaimUID: m.ClaimUID,
		Repairing: &h, Irreversible: irreversible,
	}
}

// repairingProblems are those of members that do not recover by themselves, and those of orphaned objects.
func repairingProblems(o Observed, listed []Member) []Problem {
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

// maxTimeout limits how long etcd may be not ready. One hour is short enough that an operator sees the restart in the
// same shift. It is long enough that the restart is not what keeps etcd from becoming ready.
const maxTimeout = time.Hour

// MaxWait returns how long etcd may be not ready before its Pod is restarted: the grace period, doubled after each
// consecutive restart, up to one hour.
func MaxWait(grace time.Duration, restarts int) time.Duration {
	for ; restarts > 0 && grace < maxTimeout; restarts-- {
		grace = min(2*grace, maxTimeout)
	}
	return grace
}

// restartRows decide about a Pod whose etcd is not ready.
var restartRows = rules.New(wait, []rules.Row[restartFacts, verdict]{
	{Name: "not-stuck", When: restartFacts{stuck: rules.No}, Verdict: keep,
		Why: "etcd is ready, or has time left to become ready"},
	{Name: "no-pod-to-restart", When: restartFacts{stuck: rules.Yes, pod: anyPod &^ (PodUnstarted | PodLive)}, Verdict: keep,
		Why: "there is nothing to restart"},
	{Name: "restart-does-not-help", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.Yes}, Verdict: keep,
		Why: "the agent reports what it waits for, or an image cannot be pulled"},
	{Name: "restart-without-node", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: anyNode &^ NodeReady}, Verdict: keep,
		Why: "no kubelet would end the Pod, and a node that is only unreachable returns"},
	{Name: "restart-undecided", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, evidence: rules.Yes},
		Verdict: held,
		Why:     "its data is in its Pod, and no majority of the members has the same data: each copy can be the good one"},
	{Name: "restart-held", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, spare: rules.No}, Verdict: held,
		Why: "the others are not a healthy quorum without it"},
	{Name: "restart-in-turn", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, spare: rules.Yes,
		turn: rules.No},
		Verdict: wait,
		Why:     "another member is being replaced, removed or repaired"},
	{Name: "restart-announced", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady,
		spare: rules.Yes, turn: rules.Yes, marked: rules.No},
		Verdict: mark,
		Why:     "druid writes the restart to the Lease before it deletes the Pod"},
	{Name: "restart", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, spare: rules.Yes,
		turn: rules.Yes, marked: rules.Yes},
		Verdict: remove,
		Why:     "the Pod is deleted and created again with its volume"},
})

// restartFacts is the complete input of restartRows.
type restartFacts struct {
	// stuck: etcd is not ready for longer than MaxWait, and the member is not a learner that catches up.
	stuck rules.YesNo `fact:"not ready for too long"`
	pod   PodState    `fact:"Pod"`
	// waits: for something that a restart does not provide.
	waits rules.YesNo `fact:"waits for what a restart does not bring"`
	node  NodeState
	// spare: the other members are a healthy quorum. turn: no other member is being changed.
	spare rules.YesNo `fact:"the others are a quorum"`
	turn  rules.YesNo `fact:"its turn"`
	// evidence: the data of the members differs without a majority, and a restart deletes the data of this one.
	evidence rules.YesNo `fact:"its data is evidence"`
	// marked: the Lease announces the restart of this very Pod.
	marked rules.YesNo `fact:"the Lease announces it"`
}

func restartFactsOf(m Member, o Observed, listed []Member) restartFacts {
	return restartFacts{
		stuck:    rules.YesNoOf(m.Stuck),
		pod:      m.Pod,
		waits:    rules.YesNoOf(m.Blocked || !m.Readable || m.Reports.Reason != ""),
		node:     m.node(),
		spare:    spared(m, o, listed),
		turn:     turnOf(m, o, listed),
		evidence: rules.YesNoOf(m.volatile() && o.undecided()),
		marked:   rules.YesNoOf(m.Reports.Repairing.Restarts > 0 && m.Reports.Repairing.PodUID == m.PodUID),
	}
}

func (m Member) restartStep(f restartFacts) (Step, bool) {
	switch d := restartRows.Decide(f); d.Verdict {
	case mark:
		h := m.Reports.Repairing
		h.Restarts, h.PodUID = h.Restarts+1, m.PodUID
		return m.repairingStep(d.Rule, h, false), true
	case remove:
		return Step{
			Kind: DeletePod, Rule: d.Rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, Toll: TollHeal,
		}, true
	default:
		return Step{}, false
	}
}

// restartProblem names the member and the number of restarts. It stays until the member is ready.
func restartProblem(m Member, f restartFacts) (Problem, bool) {
	restarts := m.Reports.Repairing.Restarts
	verdict := restartRows.Decide(f).Verdict
	if f.waits == rules.Yes || f.node != NodeReady && m.Stuck || m.up() || restarts == 0 && verdict&(held|wait) == 0 {
		return Problem{}, false // it is reported elsewhere, or there is nothing to report yet
	}
	p := Problem{Reason: v1alpha1.ReasonMemberStuck, Member: m.Name}
	switch {
	case verdict == held && f.evidence == rules.Yes:
		p.Message = fmt.Sprintf("its etcd is not ready after %s. druid does not restart its Pod. No majority of the members has the same data, "+
			"and a restart would delete that of this member. Save it, and then delete the Pod", counted(restarts, "restart"))
	case verdict == held:
		p.Message = fmt.Sprintf("its etcd is not ready after %s. druid does not restart its Pod, because the other members "+
			"are not a healthy quorum without it. kubectl logs %s -c etcd shows the cause", counted(restarts, "restart"), m.Name)
	case verdict == wait:
		p.Message = fmt.Sprintf("its etcd is not ready after %s. druid restarts its Pod when no other member is being repaired",
			counted(restarts, "restart"))
	default:
		p.Message = fmt.Sprintf("its etcd did not become ready, and its Pod was restarted: %s in a row. kubectl logs %s -c etcd shows the cause",
			counted(restarts, "restart"), m.Name)
	}
	return p, true
}

func counted[N ~int | ~int64](n N, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// node is the state of the node that matters to the member, unknown where druid did not look.
func (m Member) node() NodeState {
	if m.Node == 0 {
		return NodeUnknown
	}
	return m.Node
}

// unstarted returns the ID of the learner at the member's peer URL that never started, or "".
func (m Member) unstarted(o Observed) string {
	if o.Record.MemberList == nil {
		return ""
	}
	for _, entry := range o.Record.MemberList.Members {
		if entry.Learner && entry.Name == "" && leases.MemberOfURL(entry.PeerURL) == m.Name {
			return entry.ID
		}
	}
	return ""
}
