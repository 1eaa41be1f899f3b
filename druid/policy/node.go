package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// NodeState is the observed state of the Pod's node, or of the only node that can mount the member's volume.
	NodeState uint8
	// VolumeState reports where a member's volume can be mounted.
	VolumeState uint8
)

// The states of a node.
const (
	NodeUnknown      NodeState = 1 << iota // it was not read, or its state is not known for long enough
	NodeReady                              // its kubelet is reachable
	NodeAway                               // it is unreachable, and not declared lost
	NodeOutOfService                       // it is not, and someone declared it out of service
	NodeVanished                           // the Node does not exist, for less than the grace period
	NodeGone                               // the Node does not exist

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

// nodeVerdict is the decision about a member whose node is unreachable.
type nodeVerdict uint8

const (
	nodeKeep nodeVerdict = 1 << iota
	nodeReport
	nodeHeld
	nodeWait
	nodeMove     // delete the Pod; druid creates it on another node with its volume
	nodeAnnounce // write on the Lease that the volume is given up
	nodeGiveUp   // delete the claim; the member starts on another node without data and replaces itself
)

func (n nodeVerdict) String() string {
	return rules.Word(n, "Keep", "Report", "Held", "Wait", "DeletePod", "Mark", "DeleteClaim")
}

// ruleElsewhere moves a Pod whose volume can be mounted on another node.
const ruleElsewhere = "pod-on-lost-node"

// nodeRows decide about a member whose node is unreachable. An unreachable node is never a reason to delete anything,
// because it can return with the data. A user declares it lost: by the taint out-of-service of Kubernetes'
// non-graceful node shutdown, or by deletion of the Node.
var nodeRows = rules.New(nodeKeep, []rules.Row[nodeFacts, nodeVerdict]{
	{Name: "node-not-known", When: nodeFacts{node: NodeUnknown}, Verdict: nodeKeep,
		Why: "missing information deletes nothing"},
	{Name: "node-serves", When: nodeFacts{node: NodeReady}, Verdict: nodeKeep,
		Why: "its kubelet starts and stops Pods"},
	{Name: "node-unreachable", When: nodeFacts{node: NodeAway}, Verdict: nodeReport,
		Why: "the node returns with the data, or you declare it lost"},
	{Name: "node-deleted", When: nodeFacts{node: NodeVanished}, Verdict: nodeWait,
		Why: "a kubelet that registers again deletes and creates its Node within seconds"},
	{Name: "volume-not-known", When: nodeFacts{node: nodeLost, volume: VolumeUnknown}, Verdict: nodeKeep,
		Why: "missing information deletes nothing"},
	{Name: ruleElsewhere, When: nodeFacts{node: nodeLost, volume: VolumeMovable, pod: PodUnstarted | PodLive}, Verdict: nodeMove,
		Why: "the Pod starts on another node and resumes with its volume"},
	{Name: "pod-moves", When: nodeFacts{node: nodeLost, volume: VolumeMovable, pod: anyPod &^ (PodUnstarted | PodLive)}, Verdict: nodeWait,
		Why: "Kubernetes deletes the Pods of a node that was declared lost"},
	{Name: "volume-on-lost-node-undecided", When: nodeFacts{node: nodeLost, volume: VolumeLocal, evidence: rules.Yes}, Verdict: nodeHeld,
		Why: "no majority of the members has the same data, and its copy can be the one that decides"},
	{Name: "volume-on-lost-node-held", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.No}, Verdict: nodeHeld,
		Why: "the others are not a healthy quorum, and its data might be needed"},
	{Name: "volume-on-lost-node-in-turn", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.Yes, turn: rules.No}, Verdict: nodeWait,
		Why: "another member is being replaced, removed or repaired"},
	{Name: "volume-on-lost-node-announced", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.Yes, turn: rules.Yes, marked: rules.No},
		Verdict: nodeAnnounce,
		Why:     "the Lease announces the deletion of the claim first"},
	{Name: "volume-on-lost-node", When: nodeFacts{node: nodeLost, volume: VolumeLocal, spare: rules.Yes, turn: rules.Yes, marked: rules.Yes}, Verdict: nodeGiveUp,
		Why: "the quorum has the data; the member joins again on another node"},
})

// nodeFacts is the complete input of nodeRows.
type nodeFacts struct {
	node   NodeState
	volume VolumeState
	pod    PodState `fact:"Pod"`
	// spare: the other members are a healthy quorum. turn: no other member is being changed. marked: the Lease
	// announces the deletion of this claim.
	spare  rules.YesNo `fact:"the others are a quorum"`
	turn   rules.YesNo `fact:"its turn"`
	marked rules.YesNo `fact:"the Lease announces it"`
	// evidence: the data of the members differs without a majority.
	evidence rules.YesNo `fact:"its data is evidence"`
}

