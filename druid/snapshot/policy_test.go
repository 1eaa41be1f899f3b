package snapshot

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// checkTable enumerates a table, and compares the section that it is in.
func checkTable[F any](t *testing.T, table *rules.Table[F, step], name, title string, wrong func(F, rules.Decision[step]) string) {
	t.Helper()
	rulestest.Section(t, "../../docs/reference/decisions.md", name, title, "", table, rulestest.Check(t, table, wrong))
}

// TestSnapshotConcludedOnce: an EtcdSnapshot is concluded once for all facts.
func TestSnapshotConcludedOnce(t *testing.T) {
	checkTable(t, snapshotRows, "snapshot", "An EtcdSnapshot: druid/snapshot.snapshotRows", func(f snapshotFacts, d rules.Decision[step]) string {
		next := d.Verdict
		failed := next == stepFailCluster || next == stepFailBackup || next == stepFailOverdue
		able := f.Cluster == clusterThere && f.Backup == rules.Yes
		ends := failed || next == stepConclude
		mine, answered := f.Slot == slotMine, f.Answer&finalAnswer != 0
		switch {
		case f.Hold == holdMissing && next != stepHold, f.Hold == heldNeedless && next != stepRelease:
			return "comes before the finalizer is as it should be"
		case f.Hold != heldRight:
		case f.Phase == phaseFinal && next != stepWait && next != stepClear && next != stepDelete:
			return "takes back an outcome"
		case f.Phase != phaseFinal && (next == stepClear || next == stepDelete):
			return "forgets an outcome that is not reported"
		case next == stepClear && !mine:
			return "takes another's order away"
		case next == stepRetry && !(mine && f.Answer == answerLost):
			return "deletes a Pod that is at work"
		case next == stepReport && f.News == rules.No:
			return "reports what is reported"
		case next == stepWait && mine && f.Phase != phaseFinal && f.Answer == answerLost && able:
			return "waits for a Pod that was lost"
		case next == stepDelete && (f.Expired == rules.No || mine):
			return "deletes what is still needed"
		case f.Phase == phaseFinal && next == stepWait && (mine || f.Expired == rules.Yes):
			return "leaves something behind"
		case next == stepFailOverdue && f.Overdue == rules.No:
			return "gives up before the limit"
		case f.Phase&(phasePending|phaseRunning) != 0 && able && f.Overdue == rules.Yes && !ends:
			return "creates Pods without an end"
		case next == stepOrder && f.Slot == slotPausing:
			return "creates Pods without a pause"
		case next == stepOrder && (f.Slot != slotFree || f.Cluster != clusterThere || f.Backup != rules.Yes):
			return "orders without an agent that executes it, or over another order"
		case next == stepConclude && !(mine && answered):
			return "reports an outcome without an answer"
		case next == stepFollow && (!mine || f.Answer != answerRunning || f.Phase != phasePending):
			return "says that someone is at it"
		case f.Phase != phaseFinal && mine && answered && next != stepConclude:
			return "does not report the outcome"
		case failed && able && f.Overdue == rules.No:
			return "gives up what can be done"
		case failed && f.Cluster == clusterMissing:
			return "does not wait for the cluster"
		case f.Phase == phasePending && f.Cluster == clusterGone && !ends:
			return "waits for a cluster that does not come"
		case f.Phase == phasePending && f.Cluster == clusterThere && f.Backup == rules.No && !ends:
			return "waits for backups that were not requested"
		case f.Phase&(phasePending|phaseRunning) != 0 && able && f.Overdue == rules.No && f.Slot == slotFree && next != stepOrder:
			return "does not order"
		}
		return ""
	})
}

// TestDeletedSnapshotReleasedEarly: a deleted EtcdSnapshot is held for no longer than it must.
func TestDeletedSnapshotReleasedEarly(t *testing.T) {
	checkTable(t, deletionRows, "deletion", "Deletion of an EtcdSnapshot: druid/snapshot.deletionRows",
		func(f deletionFacts, d rules.Decision[step]) string {
			next := d.Verdict
			ordered, open := f.Slot == deletionSlotOrdered, f.Answer&finalAnswer == 0
			releases := slices.Contains([]step{
				stepRelease, stepReleaseDeleted, stepReleaseRefused, stepReleaseCluster, stepReleaseLate,
			}, next)
			switch {
			case next == stepOrder && (f.Backup != deletionWanted || f.Cluster != rules.Yes || f.Slot != deletionSlotFree || f.Late == rules.Yes):
				return "orders what is not requested, or without an agent that executes it"
			case next == stepOrder && f.Slot == deletionSlotPausing:
				return "creates Pods without a pause"
			case next == stepRelease && f.Backup != deletionOfNothing:
				return "says nothing of a backup that stays"
			case next == stepRelease && ordered && open:
				return "leaves an order to delete what is to stay"
			case next == stepReleaseDeleted && (!ordered || f.Answer != answerSucceeded), next == stepReleaseRefused && (!ordered || f.Answer != answerFailed):
				return "reports what was not answered"
			case next == stepReleaseLate && ordered:
				return "leaves an order behind"
			case next == stepReleaseCluster && f.Cluster == rules.Yes:
				return "gives up what can be done"
			case next == stepClear && f.Slot&(deletionSlotOrdered|deletionSlotBackup) == 0:
				return "takes another's order away"
			case next == stepRetry && (f.Slot != deletionSlotOrdered || f.Answer != answerLost):
				return "deletes a Pod that is at work"
			case next == stepWait && ordered && f.Answer == answerLost:
				return "waits for a Pod that was lost"
			case next == stepConclude && f.Backup != deletionNotReported:
				return "reports what is reported"
			case f.Cluster == rules.No && !releases && next != stepClear:
				return "holds it without a cluster"
			case f.Late == rules.Yes && f.Backup != deletionNotReported && !releases && next != stepClear:
				return "holds it permanently"
			case f.Backup == deletionOfNothing && !releases && next != stepClear:
				return "holds it for nothing"
			case f.Backup == deletionWanted && ordered && !open && !releases:
				return "waits for another answer"
			}
			return ""
		})
}
