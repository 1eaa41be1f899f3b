package policy

import (
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// A fact is an enum of one bit per value, so that the cell of a table may hold several.
type (
	// RecordState is how the cluster record was found.
	RecordState uint8
	// LeaseState is how a Lease was found.
	LeaseState uint8
	// ClaimState is how a PersistentVolumeClaim was found.
	ClaimState uint8
	// PodState is how a Pod was found.
	PodState uint8
	// ObjectState is how an object that druid applies was found.
	ObjectState uint8
	// PodMake reports whether a Pod is what the spec asks for.
	PodMake uint8
	// AgentMake reports whether the agent of a Pod is of the image that druid was given.
	AgentMake uint8
	// Arrival is how far an agent has come whose image was changed in its Pod.
	Arrival uint8
)

// The states of the record.
const (
	RecordAbsent     RecordState = 1 << iota // no such Lease
	RecordForeign                            // a Lease of that name that is not the cluster's
	RecordUnreadable                         // it cannot be understood
	RecordForming
	RecordFormed
	RecordRecovering

	anyRecord = RecordAbsent | RecordForeign | RecordUnreadable | RecordForming | RecordFormed | RecordRecovering
)

func (r RecordState) String() string {
	return rules.Word(r, "absent", "foreign", "unreadable", "forming", "formed", "recovering")
}

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
	ClaimUnwanted // members store in memory: what they hold goes with their Pods

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
	PodUnstarted            // has a node, and none of its containers ever ran
	PodLive                 // a container runs or ran
	PodEnded                // phase Failed or Succeeded: it never comes back
	PodTerminating

	anyPod = PodAbsent | PodForeign | PodUnscheduled | PodUnstarted | PodLive | PodEnded | PodTerminating
)

func (p PodState) String() string {
	return rules.Word(p, "absent", "foreign", "unscheduled", "unstarted", "live", "ended", "terminating")
}

// The makes of a Pod.
const (
	MakeUnknown  PodMake = 1 << iota // no one looked
	MakeCurrent                      // it was made for what the spec asks for
	MakeOutdated                     // it was made for another spec
	MakeUnmarked                     // it does not report for which
)

func (p PodMake) String() string {
	return rules.Word(p, "not known", "current", "outdated", "unmarked")
}

// The makes of an agent.
const (
	AgentUnknown AgentMake = 1 << iota // there is no Pod of ours, or no one looked
	AgentCurrent
	AgentOutdated
)

func (a AgentMake) String() string {
	return rules.Word(a, "not known", "current", "outdated")
}

// The stations of an agent's arrival.
const (
	ArrivalOver    Arrival = 1 << iota // none was replaced, or the new one has been reachable for some seconds
	ArrivalSettles                     // it was reachable, or druid has just begun to listen
	ArrivalAwaited                     // it has not renewed its Lease yet
	ArrivalLate                        // nor for long
)

// The states of an object that druid applies.
const (
	ObjectAbsent ObjectState = 1 << iota
	ObjectForeign
	ObjectOutdated
	ObjectCurrent
)

// Desired is what an EtcdCluster asks for.
type Desired struct {
	Replicas int
	// Version of etcd.
	Version string
	// Generation of the spec: another one after each edit.
	Generation int64
	// ClusterID is etcd's cluster ID as the status latched it, 0 while the cluster never was seen as formed.
	ClusterID uint64
	// Known are the names of the members that the status lists.
	Known []string
	// Ran is the version of etcd that the status last knew of each of them.
	Ran map[string]string
	// RetainClaims says that the claim of a removed member stays.
	RetainClaims bool
	// ClaimsGo says that the claims are to be deleted when the EtcdCluster is.
	ClaimsGo bool
	// RemoveOthers says that anyone who was in a raft group that was joined may go.
	RemoveOthers bool
	// Deleted says that the EtcdCluster has a deletionTimestamp; Foreground and Orphans how it was deleted, and NamespaceGoes that its
	// namespace was, looked at only where it is held.
	Deleted, Foreground, Orphans, NamespaceGoes bool
	// Joins says that its first member joins a running cluster, and Held that it bears druid's finalizer.
	Joins, Held bool
	// Backup says that the cluster is to be backed up, BackupProblem what is wrong with how, and BackupReported what the status
	// says of it.
	Backup         bool
	BackupProblem  string
	BackupReported BackupReported
	// Refused says that the status says that the API server refuses what druid was about to make.
	Refused bool
	// PauseReported says that the status says that the cluster is paused, or that none of its members was ready since.
	PauseReported bool
	// Target reports the adoption of what is asked for.
	Target
}

// kept is how many names stay in the record. A cluster that is to be paused keeps one member.
func (d Desired) kept() int { return max(d.Replicas, 1) }

// Observed is the cluster as Kubernetes shows it.
type Observed struct {
	RecordState RecordState
	// Record is what the record says; empty unless it was readable.
	Record leases.Record
	// RecordProblem says what is wrong with a record that is foreign or unreadable.
	RecordProblem string
	LeaderLease   LeaseState
	// Full and Delta are the Leases that report backups.
	Full, Delta Snapshot
	// Origin is what becomes of the EtcdSnapshot that a new cluster begins with.
	Origin Origin
	// Save is the backup before a change of version, looked at only where one is needed.
	Save Save
	// Unattached are the listed members whose Pods lack what the backup store needs, sorted.
	Unattached []string
	// Objects are those that druid applies, but for the PodDisruptionBudget.
	Objects []Object
	// Budget is the PodDisruptionBudget, and BudgetMin its minAvailable.
	Budget    ObjectState
	BudgetMin int
	// Members are all names that the record or an object of the cluster bears, sorted by name.
	Members []Member
	// SeedStuck says that the seed's Pod has not started for longer than druid's patience, while that of another member
	// has.
	SeedStuck rules.YesNo
	// Problems that a person may have to repair, found in Pods, claims and Leases.
	Problems []Problem
}