func nodeFactsOf(m Member, o Observed, listed []Member) nodeFacts {
	f := nodeFacts{
		node: m.node(), volume: m.Volume, pod: m.Pod,
		spare:    spared(m, o, listed),
		turn:     turnOf(m, o, listed),
		marked:   rules.YesNoOf(m.ClaimUID != "" && m.Reports.Repairing.ClaimUID == m.ClaimUID),
		evidence: rules.YesNoOf(o.undecided()),
	}
	if f.volume == 0 || m.Claim&(ClaimPresent|ClaimUnwanted) == 0 || m.Lease != LeaseOurs || !m.Readable {
		f.volume = VolumeUnknown
	}
	if m.replacedGroup(o, listed) {
		f.spare, f.turn = rules.Yes, rules.Yes
	}
	return f
}

// replacedGroup says whether the data of the member is that of an earlier raft group, which a recovery replaced, and a
// quorum of the published voters of the present one serves. None of them needs that data. The members join one after
// another, so their volumes need not go in turn: a learner next to a single voter waits for the other members.
func (m Member) replacedGroup(o Observed, listed []Member) bool {
	if o.RecordState != RecordFormed || o.Record.MemberList == nil || m.ofGroup(o) || m.Reports.Epoch >= o.Record.FormedEpoch {
		return false
	}
	voters, serve := 0, 0
	for _, entry := range o.Record.MemberList.Members {
		if entry.Learner {
			continue
		}
		voters++
		if slices.ContainsFunc(listed, func(other Member) bool { return other.Name != m.Name && other.servesAs(entry.ID, o) }) {
			serve++
		}
	}
	return serve >= quorum(voters)
}

// servesAs says whether the member serves now as the voter with this ID in the record's raft group. Its agent renews
// the Lease only while etcd is healthy in that group.
func (m Member) servesAs(id string, o Observed) bool {
	return m.Liveness == leases.Live && m.reportsVoter() && m.up() && m.Reports.ClusterID == o.Record.ClusterID && leases.FormatID(m.Reports.ID) == id
}

func (m Member) nodeStep(f nodeFacts) (Step, bool) {
	decision := nodeRows.Decide(f)
	switch rule := decision.Rule; decision.Verdict {
	case nodeMove:
		return Step{Kind: DeletePod, Rule: rule, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID}, true
	case nodeAnnounce:
		h := m.Reports.Repairing
		h.ClaimUID = m.ClaimUID
		return m.repairingStep(rule, h, false), true
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

// nodeProblem names the node and says what to do.
func nodeProblem(m Member, f nodeFacts) (Problem, bool) {
	p := Problem{Reason: v1alpha1.ReasonNodeLost, Member: m.Name}
	switch nodeRows.Decide(f).Verdict {
	case nodeReport:
		then := "druid starts the Pod on another node"
		if f.volume == VolumeLocal {
			then = "druid replaces the member on another node, with an empty volume that the other members fill"
		}
		p.Message = fmt.Sprintf("its node %[1]s is unreachable. The member continues when the node returns. If %[1]s is lost permanently, run this "+
			"command, and %[2]s: kubectl "+
			"taint nodes %[1]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", m.NodeName, then)
	case nodeHeld:
		if f.evidence == rules.Yes {
			p.Message = fmt.Sprintf("its node %s was declared lost, and no other node can mount its volume. No majority of the members has the same data, "+
				"so druid does not abandon the volume: its copy can be the one that decides", m.NodeName)
			break
		}
		p.Message = fmt.Sprintf("its node %s was declared lost, and no other node can mount its volume. The other members are not a healthy quorum "+
			"without it, so druid does not abandon the volume. It replaces the member when they are", m.NodeName)
	default:
		return Problem{}, false
	}
	return p, true
}

// orphanVerdict is the decision about the objects that have a member's name.
type orphanVerdict uint8

const (
	orphanKeep orphanVerdict = 1 << iota
	orphanWait
	orphanReport // the user decides: condition Degraded names the objects and what to do
	orphanMark   // inform the leader's agent that the learner will not start
)

func (o orphanVerdict) String() string {
	return rules.Word(o, "Keep", "Wait", "Report", "Mark")
}

// orphanRows decide about objects and learners whose counterpart is missing. A missing counterpart does not show that
// an object is superfluous, so druid deletes nothing by this table.
var orphanRows = rules.New(orphanKeep, []rules.Row[orphanFacts, orphanVerdict]{
	{Name: "no-record", When: orphanFacts{usable: rules.No}, Verdict: orphanKeep,
		Why: "only a readable record defines the desired members"},
	{Name: "removal-acknowledged", When: orphanFacts{usable: rules.Yes, removalAcknowledged: rules.Yes}, Verdict: orphanKeep,
		Why: "the leader's agent acknowledged the removal, and druid deletes the remaining objects"},
	{Name: "desired", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, removalAcknowledged: rules.No, unstarted: rules.No}, Verdict: orphanKeep,
		Why: "druid creates the missing Lease, claim or Pod again"},
	{Name: "desired-starting", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, removalAcknowledged: rules.No, unstarted: rules.Yes, lingers: rules.No},
		Verdict: orphanKeep,
		Why:     "its Pod will start the learner or replace it"},
	{Name: "desired-not-starting", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, removalAcknowledged: rules.No, unstarted: rules.Yes,
		lingers: rules.Yes, marked: rules.No},
		Verdict: orphanMark,
		Why:     "its Pod has not started for a long time and did not add the learner: the leader's agent removes the learner"},
	{Name: "desired-not-starting-reported", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, removalAcknowledged: rules.No,
		unstarted: rules.Yes, lingers: rules.Yes, marked: rules.Yes},
		Verdict: orphanKeep,
		Why:     "the request is already on the Lease of the member"},
	{Name: "status-only", When: orphanFacts{usable: rules.Yes, listed: rules.No, removalAcknowledged: rules.No, objects: rules.No}, Verdict: orphanKeep,
		Why: "the name is only in the status, which follows the record"},
	{Name: "orphan-seen", When: orphanFacts{usable: rules.Yes, listed: rules.No, removalAcknowledged: rules.No, objects: rules.Yes, lingers: rules.No},
		Verdict: orphanWait,
		Why:     "the member might be leaving, or the record might be new"},
	{Name: "orphan", When: orphanFacts{usable: rules.Yes, listed: rules.No, removalAcknowledged: rules.No, objects: rules.Yes, lingers: rules.Yes},
		Verdict: orphanReport,
		Why:     "nothing shows that it is superfluous"},
})

