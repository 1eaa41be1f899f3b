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
	NodeUnknown      NodeState = 1 << iota // nobody looked, or the answer is not known, or not for long enough
	NodeReady                              // its kubelet is heard of
	NodeAway                               // it is not, and nobody said that it never will be
	NodeOutOfService                       // it is not, and somebody declared it out of service
	NodeVanished                           // there is no such Node, for less than the grace period
	NodeGone                               // there is no such Node

	anyNode  = NodeUnknown | NodeReady | NodeAway | NodeOutOfService | NodeVanished | NodeGone
	nodeLost = NodeOutOfService | NodeGone
)

// The states of a volume.
const (
	VolumeUnknown VolumeState = 1 << iota
	VolumeLocal               // that node alone can mount it
	VolumeMovable

	anyVolume = VolumeUnknown | VolumeLocal | VolumeMovable
)

// nodeVerdict says what becomes of a member whose node does not answer.
type nodeVerdict uint8

const (
	nodeKeep nodeVerdict = 1 << iota
	nodeTell
	nodeHeld
	nodeWait
	nodeMove     // delete the Pod; it comes back elsewhere with its volume
	nodeAnnounce // write on the Lease that the volume is given up
	nodeGiveUp   // delete the claim; the member comes back elsewhere, empty, and replaces itself
)

// ruleElsewhere moves a Pod whose volume can follow it.
const ruleElsewhere = "pod-on-lost-node"

// nodeRows decide about a member of a node that does not answer. Nothing is deleted because a node is away: it may come
// back with the data. That it will not is declared, by the taint out-of-service of Kubernetes' non-graceful node shutdown or
// by deleting the Node.
var nodeRows = []struct {
	name                string
	node                NodeState
	volume              VolumeState
	pod                 PodState
	spare, turn, marked rules.YesNo
	verdict             nodeVerdict
	why                 string
}{
	{"node-not-known", NodeUnknown, anyVolume, anyPod, anyAnswer, anyAnswer, anyAnswer, nodeKeep,
		"what is not known deletes nothing"},
	{"node-serves", NodeReady, anyVolume, anyPod, anyAnswer, anyAnswer, anyAnswer, nodeKeep,
		"its kubelet starts and ends Pods"},
	{"node-away", NodeAway, anyVolume, anyPod, anyAnswer, anyAnswer, anyAnswer, nodeTell,
		"it comes back with the data, or a person declares it lost"},
	{"node-vanished", NodeVanished, anyVolume, anyPod, anyAnswer, anyAnswer, anyAnswer, nodeWait,
		"a kubelet that registers anew deletes and makes its Node within moments"},
	{"volume-not-known", nodeLost, VolumeUnknown, anyPod, anyAnswer, anyAnswer, anyAnswer, nodeKeep,
		"what is not known deletes nothing"},
	{ruleElsewhere, nodeLost, VolumeMovable, PodUnstarted | PodLive, anyAnswer, anyAnswer, anyAnswer, nodeMove,
		"the Pod comes back elsewhere and resumes on its volume"},
	{"pod-moves", nodeLost, VolumeMovable, anyPod &^ (PodUnstarted | PodLive), anyAnswer, anyAnswer, anyAnswer, nodeWait,
		"Kubernetes ends Pods of a node that was declared lost"},
	{"volume-on-lost-node-held", nodeLost, VolumeLocal, anyPod, rules.No, anyAnswer, anyAnswer, nodeHeld,
		"the others are no healthy quorum: its data may be needed"},
	{"volume-on-lost-node-in-turn", nodeLost, VolumeLocal, anyPod, rules.Yes, rules.No, anyAnswer, nodeWait,
		"another member replaces itself, leaves or heals"},
	{"volume-on-lost-node-announced", nodeLost, VolumeLocal, anyPod, rules.Yes, rules.Yes, rules.No, nodeAnnounce,
		"the Lease names the claim before it is deleted"},
	{"volume-on-lost-node", nodeLost, VolumeLocal, anyPod, rules.Yes, rules.Yes, rules.Yes, nodeGiveUp,
		"the quorum has the data; the member joins again elsewhere"},
}

// nodeFacts is all that the policy may look at.
type nodeFacts struct {
	node   NodeState
	volume VolumeState
	pod    PodState
	// spare: the others are a healthy quorum. turn: nobody else is touched. marked: the Lease announces this very claim.
	spare, turn, marked rules.YesNo
}

func judgeNode(f nodeFacts) (nodeVerdict, string) {
	for _, r := range nodeRows {
		if r.node&f.node != 0 && r.volume&f.volume != 0 && r.pod&f.pod != 0 && r.spare&f.spare != 0 && r.turn&f.turn != 0 &&
			r.marked&f.marked != 0 {
			return r.verdict, r.name
		}
	}
	return nodeKeep, "uncovered"
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
	verdict, rule := judgeNode(f)
	switch verdict {
	case nodeMove:
		return Step{Kind: DeletePod, Rule: rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, Irreversible: true}, true
	case nodeAnnounce:
		h := m.Says.Healing
		h.ClaimUID = m.ClaimUID
		return m.healingStep(rule, h, false), true
	case nodeGiveUp:
		step := Step{
			Kind: DeleteClaim, Rule: rule, Stage: StageDelete, Member: m.Name, ClaimUID: m.ClaimUID, Toll: TollHeal, Irreversible: true,
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
	switch verdict, _ := judgeNode(f); verdict {
	case nodeTell:
		then := "its Pod is started on another node"
		if f.volume == VolumeLocal {
			then = "it is replaced by a member on another node, with an empty volume that is filled by the others"
		}
		p.Message = fmt.Sprintf("its node %[1]s is not heard of; it goes on when the node is back. If %[1]s is off for good: kubectl "+
			"taint nodes %[1]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; then %[2]s", m.NodeName, then)
	case nodeHeld:
		p.Message = fmt.Sprintf("its node %s was declared lost, and its volume is on it; the other members are no healthy quorum "+
			"without it, so the volume is not given up. It is replaced when they are one", m.NodeName)
	default:
		return Problem{}, false
	}
	return p, true
}
