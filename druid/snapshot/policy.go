package snapshot

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// What an EtcdSnapshot is about, as one bit per value.
type (
	// phase is the phase in the status.
	phase uint8
	// clusterState reports whether its EtcdCluster exists.
	clusterState uint8
	// orderSlot is the state of the annotation on the Lease in which it is requested.
	orderSlot uint8
	// orderAnswer is the response of the leader's agent to the request.
	orderAnswer uint8
	// hold reports whether a finalizer holds it as required. It is required while its backup is to be deleted
	// with it.
	hold uint8
)

// The phases.
const (
	phaseNew     phase = 1 << iota // the status says nothing yet
	phasePending                   // it was seen
	phaseRunning                   // an agent is at it
	phaseFinal                     // it succeeded or failed

	openPhase = phaseNew | phasePending | phaseRunning
)

func (s phase) String() string {
	return rules.Word(s, "new", "Pending", "Running", "final")
}

// Whether the cluster is there.
const (
	clusterThere   clusterState = 1 << iota
	clusterMissing              // not there, and perhaps about to be created
	clusterGone                 // not there for longer than that, or deleted
)

func (s clusterState) String() string {
	return rules.Word(s, "there", "missing", "gone")
}

// What stands on the Lease.
const (
	slotUnknown orderSlot = 1 << iota // there is no such Lease, or it is someone else's
	slotFree
	slotTaken // by another EtcdSnapshot, or one that comes before takes it now
	slotMine
	slotPausing // it is free, and the pause after the last Pod is not over
)

func (o orderSlot) String() string {
	return rules.Word(o, "unknown", "free", "another's", "its", "free after a pause")
}

// The answers.
const (
	unanswered orderAnswer = 1 << iota
	answerRunning
	answerSucceeded
	answerFailed
	answerLost // the Pod ended, and not because it was done

	openAnswer = unanswered | answerRunning | answerLost
)

func (o orderAnswer) String() string {
	return rules.Word(o, "none", "Running", "Succeeded", "Failed", "lost")
}

// Whether it is held.
const (
	heldRight    hold = 1 << iota
	holdMissing       // its backup is to go with it, and nothing holds it
	heldNeedless      // there is no backup, or it is to stay
)

func (s hold) String() string {
	return rules.Word(s, "as it should", "missing", "needless")
}

// step is the next step for an EtcdSnapshot.
type step string

// The steps. All but Wait change something, and are followed by another look.
const (
	stepWait step = "Wait"
	// stepAccept writes phase Pending.
	stepAccept step = "Accept"
	// stepOrder writes its request to the Lease.
	stepOrder step = "Order"
	// stepFollow writes phase Running.
	stepFollow step = "Follow"
	// stepConclude copies the final response into the status.
	stepConclude step = "Conclude"
	// stepFailCluster and stepFailBackup write that it failed, and why.
	stepFailCluster step = "FailCluster"
	stepFailBackup  step = "FailBackup"
	// stepFailOverdue writes that it was not saved in time, and the last reason.
	stepFailOverdue step = "FailOverdue"
	// stepClear removes request and response from the Lease.
	stepClear step = "Clear"
	// stepRetry writes why a Pod was lost, and deletes it, so that another one is created.
	stepRetry step = "Retry"
	// stepReport writes what it waits for.
	stepReport step = "Report"
	// stepDelete deletes the EtcdSnapshot.
	stepDelete step = "Delete"
	// stepHold adds the finalizer, and stepRelease removes it.
	stepHold    step = "Hold"
	stepRelease step = "Release"
)

// snapshotFacts is the complete input of snapshotRows.
type snapshotFacts struct {
	Phase   phase
	Cluster clusterState `fact:"its cluster is"`
	// Backup reports whether the cluster is to be backed up.
	Backup rules.YesNo `fact:"backed up"`
	Slot   orderSlot   `fact:"order on the Lease"`
	Answer orderAnswer
	// Expired reports whether the time for which it is kept after its end has passed.
	Expired rules.YesNo `fact:"ttl is over"`
	Hold    hold        `fact:"finalizer"`
	// Overdue reports whether it has waited for its turn, or its Pods have taken, longer than the limit.
	Overdue rules.YesNo `fact:"its limit is over"`
	// News reports whether it waits for something that the status does not say.
	News rules.YesNo `fact:"status is behind"`
}

