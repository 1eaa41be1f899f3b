package policy

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// What an EtcdSnapshot is about, as one bit per value.
type (
	// SnapshotPhase is how far the status says that it is.
	SnapshotPhase uint8
	// SnapshotCluster is whether its EtcdCluster is there.
	SnapshotCluster uint8
	// OrderSlot is what stands on the Lease where its order belongs.
	OrderSlot uint8
	// OrderAnswer is how the leader's agent answered its order.
	OrderAnswer uint8
	// SnapshotHold is whether a finalizer holds it as long as its backup is to be deleted with it.
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

// SnapshotStep is what is done for an EtcdSnapshot next.
type SnapshotStep string

// The steps. All but Wait change something, and are followed by another look.
const (
	SnapshotWait SnapshotStep = "Wait"
	// SnapshotAccept says that it was seen.
	SnapshotAccept SnapshotStep = "Accept"
	// SnapshotOrder puts its order on the Lease.
	SnapshotOrder SnapshotStep = "Order"
	// SnapshotFollow says that an agent is at it.
	SnapshotFollow SnapshotStep = "Follow"
	// SnapshotConclude copies the final answer into the status.
	SnapshotConclude SnapshotStep = "Conclude"
	// SnapshotFailCluster and SnapshotFailBackup say that it fails, and why.
	SnapshotFailCluster SnapshotStep = "FailCluster"
	SnapshotFailBackup  SnapshotStep = "FailBackup"
	// SnapshotClear takes order and answer off the Lease.
	SnapshotClear SnapshotStep = "Clear"
	// SnapshotDelete deletes the EtcdSnapshot.
	SnapshotDelete SnapshotStep = "Delete"
	// SnapshotHoldIt puts the finalizer on it, and SnapshotLetGo takes it off.
	SnapshotHoldIt SnapshotStep = "Hold"
	SnapshotLetGo  SnapshotStep = "LetGo"
)

// SnapshotFacts is all that the policy on an EtcdSnapshot may look at.
type SnapshotFacts struct {
	Phase   SnapshotPhase
	Cluster SnapshotCluster `fact:"its cluster is"`
	// Backup says whether the cluster is to be backed up.
	Backup rules.YesNo `fact:"backed up"`
	Slot   OrderSlot   `fact:"order on the Lease"`
	Answer OrderAnswer
	// Expired says whether it is over for as long as it is to be kept.
	Expired rules.YesNo  `fact:"ttl is over"`
	Hold    SnapshotHold `fact:"finalizer"`
}

const finalAnswer = OrderSucceeded | OrderFailed

// snapshotRows are the policy on one that is not being deleted; the first row that matches wins.
var snapshotRows = rules.New(SnapshotWait, []rules.Row[SnapshotFacts, SnapshotStep]{
	// Before the backup is informed of: who reads of it and deletes the EtcdSnapshot relies on that.
	{Name: "backup-to-hold", When: SnapshotFacts{Hold: SnapshotHoldMissing}, Verdict: SnapshotHoldIt},
	{Name: "nothing-to-hold", When: SnapshotFacts{Hold: SnapshotHeldNeedless}, Verdict: SnapshotLetGo},
	// The outcome is in the status: only then the Lease may forget it.
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
	// Also of one that was running: anyone who took the order away took its answer along.
	{Name: "its-turn", When: SnapshotFacts{Phase: openSnapshotPhase, Cluster: SnapshotClusterThere, Backup: rules.Yes, Slot: OrderSlotFree}, Verdict: SnapshotOrder},
})

// JudgeSnapshot says what is done next for an EtcdSnapshot that is not being deleted, and by which rule.
func JudgeSnapshot(f SnapshotFacts) rules.Decision[SnapshotStep] { return snapshotRows.Decide(f) }

// What the deletion of an EtcdSnapshot that its finalizer holds is about, as one bit per value.
type (
	// DeletionBackup is whether there is a backup to delete.
	DeletionBackup uint8
	// DeletionSlot is what stands on the Lease where the order to delete it belongs.
	DeletionSlot uint8
)

// Whether there is a backup to delete.
const (
	DeletionOfNothing DeletionBackup = 1 << iota // it is to stay, or was not made
	DeletionUntold                               // it was made, and the status does not report it yet
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
	// SnapshotReleaseDeleted: the agent deleted it, or it was gone.
	SnapshotReleaseDeleted SnapshotStep = "ReleaseDeleted"
	// SnapshotReleaseRefused: the agent refused, and said why.
	SnapshotReleaseRefused SnapshotStep = "ReleaseRefused"
	// SnapshotReleaseCluster: there is no cluster any more whose agents could delete it, or none that is backed up.
	SnapshotReleaseCluster SnapshotStep = "ReleaseCluster"
	// SnapshotReleaseLate: no one deleted it in time.
	SnapshotReleaseLate SnapshotStep = "ReleaseLate"
)

// DeletionFacts is all that the policy on an EtcdSnapshot that is being deleted may look at.
type DeletionFacts struct {
	Backup DeletionBackup
	// Cluster says whether it is there, and backed up.
	Cluster rules.YesNo  `fact:"cluster there and backed up"`
	Slot    DeletionSlot `fact:"order on the Lease"`
	// Answer to the order that is on the Lease.
	Answer OrderAnswer
	// Late says whether it is being deleted for longer than anybody should wait.
	Late rules.YesNo
}

const notOrdered = anyDeletionSlot &^ DeletionSlotOrdered

// deletionRows are the policy; the first row that matches wins. No one waits permanently: each way ends in letting it go.
var deletionRows = rules.New(SnapshotWait, []rules.Row[DeletionFacts, SnapshotStep]{
	// The order goes first, by a compare-and-set: anyone who keeps the backup after all must not lose it.
	{Name: "order-taken-back", When: DeletionFacts{Backup: DeletionOfNothing, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning}, Verdict: SnapshotClear},
	{Name: "nothing-to-delete", When: DeletionFacts{Backup: DeletionOfNothing}, Verdict: SnapshotLetGo},
	{Name: "deleted", When: DeletionFacts{Backup: DeletionWanted, Slot: DeletionSlotOrdered, Answer: OrderSucceeded}, Verdict: SnapshotReleaseDeleted},
	{Name: "refused", When: DeletionFacts{Backup: DeletionWanted, Slot: DeletionSlotOrdered, Answer: OrderFailed}, Verdict: SnapshotReleaseRefused},
	{Name: "cluster-gone", When: DeletionFacts{Backup: DeletionUntold | DeletionWanted, Cluster: rules.No}, Verdict: SnapshotReleaseCluster},
	{Name: "backup-not-reported", When: DeletionFacts{Backup: DeletionUntold, Cluster: rules.Yes}, Verdict: SnapshotConclude},
	{Name: "late-order", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning, Late: rules.Yes}, Verdict: SnapshotClear},
	{Name: "late", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: notOrdered, Late: rules.Yes}, Verdict: SnapshotReleaseLate},
	{Name: "backup-reported", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotBackup, Late: rules.No}, Verdict: SnapshotClear},
	{Name: "deletion-ordered", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-not-its-turn", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotTaken, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-no-lease", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotUnknown, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-its-turn", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotFree, Late: rules.No}, Verdict: SnapshotOrder},
})

// JudgeSnapshotDeletion says what is done next for an EtcdSnapshot that is being deleted and held, and by which rule.
func JudgeSnapshotDeletion(f DeletionFacts) rules.Decision[SnapshotStep] {
	return deletionRows.Decide(f)
}
