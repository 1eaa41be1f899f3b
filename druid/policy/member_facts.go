package policy

import (
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// The facts about the objects of a member, one bit per value.
type (
	// LeaseState is the observed state of a Lease.
	LeaseState uint8
	// ClaimState is the observed state of a PersistentVolumeClaim.
	ClaimState uint8
	// PodState is the observed state of a Pod.
	PodState uint8
	// PodMake reports whether a Pod matches the spec.
	PodMake uint8
	// AgentMake reports whether the agent of a Pod has the image that druid was given.
	AgentMake uint8
	// Arrival is the progress of an agent whose image was changed in its Pod.
	Arrival uint8
)

// The states of a Lease.
const (
	LeaseAbsent  LeaseState = 1 << iota
	LeaseForeign            // not controlled by the EtcdCluster
	LeaseOurs
)

func (l LeaseState) String() string {
	return rules.Word(l, "absent", "foreign", "ours")
}

// The states of a PersistentVolumeClaim.
const (
	ClaimAbsent      ClaimState = 1 << iota
	ClaimForeign                // bears the name, but is not the cluster's
	ClaimTerminating            // deleted, and kept by a finalizer while a Pod uses it
	ClaimPresent
	ClaimUnwanted // members store in their Pods, in memory or on the disk of the node

	anyClaim = ClaimAbsent | ClaimForeign | ClaimTerminating | ClaimPresent | ClaimUnwanted
)

func (c ClaimState) String() string {
	return rules.Word(c, "absent", "foreign", "terminating", "present", "not wanted")
}

// The states of a Pod.
const (
	PodAbsent      PodState = 1 << iota
	PodForeign              // not controlled by the EtcdCluster
	PodUnscheduled          // has no node
	PodUnstarted            // it has a node, and none of its containers ever ran
	PodLive                 // a container runs or ran
	PodEnded                // phase Failed or Succeeded: it does not run again
	PodTerminating

	anyPod = PodAbsent | PodForeign | PodUnscheduled | PodUnstarted | PodLive | PodEnded | PodTerminating
)

func (p PodState) String() string {
	return rules.Word(p, "absent", "foreign", "unscheduled", "unstarted", "live", "ended", "terminating")
}

// The makes of a Pod.
const (
	MakeUnknown  PodMake = 1 << iota // it was not read
	MakeCurrent                      // it was created for the current spec
	MakeOutdated                     // it was made for another spec
	MakeUnmarked                     // it does not report for which
)

func (p PodMake) String() string {
	return rules.Word(p, "not known", "current", "outdated", "unmarked")
}

// The makes of an agent.
const (
	AgentUnknown AgentMake = 1 << iota // there is no Pod of this cluster, or it was not read
	AgentCurrent
	AgentOutdated
)

func (a AgentMake) String() string {
	return rules.Word(a, "not known", "current", "outdated")
}

// The stations of an agent's arrival.
const (
	ArrivalOver        Arrival = 1 << iota // none was replaced, or the new one has been reachable for some seconds
	ArrivalUnconfirmed                     // it was reachable, or druid has just begun to listen
	ArrivalAwaited                         // it has not renewed its Lease yet
	ArrivalLate                            // nor for long
)

// Member is everything that has the name of one member.
type Member struct {
	Name string
	// Listed reports whether the record lists the name.
	Listed bool

	Lease LeaseState
	// Readable says that Reports could be read.
	Readable bool
	Reports  leases.Member
	Liveness leases.Liveness
	// Renewed is when the agent last renewed the Lease, by its clock. It is only used to estimate a loss.
	Renewed time.Time
	// Created is when the API server created the Lease. It orders the members of a cluster and is never compared
	// with a clock.
	Created time.Time
	// Expired says that the Lease was stale for longer than the grace period.
	Expired bool

	// ClaimUID is the UID of the volume: the UID of the claim, or of the Pod if the volume is part of it.
	Claim    ClaimState
	ClaimUID string
	// ClaimOwned says that the claim has an owner reference to the EtcdCluster, so that Kubernetes deletes both
	// together.
	ClaimOwned bool
	// ClaimSmall says that the claim requests less than the spec does, and ClaimBound that it has its volume. Expands
	// says whether the StorageClass can expand it; druid reads that only for a claim that is too small. Room says how
	// large the volume is. Both are 0 if druid did not look.
	ClaimSmall, ClaimBound bool
	Expands                Expansion
	Room                   Room

	Pod    PodState
	PodUID string
	// Make says whether the Pod is what the spec requests, or 0 if druid did not look.
	Make PodMake
	// Remade says that a replacement would differ from this Pod even with the version that its member ran. druid
	// determines that only for an outdated Pod; otherwise it is 0.
	Remade rules.YesNo
	// Outruns says that the Pod is outdated because its etcd was started with other certificate authorities than are trusted.
	Outruns bool
	// Idle says that a reachable kubelet runs no etcd container in the Pod.
	Idle bool
	// Agent says whether the agent in the Pod is current, or 0 if druid did not look. AgentImage is its image.
	// AgentIdle says that a reachable kubelet runs no agent in the Pod.
	Agent      AgentMake
	AgentImage string
	AgentIdle  bool
	// Arrival is the state of an agent that druid replaced in the Pod, or 0 if it replaced none.
	Arrival Arrival
	// On is the name of the node that the Pod is bound to, or empty.
	On string
	// EtcdReady is the readiness of the etcd container: etcd's own /readyz, as the kubelet last saw it.
	EtcdReady bool
	// NodeLost says that the kubelet of the node is not reachable.
	NodeLost bool
	// Serving, Voter and Leader are the labels of the Pod.
	Serving, Voter, Leader bool
	// CutFor is the mark of the Pod: the nonce of the restore in place for which clients were cut off from it, or empty.
	CutFor string
	// Routed says that the endpoints of the client Service contain the Pod. druid reads it only for a member that is
	// about to leave.
	Routed bool

	// Stuck says that the member was not up for longer than its wait limit and is not a learner that makes progress.
	// Steady says that it was up for that long.
	Stuck, Steady bool
	// Stable says that this Pod has served for long enough that druid may replace another one.
	Stable bool
	// Blocked says that a container waits for an image or a configuration, which a restart does not provide.
	Blocked bool
	// Lingers says of a listed name that it had no Pod with a running container for a long time. Of any other name it
	// says that its objects have existed for a long time.
	Lingers bool
	// Absent says that the Pod was not live for a minute: it does not exist, is being deleted, or no container of it ever ran.
	Absent bool
	// Node is the state of the Pod's node, or of the only node that can mount the volume. druid reads Node and Volume
	// only if they matter; otherwise they are 0. NodeName is the name of that node.
	Node     NodeState
	NodeName string
	Volume   VolumeState
}

// ours says whether any object of the cluster has the member's name.
func (m Member) ours() bool {
	return m.Lease == LeaseOurs || m.Claim&(ClaimPresent|ClaimTerminating) != 0 || m.Pod&^(PodAbsent|PodForeign) != 0
}

// votes says whether the member is a voter as far as druid knows: by its Lease, or else by the label that its Pod got
// when the Lease last reported it.
func (m Member) votes() bool {
	switch {
	case !m.Readable || m.Lease != LeaseOurs || m.Liveness == leases.Never && !m.Reports.EverFormed():
		return m.Voter
	default:
		return m.Reports.Role == leases.RoleLeader || m.Reports.Role == leases.RoleMember
	}
}

// reportsVoter says whether the member's Lease reports a voter. The label of a Pod is not evidence, because it can
// refer to an earlier raft ID of the member.
func (m Member) reportsVoter() bool {
	return m.Lease == LeaseOurs && m.Readable && (m.Reports.Role == leases.RoleLeader || m.Reports.Role == leases.RoleMember)
}

// up says whether etcd is known to serve. Its /readyz includes a read that needs a quorum.
func (m Member) up() bool { return m.Pod == PodLive && m.EtcdReady && !m.NodeLost }

// down reports whether etcd is known not to serve.
func (m Member) down() bool { return !m.NodeLost && !m.EtcdReady }