// orphanFacts is the complete input of orphanRows.
type orphanFacts struct {
	// usable: the record can be read. listed: it lists the name.
	usable rules.YesNo `fact:"record can be read"`
	listed rules.YesNo
	// removalAcknowledged: the member's Lease acknowledges its removal, or that its name was dropped before the
	// cluster formed.
	removalAcknowledged rules.YesNo `fact:"removal acknowledged"`
	// objects: a Lease, claim or Pod of the cluster has the name.
	objects rules.YesNo `fact:"an object has the name"`
	// unstarted: the leader lists a learner at the peer URL of the name, and the learner never started.
	unstarted rules.YesNo `fact:"its learner never started"`
	// lingers: druid has seen this state for a long time.
	lingers rules.YesNo `fact:"unlisted, or without running Pod, for long"`
	// marked: the Lease already says that this learner is not coming.
	marked rules.YesNo `fact:"the Lease says so"`
}

func orphanFactsOf(m Member, o Observed) orphanFacts {
	learner := m.unstarted(o)
	return orphanFacts{
		usable:              rules.YesNoOf(o.RecordState&usableRecord != 0),
		listed:              rules.YesNoOf(m.Listed),
		removalAcknowledged: rules.YesNoOf(m.removalAcknowledged(o)),
		objects:             rules.YesNoOf(m.ours()),
		unstarted:           rules.YesNoOf(learner != "" && o.RecordState == RecordFormed && m.Lease == LeaseOurs && m.Readable),
		lingers:             rules.YesNoOf(m.Lingers),
		marked:              rules.YesNoOf(m.Reports.Repairing.NotComing == learner),
	}
}

// removalAcknowledged reports whether an annotation on the member's Lease already decides what happens to its objects.
// Which raft group may acknowledge a removal is unknown unless the record is that of a formed group.
func (m Member) removalAcknowledged(o Observed) bool {
	done := m.Reports.Removal.State == leases.RemovalDone
	return removalAckOf(m, o) != removalAckNone || done && (m.Listed || o.RecordState != RecordFormed)
}

// orphanProblem names the objects and says what to do.
func orphanProblem(m Member, o Observed) (Problem, bool) {
	if orphanRows.Decide(orphanFactsOf(m, o)).Verdict != orphanReport {
		return Problem{}, false
	}
	var kinds, short []string
	for _, object := range []struct {
		there       bool
		kind, short string
	}{
		{m.Lease == LeaseOurs, "Lease", "lease"},
		{m.Claim&(ClaimPresent|ClaimTerminating) != 0, "PersistentVolumeClaim", "pvc"},
		{m.Pod&^(PodAbsent|PodForeign) != 0, "Pod", "pod"},
	} {
		if object.there {
			kinds, short = append(kinds, object.kind), append(short, object.short)
		}
	}
	return Problem{Reason: v1alpha1.ReasonOrphanedObjects, Message: fmt.Sprintf("%[1]s %[2]s of this EtcdCluster: the cluster record lists no such member. "+
		"druid deletes nothing that might be needed. If you do not need its data: kubectl delete %[3]s %[2]s",
		strings.Join(kinds, ", "), m.Name, strings.Join(short, ","))}, true
}
