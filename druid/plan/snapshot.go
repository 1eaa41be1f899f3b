package plan

import "github.com/etcd-druid/druid/internal/rules"

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

// Whether the cluster is there.
const (
	SnapshotClusterThere   SnapshotCluster = 1 << iota
	SnapshotClusterMissing                 // not there, and perhaps about to be created
	SnapshotClusterGone                    // not there for longer than that, or deleted

	anySnapshotCluster = SnapshotClusterThere | SnapshotClusterMissing | SnapshotClusterGone
)

// What stands on the Lease.
const (
	OrderSlotUnknown OrderSlot = 1 << iota // there is no such Lease, or it is somebody else's
	OrderSlotFree
	OrderSlotTaken // by another EtcdSnapshot, or one that comes before takes it now
	OrderSlotMine

	anyOrderSlot = OrderSlotUnknown | OrderSlotFree | OrderSlotTaken | OrderSlotMine
)

// The answers.
const (
	OrderUnanswered OrderAnswer = 1 << iota
	OrderRunning
	OrderSucceeded
	OrderFailed

	anyOrderAnswer = OrderUnanswered | OrderRunning | OrderSucceeded | OrderFailed
)

// Whether it is held.
const (
	SnapshotHeldRight    SnapshotHold = 1 << iota
	SnapshotHoldMissing               // its backup is to go with it, and nothing holds it
	SnapshotHeldNeedless              // there is no backup, or it is to stay

	anySnapshotHold = SnapshotHeldRight | SnapshotHoldMissing | SnapshotHeldNeedless
)

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
	Cluster SnapshotCluster
	// Backup says whether the cluster is to be backed up.
	Backup rules.YesNo
	Slot   OrderSlot
	Answer OrderAnswer
	// Expired says whether it is over for as long as it is to be kept.
	Expired rules.YesNo
	Hold    SnapshotHold
}

type snapshotRow struct {
	name    string
	phase   SnapshotPhase
	cluster SnapshotCluster
	backup  rules.YesNo
	slot    OrderSlot
	answer  OrderAnswer
	expired rules.YesNo
	hold    SnapshotHold
	step    SnapshotStep
}

const finalAnswer = OrderSucceeded | OrderFailed

// snapshotRows are the policy on one that is not being deleted; the first row that matches wins.
var snapshotRows = []snapshotRow{
	// Before the backup is told of: who reads of it and deletes the EtcdSnapshot relies on that.
	{"backup-to-hold", anySnapshotPhase, anySnapshotCluster, anyAnswer, anyOrderSlot, anyOrderAnswer, anyAnswer, SnapshotHoldMissing, SnapshotHoldIt},
	{"nothing-to-hold", anySnapshotPhase, anySnapshotCluster, anyAnswer, anyOrderSlot, anyOrderAnswer, anyAnswer, SnapshotHeldNeedless, SnapshotLetGo},
	// The outcome is in the status: only then the Lease may forget it.
	{"concluded", SnapshotFinal, anySnapshotCluster, anyAnswer, OrderSlotMine, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotClear},
	{"expired", SnapshotFinal, anySnapshotCluster, anyAnswer, anyOrderSlot, anyOrderAnswer, rules.Yes, anySnapshotHold, SnapshotDelete},
	{"over", SnapshotFinal, anySnapshotCluster, anyAnswer, anyOrderSlot, anyOrderAnswer, rules.No, anySnapshotHold, SnapshotWait},
	{"answered", openSnapshotPhase, anySnapshotCluster, anyAnswer, OrderSlotMine, finalAnswer, anyAnswer, anySnapshotHold, SnapshotConclude},
	{"cluster-gone", openSnapshotPhase, SnapshotClusterGone, anyAnswer, anyOrderSlot, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotFailCluster},
	{"seen", SnapshotNew, SnapshotClusterThere | SnapshotClusterMissing, anyAnswer, anyOrderSlot, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotAccept},
	{"cluster-missing", openSnapshotPhase, SnapshotClusterMissing, anyAnswer, anyOrderSlot, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotWait},
	{"no-backup", openSnapshotPhase, SnapshotClusterThere, rules.No, anyOrderSlot, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotFailBackup},
	{"running", SnapshotPending, SnapshotClusterThere, rules.Yes, OrderSlotMine, OrderRunning, anyAnswer, anySnapshotHold, SnapshotFollow},
	{"ordered", openSnapshotPhase, SnapshotClusterThere, rules.Yes, OrderSlotMine, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotWait},
	{"not-its-turn", openSnapshotPhase, SnapshotClusterThere, rules.Yes, OrderSlotTaken, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotWait},
	{"no-lease", openSnapshotPhase, SnapshotClusterThere, rules.Yes, OrderSlotUnknown, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotWait},
	// Also of one that was running: whoever took the order away took its answer along.
	{"its-turn", openSnapshotPhase, SnapshotClusterThere, rules.Yes, OrderSlotFree, anyOrderAnswer, anyAnswer, anySnapshotHold, SnapshotOrder},
}

func (r snapshotRow) matches(f SnapshotFacts) bool {
	return r.phase&f.Phase != 0 && r.cluster&f.Cluster != 0 && r.backup&f.Backup != 0 && r.slot&f.Slot != 0 &&
		r.answer&f.Answer != 0 && r.expired&f.Expired != 0 && r.hold&f.Hold != 0
}

// JudgeSnapshot says what is done next for an EtcdSnapshot that is not being deleted, and by which rule.
func JudgeSnapshot(f SnapshotFacts) (step SnapshotStep, rule string) {
	for _, r := range snapshotRows {
		if r.matches(f) {
			return r.step, r.name
		}
	}
	return SnapshotWait, "uncovered"
}