const finalAnswer = answerSucceeded | answerFailed

// snapshotRows are the policy for an EtcdSnapshot that is not being deleted. The first row that matches wins.
var snapshotRows = rules.New(stepWait, []rules.Row[snapshotFacts, step]{
	// The finalizer comes before the report of the backup. A user who reads the report and deletes the EtcdSnapshot
	// relies on it.
	{Name: "backup-to-hold", When: snapshotFacts{Hold: holdMissing}, Verdict: stepHold},
	{Name: "nothing-to-hold", When: snapshotFacts{Hold: heldNeedless}, Verdict: stepRelease},
	// The Lease is cleared only after the outcome is in the status.
	{Name: "concluded", When: snapshotFacts{Phase: phaseFinal, Slot: slotMine}, Verdict: stepClear},
	{Name: "expired", When: snapshotFacts{Phase: phaseFinal, Expired: rules.Yes}, Verdict: stepDelete},
	{Name: "finished", When: snapshotFacts{Phase: phaseFinal, Expired: rules.No}, Verdict: stepWait},
	{Name: "answered", When: snapshotFacts{Phase: openPhase, Slot: slotMine, Answer: finalAnswer}, Verdict: stepConclude},
	{Name: "cluster-gone", When: snapshotFacts{Phase: openPhase, Cluster: clusterGone}, Verdict: stepFailCluster},
	{Name: "accept", When: snapshotFacts{Phase: phaseNew, Cluster: clusterThere | clusterMissing}, Verdict: stepAccept},
	{Name: "cluster-missing", When: snapshotFacts{Phase: openPhase, Cluster: clusterMissing}, Verdict: stepWait},
	{Name: "no-backup", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.No}, Verdict: stepFailBackup},
	// The time of Pods counts from the first one: a Pod that is lost again and again does not extend it, and a Pod that the API server refuses
	// does not stop it.
	{Name: "overdue", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Overdue: rules.Yes}, Verdict: stepFailOverdue},
	{Name: "answer-lost", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Slot: slotMine, Answer: answerLost}, Verdict: stepRetry},
	{Name: "waiting", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Slot: slotMine | slotUnknown,
		Answer: unanswered, News: rules.Yes},
		Verdict: stepReport},
	{Name: "running", When: snapshotFacts{Phase: phasePending, Cluster: clusterThere, Backup: rules.Yes, Slot: slotMine, Answer: answerRunning},
		Verdict: stepFollow},
	{Name: "ordered", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Slot: slotMine}, Verdict: stepWait},
	{Name: "after-another", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Slot: slotTaken}, Verdict: stepWait},
	{Name: "pause-between-pods", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Slot: slotPausing}, Verdict: stepWait},
	{Name: "no-lease", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Slot: slotUnknown}, Verdict: stepWait},
	// This includes a snapshot that was running: if the request was removed, its response was removed too.
	{Name: "request-backup", When: snapshotFacts{Phase: openPhase, Cluster: clusterThere, Backup: rules.Yes, Slot: slotFree}, Verdict: stepOrder},
})

// What the deletion of an EtcdSnapshot that its finalizer holds is about, as one bit per value.
type (
	// deletionBackup reports whether there is a backup to delete.
	deletionBackup uint8
	// deletionSlot is the state of the annotation on the Lease in which the deletion is requested.
	deletionSlot uint8
)

// Whether there is a backup to delete.
const (
	deletionOfNothing   deletionBackup = 1 << iota // it is to stay, or was not made
	deletionNotReported                            // it was made, and the status does not report it yet
	deletionWanted
)

func (d deletionBackup) String() string {
	return rules.Word(d, "none, or to stay", "not reported yet", "to delete")
}

