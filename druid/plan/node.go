package plan

import (
	"fmt"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	// NodeState is how the node was found on which a member's Pod is, or which alone can mount its volume.
	NodeState uint8
	// VolumeState says where a member's volume can be mounted.
	VolumeState uint8
)

// The states of a node.
const (
	NodeUnknown      NodeState = 1 << iota // no one looked, or the answer is not known, or not for long enough
	NodeReady                              // its kubelet is reachable
	NodeAway                               // it is not, and no one said that it never will be
	NodeOutOfService                       // it is not, and someone declared it out of service
	NodeVanished                           // there is no such Node, for less than the grace period
	NodeGone                               // there is no such Node

	anyNode  = NodeUnknown | NodeReady | NodeAway | NodeOutOfService | NodeVanished | NodeGone
	nodeLost = NodeOutOfService | NodeGone
)

func (n NodeState) String() string {
	return rules.Word(n, "unknown", "ready", "away", "out of service", "vanished", "gone")
}

// The states of a volume.
const (
	VolumeUnknown VolumeState = 1 << iota
	VolumeLocal               // that node alone can mount it
	VolumeMovable
)

func (v VolumeState) String() string {
	return rules.Word(v, "unknown", "local", "movable")
}

// nodeVerdict says what becomes of a member whose node does not answer.
type nodeVerdict uint8

const (
	nodeKeep nodeVerdict = 1 << iota
	nodeReport
	nodeHeld
	nodeWait
	nodeMove     // delete the Pod; it comes back elsewhere with its volume
	nodeAnnounce // write on the Lease that the volume is given up
	nodeGiveUp   // delete the claim; the member comes back elsewhere, empty, and replaces itself
)

func (n nodeVerdict) String() string {
	return rules.Word(n, "Keep", "Report", "Held", "Wait", "DeletePod", "Mark", "DeleteClaim")
}

// ruleElsewhere moves a Pod whose volume can follow it.
const ruleElsewhere = "pod-on-lost-node"

// nodeRows decide about a member of a node that does not answer. Nothing is deleted because a node is away: it may come
// back with the data. That it will not is declared, by the taint out-of-service of Kubernetes' non-graceful node shutdown or
// by deleting the Node.
var nodeRows = rules.New(nodeKeep, []rules.Row[nodeFacts, nodeVerdict]{
	{Name: "node-not-known", When: nodeFacts{node: NodeUnknown}, Verdict: nodeKeep,
		Why: "what is not known deletes nothing"},
	{Name: "node-serves", When: nodeFacts{node: NodeReady}, Verdict: nodeKeep,
		Why: "its kubelet starts and ends Pods"},
	{Name: "node-away", When: nodeFacts{node: NodeAway}, Verdict: nodeReport,
		Why: "it comes back with the data, or a person declares it lost"},
	{Name: "node-vanished", When: nodeFacts{node: NodeVanished}, Verdict: nodeWait,
		Why: "a kubelet that registers again deletes and makes its Node within moments"},
	{Name: "volume-not-known", When: nodeFacts{node: nodeLost, volume: VolumeUnknown}, Verdict: nodeKeep,
		Why: "what is not known deletes nothing"},
	{Name: ruleElsewhere, When: nodeFacts{node: nodeLost, volume: VolumeMovable, pod: PodUnstarted | PodLive}, Verdict: nodeMove,
		Why: "the Pod comes back elsewhere and resumes on its volume"},
	{Name: "pod-moves", When: nodeFacts{node: nodeLost, volume: VolumeMovable, pod: anyPod &^ (PodUnstarted | PodLive)}, Verdict: nodeWait,
		Why: "Kubernetes ends Pods of a node that was declared lost"},
	{Name: "volume-on-lost-node-held", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.No}, Verdict: nodeHeld,
		Why: "the others are no healthy quorum: its data may be needed"},
	{Name: "volume-on-lost-node-in-turn", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.Yes, turn: rules.No}, Verdict: nodeWait,
		Why: "another member is being replaced, removed or repaired"},
	{Name: "volume-on-lost-node-announced", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.Yes, turn: rules.Yes, marked: rules.No}, Verdict: nodeAnnounce,
		Why: "the Lease names the claim before it is deleted"},
	{Name: "volume-on-lost-node", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.Yes, turn: rules.Yes, marked: rules.Yes}, Verdict: nodeGiveUp,
		Why: "the quorum has the data; the member joins again elsewhere"},
})

// nodeFacts is all that the policy may look at.
type nodeFacts struct {
	node   NodeState
	volume VolumeState
	pod    PodState `fact:"Pod"`
	// spare: the others are a healthy quorum. turn: no one else is touched. marked: the Lease announces this very claim.
	spare  rules.YesNo `fact:"the others are a quorum"`
	turn   rules.YesNo `fact:"its turn"`
	marked rules.YesNo `fact:"the Lease announces it"`
}

func nodeFactsOf(m Member, o Observed, listed []Member) nodeFacts {
	f := nodeFacts{
		node: m.node(), volume: m.Volume, pod: m.Pod,
		spare:  spared(m, o, listed),
		turn:   turnOf(m, o, listed),
		marked: rules.YesNoOf(m.ClaimUID != "" && m.Says.Healing.ClaimUID == m.ClaimUID),
	}
	if f.volume == 0 || m.Claim&(ClaimPresent|ClaimUnwanted) == 0 || m.Lease != LeaseOurs || !m.Readable {
		f.volume = VolumeUnknown
	}
	return f
}

func (m Member) nodeStep(f nodeFacts) (Step, bool) {
	decision := nodeRows.Decide(f)
	switch rule := decision.Rule; decision.Verdict {
	case nodeMove:
		return Step{Kind: DeletePod, Rule: rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID}, true
	case nodeAnnounce:
		h := m.Says.Healing
		h.ClaimUID = m.ClaimUID
		return m.healingStep(rule, h, false), true
	case nodeGiveUp:
		step := Step{
			Kind: DeleteClaim, Rule: rule, Stage: StageDelete, Member: m.Name, ClaimUID: m.ClaimUID, Toll: TollHeal,
		}
		if m.Claim == ClaimUnwanted {
			step.Kind, step.PodUID, step.ClaimUID = DeletePod, m.PodUID, ""
		}
		return step, true
	default:
		return Step{}, false
	}
}

// nodeProblem names the node and the cure.
func nodeProblem(m Member, f nodeFacts) (Problem, bool) {
	p := Problem{Reason: v1alpha1.ReasonNodeLost, Member: m.Name}
	switch nodeRows.Decide(f).Verdict {
	case nodeReport:
		then := "its Pod is started on another node"
		if f.volume == VolumeLocal {
			then = "it is replaced on another node, with an empty volume that the others fill"
		}
		p.Message = fmt.Sprintf("its node %[1]s is unreachable. It continues when the node returns. If %[1]s is lost permanently: kubectl "+
			"taint nodes %[1]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; then %[2]s", m.NodeName, then)
	case nodeHeld:
		p.Message = fmt.Sprintf("its node %s was declared lost, and its volume is on it; the other members are not a healthy quorum "+
			"without it, so the volume is not given up. It is replaced when they are one", m.NodeName)
	default:
		return Problem{}, false
	}
	return p, true
}
