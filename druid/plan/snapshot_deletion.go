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
	DeletionUntold                               // it was made, and the status does not tell it yet
	DeletionWanted

	anyDeletionBackup = DeletionOfNothing | DeletionUntold | DeletionWanted
)

// What stands on the Lease.
const (
	DeletionSlotUnknown DeletionSlot = 1 << iota // there is no such Lease, or it is somebody else's
	DeletionSlotFree
	DeletionSlotTaken   // by another EtcdSnapshot, or one that comes before takes it now
	DeletionSlotBackup  // its own order, to make the backup
	DeletionSlotOrdered // its own order, to delete it

	anyDeletionSlot = DeletionSlotUnknown | DeletionSlotFree | DeletionSlotTaken | DeletionSlotBackup | DeletionSlotOrdered
)

// Steps that let the EtcdSnapshot go. All but the first tell by an Event what became of the backup.
const (
	// SnapshotReleaseDeleted: the agent deleted it, or it was gone.
	SnapshotReleaseDeleted SnapshotStep = "ReleaseDeleted"
	// SnapshotReleaseRefused: the agent refused, and said why.
	SnapshotReleaseRefused SnapshotStep = "ReleaseRefused"
	// SnapshotReleaseCluster: there is no cluster any more whose agents could delete it, or none that is backed up.
	SnapshotReleaseCluster SnapshotStep = "ReleaseCluster"
	// SnapshotReleaseLate: nobody deleted it in time.
	SnapshotReleaseLate SnapshotStep = "ReleaseLate"
)

// DeletionFacts is all that the policy on an EtcdSnapshot that is being deleted may look at.
type DeletionFacts struct {
	Backup DeletionBackup
	// Cluster says whether it is there, and backed up.
	Cluster rules.YesNo
	Slot    DeletionSlot
	// Answer to the order that is on the Lease.
	Answer OrderAnswer
	// Late says whether it is being deleted for longer than anybody should wait.
	Late rules.YesNo
}

type deletionRow struct {
	name    string
	backup  DeletionBackup
	cluster rules.YesNo
	slot    DeletionSlot
	answer  OrderAnswer
	late    rules.YesNo
	step    SnapshotStep
}

const notOrdered = anyDeletionSlot &^ DeletionSlotOrdered

// deletionRows are the policy; the first row that matches wins. Nobody waits for ever: each way ends in letting it go.
var deletionRows = []deletionRow{
	// The order goes first, by a compare-and-set: whoever keeps the backup after all must not lose it.
	{"order-taken-back", DeletionOfNothing, anyAnswer, DeletionSlotOrdered, OrderUnanswered | OrderRunning, anyAnswer, SnapshotClear},
	{"nothing-to-delete", DeletionOfNothing, anyAnswer, anyDeletionSlot, anyOrderAnswer, anyAnswer, SnapshotLetGo},
	{"deleted", DeletionWanted, anyAnswer, DeletionSlotOrdered, OrderSucceeded, anyAnswer, SnapshotReleaseDeleted},
	{"refused", DeletionWanted, anyAnswer, DeletionSlotOrdered, OrderFailed, anyAnswer, SnapshotReleaseRefused},
	{"cluster-gone", DeletionUntold | DeletionWanted, rules.No, anyDeletionSlot, anyOrderAnswer, anyAnswer, SnapshotReleaseCluster},
	{"backup-untold", DeletionUntold, rules.Yes, anyDeletionSlot, anyOrderAnswer, anyAnswer, SnapshotConclude},
	{"late-order", DeletionWanted, rules.Yes, DeletionSlotOrdered, OrderUnanswered | OrderRunning, rules.Yes, SnapshotClear},
	{"late", DeletionWanted, rules.Yes, notOrdered, anyOrderAnswer, rules.Yes, SnapshotReleaseLate},
	{"backup-told", DeletionWanted, rules.Yes, DeletionSlotBackup, anyOrderAnswer, rules.No, SnapshotClear},
	{"deletion-ordered", DeletionWanted, rules.Yes, DeletionSlotOrdered, OrderUnanswered | OrderRunning, rules.No, SnapshotWait},
	{"deletion-not-its-turn", DeletionWanted, rules.Yes, DeletionSlotTaken, anyOrderAnswer, rules.No, SnapshotWait},
	{"deletion-no-lease", DeletionWanted, rules.Yes, DeletionSlotUnknown, anyOrderAnswer, rules.No, SnapshotWait},
	{"deletion-its-turn", DeletionWanted, rules.Yes, DeletionSlotFree, anyOrderAnswer, rules.No, SnapshotOrder},
}

func (r deletionRow) matches(f DeletionFacts) bool {
	return r.backup&f.Backup != 0 && r.cluster&f.Cluster != 0 && r.slot&f.Slot != 0 && r.answer&f.Answer != 0 && r.late&f.Late != 0
}

// JudgeSnapshotDeletion says what is done next for an EtcdSnapshot that is being deleted and held, and by which rule.
func JudgeSnapshotDeletion(f DeletionFacts) (step SnapshotStep, rule string) {
	for _, r := range deletionRows {
		if r.matches(f) {
			return r.step, r.name
		}
	}
	return SnapshotWait, "uncovered"
}