// What stands on the Lease.
const (
	deletionSlotUnknown deletionSlot = 1 << iota // there is no such Lease, or it is someone else's
	deletionSlotFree
	deletionSlotTaken   // by another EtcdSnapshot, or one that comes before takes it now
	deletionSlotBackup  // its own order, to make the backup
	deletionSlotOrdered // its own order, to delete it
	deletionSlotPausing // it is free, and the pause after the last Pod is not over

	anyDeletionSlot = deletionSlotUnknown | deletionSlotFree | deletionSlotTaken | deletionSlotBackup | deletionSlotOrdered | deletionSlotPausing
)

func (d deletionSlot) String() string {
	return rules.Word(d, "unknown", "free", "another's", "its backup", "its deletion", "free after a pause")
}

// Steps that let the EtcdSnapshot go. All but the first report by an Event what became of the backup.
const (
	// stepReleaseDeleted: the agent deleted the backup, or it did not exist any more.
	stepReleaseDeleted step = "ReleaseDeleted"
	// stepReleaseRefused: the agent did not delete the backup, and reported why.
	stepReleaseRefused step = "ReleaseRefused"
	// stepReleaseCluster: there is no cluster with backups whose agents could delete the backup.
	stepReleaseCluster step = "ReleaseCluster"
	// stepReleaseLate: no agent deleted the backup in time.
	stepReleaseLate step = "ReleaseLate"
)

// deletionFacts is the complete input of deletionRows.
type deletionFacts struct {
	Backup deletionBackup
	// Cluster reports whether the cluster exists and is to be backed up.
	Cluster rules.YesNo  `fact:"cluster there and backed up"`
	Slot    deletionSlot `fact:"order on the Lease"`
	// Answer to the order that is on the Lease.
	Answer orderAnswer
	// Late reports whether the deletion has taken longer than its limit.
	Late rules.YesNo
}

const notOrdered = anyDeletionSlot &^ deletionSlotOrdered

// deletionRows are the policy. The first row that matches wins. Every case ends with the removal of the finalizer, so
// no deletion waits permanently.
var deletionRows = rules.New(stepWait, []rules.Row[deletionFacts, step]{
	// The request is removed first, by compare-and-set, so that a backup that is kept after all is not deleted.
	{Name: "request-withdrawn", When: deletionFacts{Backup: deletionOfNothing, Slot: deletionSlotOrdered, Answer: openAnswer}, Verdict: stepClear},
	{Name: "nothing-to-delete", When: deletionFacts{Backup: deletionOfNothing}, Verdict: stepRelease},
	{Name: "deleted", When: deletionFacts{Backup: deletionWanted, Slot: deletionSlotOrdered, Answer: answerSucceeded}, Verdict: stepReleaseDeleted},
	{Name: "refused", When: deletionFacts{Backup: deletionWanted, Slot: deletionSlotOrdered, Answer: answerFailed}, Verdict: stepReleaseRefused},
	{Name: "cluster-gone", When: deletionFacts{Backup: deletionNotReported | deletionWanted, Cluster: rules.No}, Verdict: stepReleaseCluster},
	{Name: "backup-not-reported", When: deletionFacts{Backup: deletionNotReported, Cluster: rules.Yes}, Verdict: stepConclude},
	{Name: "late-order", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotOrdered, Answer: openAnswer, Late: rules.Yes},
		Verdict: stepClear},
	{Name: "late", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: notOrdered, Late: rules.Yes}, Verdict: stepReleaseLate},
	{Name: "backup-reported", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotBackup, Late: rules.No}, Verdict: stepClear},
	{Name: "deletion-lost", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotOrdered, Answer: answerLost, Late: rules.No},
		Verdict: stepRetry},
	{Name: "deletion-ordered", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotOrdered,
		Answer: unanswered | answerRunning, Late: rules.No},
		Verdict: stepWait},
	// A deletion by a Pod never waits for its turn: it streams nothing from etcd.
	{Name: "deletion-after-another", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotTaken, Late: rules.No}, Verdict: stepWait},
	{Name: "deletion-pause-between-pods", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotPausing, Late: rules.No},
		Verdict: stepWait},
	{Name: "deletion-no-lease", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotUnknown, Late: rules.No}, Verdict: stepWait},
	{Name: "request-deletion", When: deletionFacts{Backup: deletionWanted, Cluster: rules.Yes, Slot: deletionSlotFree, Late: rules.No}, Verdict: stepOrder},
})
