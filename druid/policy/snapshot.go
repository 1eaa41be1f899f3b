package policy

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// What an EtcdSnapshot is about, as one bit per value.
type (
	// SnapshotPhase is the phase in the status.
	SnapshotPhase uint8
	// SnapshotCluster reports whether its EtcdCluster exists.
	SnapshotCluster uint8
	// OrderSlot is the state of the annotation on the Lease in which it is requested.
	OrderSlot uint8
	// OrderAnswer is the response of the leader's agent to the request.
	OrderAnswer uint8
	// SnapshotHold reports whether a finalizer holds it as required. It is required while its backup is to be deleted
	// with it.
	SnapshotHold uint8
)

// The phases.
const (
	SnapshotNew     SnapshotPhase = 1 << iota // the status says nothing yet
	SnapshotPending                           // it was seen
	SnapshotRunning                           // an agent is at it
	SnapshotFinal                             // it succeeded or failed

	anySnapshotPhase  = SnapshotNew | SnapshotPending | SnapshotRunning | SnapshotFinal
	openSnapshotPhase = SnapshotNew | SnapshotPending | SnapshotRunning
)

func (s SnapshotPhase) String() string {
	return rules.Word(s, "new", "Pending", "Running", "final")
}

// Whether the cluster is there.
const (
	SnapshotClusterThere   SnapshotCluster = 1 << iota
	SnapshotClusterMissing                 // not there, and perhaps about to be created
	SnapshotClusterGone                    // not there for longer than that, or deleted
)

func (s SnapshotCluster) String() string {
	return rules.Word(s, "there", "missing", "gone")
}

// What stands on the Lease.
const (
	OrderSlotUnknown OrderSlot = 1 << iota // there is no such Lease, or it is someone else's
	OrderSlotFree
	OrderSlotTaken // by another EtcdSnapshot, or one that comes before takes it now
	OrderSlotMine
)

func (o OrderSlot) String() string {
	return rules.Word(o, "unknown", "free", "another's", "its")
}

// The answers.
const (
	OrderUnanswered OrderAnswer = 1 << iota
	OrderRunning
	OrderSucceeded
	OrderFailed
)

func (o OrderAnswer) String() string {
	return rules.Word(o, "none", "Running", "Succeeded", "Failed")
}

// Whether it is held.
const (
	SnapshotHeldRight    SnapshotHold = 1 << iota
	SnapshotHoldMissing               // its backup is to go with it, and nothing holds it
	SnapshotHeldNeedless              // there is no backup, or it is to stay
)

func (s SnapshotHold) String() string {
	return rules.Word(s, "as it should", "missing", "needless")
}

// SnapshotStep is the next step for an EtcdSnapshot.
type SnapshotStep string

// The steps. All but Wait change something, and are followed by another look.
const (
	SnapshotWait SnapshotStep = "Wait"
	// SnapshotAccept writes phase Pending.
	SnapshotAccept SnapshotStep = "Accept"
	// SnapshotOrder writes its request to the Lease.
	SnapshotOrder SnapshotStep = "Order"
	// SnapshotFollow writes phase Running.
	SnapshotFollow SnapshotStep = "Follow"
	// SnapshotConclude copies the final response into the status.
	SnapshotConclude SnapshotStep = "Conclude"
	// SnapshotFailCluster and SnapshotFailBackup write that it failed, and why.
	SnapshotFailCluster SnapshotStep = "FailCluster"
	SnapshotFailBackup  SnapshotStep = "FailBackup"
	// SnapshotClear removes request and response from the Lease.
	SnapshotClear SnapshotStep = "Clear"
	// SnapshotDelete deletes the EtcdSnapshot.
	SnapshotDelete SnapshotStep = "Delete"
	// SnapshotHoldIt adds the finalizer, and SnapshotLetGo removes it.
	SnapshotHoldIt SnapshotStep = "Hold"
	SnapshotLetGo  SnapshotStep = "LetGo"
)

