package plan

import (
	"fmt"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// maxPatience with an etcd that is not ready. An hour is short enough to be met in the same watch, and long enough that no
// restart is what keeps an etcd from becoming ready.
const maxPatience = time.Hour

// Patience is how long etcd may be not ready before its Pod is restarted: the grace period, twice as long after each
// restart in a row.
func Patience(grace time.Duration, restarts int) time.Duration {
	for ; restarts > 0 && grace < maxPatience; restarts-- {
		grace = min(2*grace, maxPatience)
	}
	return grace
}

// restartRows decide about a Pod whose etcd is not ready.
var restartRows = rules.New(wait, []rules.Row[restartFacts, verdict]{
	{Name: "not-stuck", When: restartFacts{stuck: rules.No}, Verdict: keep,
		Why: "etcd is ready, or has time left to become so"},
	{Name: "no-pod-to-restart", When: restartFacts{stuck: rules.Yes, pod: anyPod &^ (PodUnstarted | PodLive)}, Verdict: keep,
		Why: "there is nothing to restart"},
	{Name: "restart-cures-nothing", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.Yes}, Verdict: keep,
		Why: "the agent says what it waits for, or an image cannot be had"},
	{Name: "restart-without-node", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: anyNode &^ NodeReady}, Verdict: keep,
		Why: "no one would end the Pod; and a node that is merely away comes back"},
	{Name: "restart-held", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, spare: rules.No}, Verdict: held,
		Why: "the others are not a healthy quorum without it"},
	{Name: "restart-in-turn", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, spare: rules.Yes, turn: rules.No}, Verdict: wait,
		Why: "another member is being replaced, removed or repaired"},
	{Name: "restart-announced", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, spare: rules.Yes, turn: rules.Yes, marked: rules.No}, Verdict: mark,
		Why: "the Lease counts the restart before it is done"},
	{Name: "restart", When: restartFacts{stuck: rules.Yes, pod: PodUnstarted | PodLive, waits: rules.No, node: NodeReady, spare: rules.Yes, turn: rules.Yes, marked: rules.Yes}, Verdict: remove,
		Why: "the Pod is deleted and comes back with its volume"},
})

// restartFacts is all that the policy may look at.
type restartFacts struct {
	// stuck: etcd is not ready for longer than Patience, and no learner that catches up.
	stuck rules.YesNo `fact:"not ready for too long"`
	pod   PodState    `fact:"Pod"`
	// waits: for something that a restart does not bring.
	waits rules.YesNo `fact:"waits for what a restart does not bring"`
	node  NodeState
	// spare: the others are a healthy quorum. turn: no one else is touched.
	spare rules.YesNo `fact:"the others are a quorum"`
	turn  rules.YesNo `fact:"its turn"`
	// marked: the Lease announces the restart of this very Pod.
	marked rules.YesNo `fact:"the Lease announces it"`
}

func restartFactsOf(m Member, o Observed, listed []Member) restartFacts {
	return restartFacts{
		stuck:  rules.YesNoOf(m.Stuck),
		pod:    m.Pod,
		waits:  rules.YesNoOf(m.Blocked || !m.Readable || m.Says.Reason != ""),
		node:   m.node(),
		spare:  spared(m, o, listed),
		turn:   turnOf(m, o, listed),
		marked: rules.YesNoOf(m.Says.Healing.Restarts > 0 && m.Says.Healing.PodUID == m.PodUID),
	}
}

func (m Member) restartStep(f restartFacts) (Step, bool) {
	switch d := restartRows.Decide(f); d.Verdict {
	case mark:
		h := m.Says.Healing
		h.Restarts, h.PodUID = h.Restarts+1, m.PodUID
		return m.healingStep(d.Rule, h, false), true
	case remove:
		return Step{
			Kind: DeletePod, Rule: d.Rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, Toll: TollHeal,
		}, true
	default:
		return Step{}, false
	}
}

// restartProblem names the member and the count. It stands until the member is ready.
func restartProblem(m Member, f restartFacts) (Problem, bool) {
	restarts := m.Says.Healing.Restarts
	verdict := restartRows.Decide(f).Verdict
	if f.waits == rules.Yes || f.node != NodeReady && m.Stuck || m.up() || restarts == 0 && verdict&(held|wait) == 0 {
		return Problem{}, false // it is reported elsewhere, or there is nothing to report yet
	}
	p := Problem{Reason: v1alpha1.ReasonMemberStuck, Member: m.Name}
	switch verdict {
	case held:
		p.Message = fmt.Sprintf("its etcd does not become ready after %s, and its Pod is left alone, because the other members "+
			"are no healthy quorum without it; kubectl logs %s -c etcd shows the cause", counted(restarts, "restart"), m.Name)
	case wait:
		p.Message = fmt.Sprintf("its etcd does not become ready after %s; its Pod is restarted when no other member is being repaired",
			counted(restarts, "restart"))
	default:
		p.Message = fmt.Sprintf("its etcd did not become ready, and its Pod was restarted: %s in a row; kubectl logs %s -c etcd shows the cause",
			counted(restarts, "restart"), m.Name)
	}
	return p, true
}

func counted(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// node is what is known of the node that matters to the member; nothing where no one looked.
func (m Member) node() NodeState {
	if m.Node == 0 {
		return NodeUnknown
	}
	return m.Node
}

// unstarted is the ID of the learner at the member's peer URL that never started, or empty.
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
