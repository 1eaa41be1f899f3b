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
	// ObjectState is the observed state of an object that druid applies.
	ObjectState uint8
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
	// KeepVolumes are the names of the members whose claim stays after their removal, whatever RetainClaims says.
	KeepVolumes []string
	// ClaimsGo says that the claims are deleted with the EtcdCluster.
	ClaimsGo bool
	// RemoveExternalMembers says that the user allows the removal of the external members of a joined raft group.
	RemoveExternalMembers bool
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
	// AgentsLogIn says that etcd demands certificates of its clients. Without one, no agent can log in when authentication is on.
	AgentsLogIn bool
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
	// LostSince is when druid first saw that the quorum is lost, zero if it is not lost or that is not known.
	LostSince time.Time
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

// Problem keeps the cluster from its spec until a user acts, or something changes outside druid.
type Problem struct {
	// Reason is one of the reasons of the condition Degraded.
	Reason string
	// Member that has the problem, or empty.
	Member string
	// Message says what is wrong and what to do about it.
	Message string
}

// listed returns the members that the record lists.
func (o Observed) listed() []Member {
	return slices.DeleteFunc(slices.Clone(o.Members), func(m Member) bool { return !m.Listed })
}

// formed reports whether the raft group exists.
func (o Observed) formed() rules.YesNo {
	return rules.YesNoOf(o.RecordState&(RecordFormed|RecordRecovering) != 0)
}

func quorum(voters int) int { return voters/2 + 1 }

func (o Observed) member(name string) (Member, bool) {
	for _, m := range o.Members {
		if m.Name == name {
			return m, true
		}
	}
	return Member{}, false
}

// Evaluation is what the policies say of a cluster. Each policy decides once per pass. The adoption of a spec, the steps, the status and
// the messages follow from the same Evaluation.
type Evaluation struct {
	Desired
	Observed

	// Finalizer is the decision about the finalizer of the EtcdCluster.
	Finalizer rules.Decision[Finalizer]

	// listed are the members that the record lists.
	listed    []Member
	evidence  evidence
	backups   backups
	pause     pauseState
	scaleDown scaleDown
	externals externals
	upgrade   upgrade
	rollout   rollout
	replace   replace
	update    update
	// rotations are the decisions about the certificate authorities, by plane.
	rotations map[string]rotation
	recovery  recovery
	restore   restore
	// problems are the observed problems and those that follow from the cluster.
	problems []Problem
}

// Evaluate decides every policy once, each after those that it depends on. The observation must be complete.
func Evaluate(d Desired, o Observed) Evaluation {
	e := Evaluation{
		Desired: d, Observed: o, listed: o.listed(),
		evidence: evidenceOf(d, o), backups: backupsOf(d, o), externals: externalsOf(d, o), upgrade: upgradeOf(d, o),
	}
	e.Finalizer = finalizerOf(d, o, e.evidence)
	e.pause = pauseStateOf(d, o, e.evidence, e.backups)
	e.scaleDown = scaleDownOf(e)
	e.rollout = rolloutOf(e)
	e.replace = replaceOf(e)
	e.update = updateOf(e)
	e.rotations = map[string]rotation{}
	for _, c := range o.Certificates {
		e.rotations[c.Plane] = rotationOf(c, e)
	}
	e.recovery = recoveryOf(d, o, e.listed)
	e.restore = restoreOf(d, o, e.listed)
	e.problems = problemsOf(e)
	return e
}

// handsOff says that druid must not act for the cluster. A deletion continues, because Kubernetes deletes the objects in any case.
func (e Evaluation) handsOff() bool { return e.HandsOff != "" && !e.Deleted }