// SnapshotFacts is the complete input of snapshotRows.
type SnapshotFacts struct {
	Phase   SnapshotPhase
	Cluster SnapshotCluster `fact:"its cluster is"`
	// Backup reports whether the cluster is to be backed up.
	Backup rules.YesNo `fact:"backed up"`
	Slot   OrderSlot   `fact:"order on the Lease"`
	Answer OrderAnswer
	// Expired reports whether the time for which it is kept after its end has passed.
	Expired rules.YesNo  `fact:"ttl is over"`
	Hold    SnapshotHold `fact:"finalizer"`
}

const finalAnswer = OrderSucceeded | OrderFailed

// snapshotRows are the policy for an EtcdSnapshot that is not being deleted. The first row that matches wins.
var snapshotRows = rules.New(SnapshotWait, []rules.Row[SnapshotFacts, SnapshotStep]{
	// The finalizer comes before the report of the backup. A user who reads the report and deletes the EtcdSnapshot
	// relies on it.
	{Name: "backup-to-hold", When: SnapshotFacts{Hold: SnapshotHoldMissing}, Verdict: SnapshotHoldIt},
	{Name: "nothing-to-hold", When: SnapshotFacts{Hold: SnapshotHeldNeedless}, Verdict: SnapshotLetGo},
	// The Lease is cleared only after the outcome is in the status.
	{Name: "concluded", When: SnapshotFacts{Phase: SnapshotFinal, Slot: OrderSlotMine}, Verdict: SnapshotClear},
	{Name: "expired", When: SnapshotFacts{Phase: SnapshotFinal, Expired: rules.Yes}, Verdict: SnapshotDelete},
	{Name: "over", When: SnapshotFacts{Phase: SnapshotFinal, Expired: rules.No}, Verdict: SnapshotWait},
	{Name: "answered", When: SnapshotFacts{Phase: openSnapshotPhase, Slot: OrderSlotMine, Answer: finalAnswer}, Verdict: SnapshotConclude},
	{Name: "cluster-gone", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterGone}, Verdict: SnapshotFailCluster},
	{Name: "seen", When: SnapshotFacts{Phase: SnapshotNew, Cluster: SnapshotClusterThere | SnapshotClusterMissing}, Verdict: SnapshotAccept},
	{Name: "cluster-missing", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterMissing}, Verdict: SnapshotWait},
	{Name: "no-backup", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterThere, Backup: rules.No}, Verdict: SnapshotFailBackup},
	{Name: "running", When: SnapshotFacts{Phase: SnapshotPending, Cluster: SnapshotClusterThere, Backup: rules.Yes, Slot: OrderSlotMine, Answer: OrderRunning}, Verdict: SnapshotFollow},
	{Name: "ordered", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterThere, Backup: rules.Yes, Slot: OrderSlotMine}, Verdict: SnapshotWait},
	{Name: "not-its-turn", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterThere, Backup: rules.Yes, Slot: OrderSlotTaken}, Verdict: SnapshotWait},
	{Name: "no-lease", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterThere, Backup: rules.Yes, Slot: OrderSlotUnknown}, Verdict: SnapshotWait},
	// This includes a snapshot that was running: if the request was removed, its response was removed too.
	{Name: "its-turn", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterThere, Backup: rules.Yes, Slot: OrderSlotFree}, Verdict: SnapshotOrder},
})

// JudgeSnapshot returns the next step for an EtcdSnapshot that is not being deleted, and its rule.
func JudgeSnapshot(f SnapshotFacts) rules.Decision[SnapshotStep] { return snapshotRows.Decide(f) }

// What the deletion of an EtcdSnapshot that its finalizer holds is about, as one bit per value.
type (
	// DeletionBackup reports whether there is a backup to delete.
	DeletionBackup uint8
	// DeletionSlot is the state of the annotation on the Lease in which the deletion is requested.
	DeletionSlot uint8
)

// Whether there is a backup to delete.
const (
	DeletionOfNothing   DeletionBackup = 1 << iota // it is to stay, or was not made
	DeletionNotReported                            // it was made, and the status does not report it yet
	DeletionWanted
)

func (d DeletionBackup) String() string {
	return rules.Word(d, "none, or to stay", "not reported yet", "to delete")
}

