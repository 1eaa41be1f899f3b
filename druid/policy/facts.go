package policy

import (
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// A fact is an enum of one bit per value, so that the cell of a table may hold several.
type (
	// RecordState is the observed state of the cluster record.
	RecordState uint8
	// LeaseState is the observed state of a Lease.
	LeaseState uint8
	// ClaimState is the observed state of a PersistentVolumeClaim.
	ClaimState uint8
	// PodState is the observed state of a Pod.
	PodState uint8
	// ObjectState is the observed state of an object that druid applies.
	ObjectState uint8
	// PodMake reports whether a Pod matches the spec.
	PodMake uint8
	// AgentMake reports whether the agent of a Pod has the image that druid was given.
	AgentMake uint8
	// Arrival is the progress of an agent whose image was changed in its Pod.
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

// The states of an object that druid applies.
const (
	ObjectAbsent ObjectState = 1 << iota
	ObjectForeign
	ObjectOutdated
	ObjectCurrent
	ObjectUnwanted // it exists, and the spec does not request it any more
)

// Desired is what the EtcdCluster requests.
type Desired struct {
	Replicas int
	// Version of etcd.
	Version string
	// Generation of the spec. Each change of the spec increases it.
	Generation int64
	// ClusterID is etcd's cluster ID as the status keeps it, or 0 if the cluster never formed.
	ClusterID uint64
	// Known are the names of the members that the status lists.
	Known []string
	// Ran is the version of etcd that the status last showed for each of them.
	Ran map[string]string
	// RetainClaims says that the claim of a removed member stays.
	RetainClaims bool
	// ClaimsGo says that the claims are deleted with the EtcdCluster.
	ClaimsGo bool
	// RemoveOthers says that the user allows the removal of the external members of a joined raft group.
	RemoveOthers bool
	// Deleted says that the EtcdCluster has a deletionTimestamp. Foreground and Orphans say how it was deleted.
	// NamespaceGoes says that its namespace is being deleted; druid reads that only for an EtcdCluster that has the
	// finalizer.
	Deleted, Foreground, Orphans, NamespaceGoes bool
	// Joins says that the first member joins a running cluster. Held says that the EtcdCluster has druid's finalizer.
	Joins, Held bool
	// Planes are the kinds of connections with TLS: client, peer, or both.
	Planes []string
	// Auth is what spec.auth requires, and AuthConfig identifies its users and roles.
	Auth       AuthWanted
	AuthConfig string
	// Backup says that the cluster is backed up, BackupProblem what is wrong with spec.backup, and BackupReported what
	// the status shows about backups.
	Backup         bool
	BackupProblem  string
	BackupReported BackupReported
	// WhenFailing is what spec.backup.whenFailing requests. 0 stands for Block.
	WhenFailing WhenFailing
	// Refused says that, according to the status, the API server rejects what druid wants to create.
	Refused bool
	// PauseReported says that, according to the status, the cluster is paused, or that no member was ready since.
	PauseReported bool
	// LeaveFirst are the names of the members that leave before all others, in their order.
	LeaveFirst []string
	// Replace is the name of the member that a new one is to replace, or empty.
	Replace string
	// HandsOff is the reason why druid must not act for the cluster, in the user's words, or empty.
	HandsOff string
	// CutOff says that no client is to be sent to any member.
	CutOff bool
	// EvictsSingle says that the only voter can be evicted.
	EvictsSingle bool
	// LeaderWanted says that the spec requests a Service of the leader.
	LeaderWanted bool
	// Recovery is what spec.recovery and the approval request.
	Recovery RecoveryWish
	// Epoch of the raft group in the status, 0 if unknown.
	Epoch uint32
	// Target is the state of the spec change that druid works on.
	Target
}

// kept returns how many names stay in the record. A cluster that is being paused keeps one member.
func (d Desired) kept() int { return max(d.Replicas, 1) }

// Observed is the cluster as Kubernetes shows it.
type Observed struct {
	RecordState RecordState
	// Record is the content of the record. It is empty unless the record can be read.
	Record leases.Record
	// RecordProblem says what is wrong with a record that has another owner or cannot be parsed.
	RecordProblem string
	LeaderLease   LeaseState
	// LeaderStill says that LeaderClaim stayed the same for so long that druid believes the member that leads.
	LeaderStill bool
	// Full and Delta are the Leases that report backups.
	Full, Delta Snapshot
	// Origin is the state of the EtcdSnapshot that a new cluster restores.
	Origin Origin
	// Save is the backup before a change of version. druid reads it only if one is needed.
	Save Save
	// Unattached are the listed members whose Pods do not mount what the backup store needs, sorted by name.
	Unattached []string
	// StoreClaim is the claim that holds the backups.
	StoreClaim StoreClaim
	// Objects are the objects that druid applies, except the PodDisruptionBudget, and those that it deletes again.
	Objects []Object
	// Budget is the state of the PodDisruptionBudget, BudgetMin its minAvailable, and BudgetExplanation its sentence.
	Budget            ObjectState
	BudgetMin         int
	BudgetExplanation string
	// Members are all names in the record and in the names of the cluster's objects, sorted by name.
	Members []Member
	// Certificates are the Secrets of the planes whose certificates druid issues.
	Certificates []Certificates
	// BadRotation is what is wrong with the annotation that requests another certificate authority, empty if nothing is.
	BadRotation string
	// QuorumMissed says that the quorum was lost for longer than a restart takes.
	QuorumMissed bool
	// QuorumOverdue says that the quorum was lost for as long as spec.recovery.afterSeconds. RecoveredRecently says that the
	// last recovery was less than ten minutes ago.
	QuorumOverdue, RecoveredRecently bool
	// RestoreOverdue says that an order to restore in place stands for longer than its time limit. RestoreSave is the final backup
	// before a restore; druid reads it only after an approval.
	RestoreOverdue bool
	RestoreSave    Save
	// SavedUntil is the time up to which all changes are known to be in the backup store, zero if unknown.
	SavedUntil time.Time
	// Requests are the Certificates of the planes whose certificates cert-manager issues.
	Requests []Request
	// SeedStuck says that the Pod of the first member has not started for longer than the wait limit, while the Pod of
	// another member has started.
	SeedStuck rules.YesNo
	// Problems that need action by the user, found in Pods, claims and Leases.
	Problems []Problem
}

// Object is an object that druid applies.
type Object struct {
	Kind, Name string
	State      ObjectState
	// Stage in which it is applied.
	Stage Stage
}

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
	// Node is the state of the Pod's node, or of the only node that can mount the volume. druid reads Node and Volume
	// only if they matter; otherwise they are 0. NodeName is the name of that node.
	Node     NodeState
	NodeName string
	Volume   VolumeState
}

// Problem keeps the cluster from its spec until a user acts, or something changes outside druid.
type Problem struct {
	// Reason is one of the reasons of the condition Degraded.
	Reason string
	// Member that has the problem, or empty.
	Member string
	// Message says what is wrong and what to do about it.
	Message string
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

// listed returns the members that the record lists.
func (o Observed) listed() []Member {
	return slices.DeleteFunc(slices.Clone(o.Members), func(m Member) bool { return !m.Listed })
}

// formed reports whether the raft group exists.
func (o Observed) formed() rules.YesNo {
	return rules.YesNoOf(o.RecordState&(RecordFormed|RecordRecovering) != 0)
}

func quorum(voters int) int { return voters/2 + 1 }
