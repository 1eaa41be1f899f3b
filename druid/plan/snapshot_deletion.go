package plan

import "github.com/etcd-druid/druid/internal/rules"

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
	{Name: "backup-untold", When: DeletionFacts{Backup: DeletionUntold, Cluster: rules.Yes}, Verdict: SnapshotConclude},
	{Name: "late-order", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning, Late: rules.Yes}, Verdict: SnapshotClear},
	{Name: "late", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: notOrdered, Late: rules.Yes}, Verdict: SnapshotReleaseLate},
	{Name: "backup-told", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotBackup, Late: rules.No}, Verdict: SnapshotClear},
	{Name: "deletion-ordered", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotOrdered, Answer: OrderUnanswered | OrderRunning, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-not-its-turn", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotTaken, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-no-lease", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotUnknown, Late: rules.No}, Verdict: SnapshotWait},
	{Name: "deletion-its-turn", When: DeletionFacts{Backup: DeletionWanted, Cluster: rules.Yes, Slot: DeletionSlotFree, Late: rules.No}, Verdict: SnapshotOrder},
})

// JudgeSnapshotDeletion says what is done next for an EtcdSnapshot that is being deleted and held, and by which rule.
func JudgeSnapshotDeletion(f DeletionFacts) rules.Decision[SnapshotStep] {
	return deletionRows.Decide(f)
}