// What stands on the Lease.
const (
	DeletionSlotUnknown DeletionSlot = 1 << iota // there is no such Lease, or it is someone else's
	DeletionSlotFree
	DeletionSlotTaken   // by another EtcdSnapshot, or one that comes before takes it now
	DeletionSlotBackup  // its own order, to make the backup
	DeletionSlotOrdered // its own order, to delete it

	anyDeletionSlot = DeletionSlotUnknown | DeletionSlotFree | DeletionSlotTaken | DeletionSlotBackup | DeletionSlotOrdered
)

func (d DeletionSlot) String() string {
	return rules.Word(d, "unknown", "free", "another's", "its backup", "its deletion")
}

// Steps that let the EtcdSnapshot go. All but the first report by an Event what became of the backup.
const (
	// SnapshotReleaseDeleted: the agent deleted the backup, or it did not exist any more.
	SnapshotReleaseDeleted SnapshotStep = "ReleaseDeleted"
	// SnapshotReleaseRefused: the agent did not delete the backup, and reported why.
	SnapshotReleaseRefused SnapshotStep = "ReleaseRefused"
	// SnapshotReleaseCluster: there is no cluster with backups whose agents could delete the backup.
	SnapshotReleaseCluster SnapshotStep = "ReleaseCluster"
	// SnapshotReleaseLate: no agent deleted the backup in time.
	SnapshotReleaseLate SnapshotStep = "ReleaseLate"
)

// DeletionFacts is the complete input of deletionRows.
type DeletionFacts struct {
	Backup DeletionBackup
	// Cluster reports whether the cluster exists and is to be backed up.
	Cluster rules.YesNo  `fact:"cluster there and backed up"`
	Slot    DeletionSlot `fact:"order on the Lease"`
	// Answer to the order that is on the Lease.
	Answer OrderAnswer
	// Late reports whether the deletion has taken longer than its limit.
	Late rules.YesNo
}

const notOrdered = anyDeletionSlot &^ DeletionSlotOrdered

// deletionRows are the policy. The first row that matches wins. Every case ends with the removal of the finalizer, so
// no deletion waits permanently.
var deletionRows = rules.New(SnapshotWait, []rules.Row[DeletionFacts, SnapshotStep]{
	// The request is removed first, by compare-and-set, so that a backup that is kept after all is not deleted.
	{Name: "order-taken-back", When: DeletionFacts{Backup: DeletionOfNothing, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning}, Verdict: SnapshotClear},
	{Name: "nothing-to-delete", When: DeletionFacts{Backup: DeletionOfNothing}, Verdict: SnapshotLetGo},
	{Name: "deleted", When: DeletionFacts{Backup: DeletionWanted, Slot: DeletionSlotOrdered, Answer: OrderSucceeded}, Verdict: SnapshotReleaseDeleted},
	{Name: "refused", When: DeletionFacts{Backup: DeletionWanted, Slot: DeletionSlotOrdered, Answer: OrderFailed}, Verdict: SnapshotReleaseRefused},
	{Name: "cluster-gone", When: DeletionFacts{Backup: DeletionNotReported | DeletionWanted, Cluster: rules.No}, Verdict: SnapshotReleaseCluster},
	{Name: "backup-not-reported", When: DeletionFacts{Backup: DeletionNotReported, Cluster: rules.Yes}, Verdict: SnapshotConclude},
	{Name: "late-order", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning, Late: rules.Yes}, Verdict: SnapshotClear},
	{Name: "late", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: notOrdered, Late: rules.Yes}, Verdict: SnapshotReleaseLate},
	{Name: "backup-reported", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotBackup, Late: rules.No}, Verdict: SnapshotClear},
	{Name: "deletion-ordered", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-not-its-turn", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotTaken, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-no-lease", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotUnknown, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-its-turn", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotFree, Late: rules.No}, Verdict: SnapshotOrder},
})

// JudgeSnapshotDeletion returns the next step for an EtcdSnapshot that is being deleted and has the finalizer, and its
// rule.
func JudgeSnapshotDeletion(f DeletionFacts) rules.Decision[SnapshotStep] {
	return deletionRows.Decide(f)
}