// Object is one that druid applies.
type Object struct {
	Kind, Name string
	State      ObjectState
	// Stage in which it is applied.
	Stage Stage
}

// Member is all that bears one member's name.
type Member struct {
	Name string
	// Listed says that the record lists the name.
	Listed bool

	Lease LeaseState
	// Readable says that Says could be read.
	Readable bool
	Reports  leases.Member
	Liveness leases.Liveness
	// Born is when the API server made the Lease: an order among the members of a cluster, never compared with a clock.
	WasFormed time.Time
	// Expired says that the Lease was stale for longer than the grace period.
	Expired bool

	// ClaimUID is the UID of the volume: that of the claim, or of the Pod where its memory is the volume.
	Claim    ClaimState
	ClaimUID string
	// ClaimOwned says that the claim refers to the EtcdCluster as an owner, and so goes with it.
	ClaimOwned bool
	// ClaimSmall says that the claim requests less than the spec asks for, and ClaimBound that it has its volume. Expands is
	// what its StorageClass says of that, looked at only where it is small, and Room how large the volume is; 0 where no one looked.
	ClaimSmall, ClaimBound bool
	Expands                Expansion
	Room                   Room

	Pod    PodState
	PodUID string
	// Make of the Pod, 0 where no one looked.
	Make PodMake
	// Remade says that another Pod than this would come in its place, be it of the version that its member ran; looked at only
	// where it is outdated, else 0.
	Remade rules.YesNo
	// Idle says that a kubelet that is reachable runs no etcd container in the Pod.
	Idle bool
	// Agent is the make of the Pod's agent, 0 where no one looked, and AgentImage the image that it was given. AgentIdle says
	// that a kubelet that is reachable runs no agent in the Pod.
	Agent      AgentMake
	AgentImage string
	AgentIdle  bool
	// Arrival of an agent of the right image that was replaced in the Pod; 0 where none was.
	Arrival Arrival
	// On is the name of the node that the Pod is bound to, or empty.
	On string
	// EtcdReady is the readiness of the etcd container: etcd's own /readyz, as the kubelet last saw it.
	EtcdReady bool
	// NodeLost says that the node's kubelet is not reachable.
	NodeLost bool
	// Serving and Voter are the labels that the Pod bears.
	Serving, Voter bool
	// Routed says that the endpoints of the client Service hold the Pod. It is read only of a member that is about to leave.
	Routed bool

	// Stuck says that the member was not up for longer than its patience, nor a learner that gets on. Steady says that it was
	// up for as long.
	Stuck, Steady bool
	// Settled says that this very Pod served for long enough to let another one go.
	Settled bool
	// Blocked says that a container waits for an image or a configuration, which no restart brings.
	Blocked bool
	// Lingers says, of a listed name, that for long it had no Pod of which a container ran; of any other, that its objects
	// were there for long.
	Lingers bool
	// Node is the node of the Pod, or the one that alone can mount the volume. It is looked at only where it matters, and
	// else is 0, as Volume is. NodeName is its name.
	Node     NodeState
	NodeName string
	Volume   VolumeState
}

// Problem keeps the cluster from its spec until a person acts, or something outside druid does.
type Problem struct {
	// Reason is one of the reasons of the condition Degraded.
	Reason string
	// Member that has the problem, or empty.
	Member string
	// Message names what is wrong and what to do about it.
	Message string
}

// ours says whether any object of the cluster bears the member's name.
func (m Member) ours() bool {
	return m.Lease == LeaseOurs || m.Claim&(ClaimPresent|ClaimTerminating) != 0 || m.Pod&^(PodAbsent|PodForeign) != 0
}

// votes says whether the member is a voter, as far as is known: by its Lease, else by the label that its Pod got when the
// Lease last said so.
func (m Member) votes() bool {
	switch {
	case !m.Readable || m.Lease != LeaseOurs || m.Liveness == leases.Never && !m.Reports.EverFormed():
		return m.Voter
	default:
		return m.Reports.Role == leases.RoleLeader || m.Reports.Role == leases.RoleMember
	}
}

// reportsVoter says whether the member's Lease names it a voter. The label of a Pod is no proof: it may be of the member's
// former raft ID.
func (m Member) reportsVoter() bool {
	return m.Lease == LeaseOurs && m.Readable && (m.Reports.Role == leases.RoleLeader || m.Reports.Role == leases.RoleMember)
}

// up says whether etcd itself is known to serve: its /readyz includes a read that needs a quorum.
func (m Member) up() bool { return m.Pod == PodLive && m.EtcdReady && !m.NodeLost }

// down says whether etcd is known not to serve.
func (m Member) down() bool { return !m.NodeLost && !m.EtcdReady }

// listed returns the members that the record lists.
func (o Observed) listed() []Member {
	return slices.DeleteFunc(slices.Clone(o.Members), func(m Member) bool { return !m.Listed })
}

// formed says whether the raft group exists.
func (o Observed) formed() rules.YesNo {
	return rules.YesNoOf(o.RecordState&(RecordFormed|RecordRecovering) != 0)
}

func quorum(voters int) int { return voters/2 + 1 }
