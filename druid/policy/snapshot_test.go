package policy

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestAnEtcdSnapshotIsConcludedOnceForAllFacts(t *testing.T) {
	checkTable(t, snapshotRows, "snapshot", "An EtcdSnapshot: druid/policy.snapshotRows", func(f SnapshotFacts, d rules.Decision[SnapshotStep]) string {
		step := d.Verdict
		failed := step == SnapshotFailCluster || step == SnapshotFailBackup
		ends := failed || step == SnapshotConclude
		mine, answered := f.Slot == OrderSlotMine, f.Answer&finalAnswer != 0
		switch {
		case f.Hold == SnapshotHoldMissing && step != SnapshotHoldIt, f.Hold == SnapshotHeldNeedless && step != SnapshotLetGo:
			return "comes before the finalizer is as it should be"
		case f.Hold != SnapshotHeldRight:
		case f.Phase == SnapshotFinal && step != SnapshotWait && step != SnapshotClear && step != SnapshotDelete:
			return "takes back an outcome"
		case f.Phase != SnapshotFinal && (step == SnapshotClear || step == SnapshotDelete):
			return "forgets an outcome that is not reported"
		case step == SnapshotClear && !mine:
			return "takes another's order away"
		case step == SnapshotDelete && (f.Expired == rules.No || mine):
			return "deletes what is still needed"
		case f.Phase == SnapshotFinal && step == SnapshotWait && (mine || f.Expired == rules.Yes):
			return "leaves something behind"
		case step == SnapshotOrder && (f.Slot != OrderSlotFree || f.Cluster != SnapshotClusterThere || f.Backup != rules.Yes):
			return "orders where no one is to obey, or over another's order"
		case step == SnapshotConclude && !(mine && answered):
			return "reports an outcome that no one answered"
		case step == SnapshotFollow && (!mine || f.Answer != OrderRunning || f.Phase != SnapshotPending):
			return "says that someone is at it"
		case f.Phase != SnapshotFinal && mine && answered && step != SnapshotConclude:
			return "does not report the outcome"
		case failed && f.Cluster == SnapshotClusterThere && f.Backup == rules.Yes:
			return "gives up what can be done"
		case failed && f.Cluster == SnapshotClusterMissing:
			return "does not wait for the cluster"
		case f.Phase == SnapshotPending && f.Cluster == SnapshotClusterGone && !ends:
			return "waits for a cluster that does not come"
		case f.Phase == SnapshotPending && f.Cluster == SnapshotClusterThere && f.Backup == rules.No && !ends:
			return "waits for backups that no one asked for"
		case f.Phase&(SnapshotPending|SnapshotRunning) != 0 && f.Cluster == SnapshotClusterThere && f.Backup == rules.Yes && f.Slot == OrderSlotFree &&
			step != SnapshotOrder:
			return "does not order"
		}
		return ""
	})
}

func TestADeletedEtcdSnapshotIsHeldForNoLongerThanItMust(t *testing.T) {
	checkTable(t, deletionRows, "deletion", "An EtcdSnapshot that is being deleted and held: druid/policy.deletionRows", func(f DeletionFacts, d rules.Decision[SnapshotStep]) string {
		step := d.Verdict
		ordered, open := f.Slot == DeletionSlotOrdered, f.Answer&finalAnswer == 0
		releases := slices.Contains([]SnapshotStep{
			SnapshotLetGo, SnapshotReleaseDeleted, SnapshotReleaseRefused, SnapshotReleaseCluster, SnapshotReleaseLate,
		}, step)
		switch {
		case step == SnapshotOrder && (f.Backup != DeletionWanted || f.Cluster != rules.Yes || f.Slot != DeletionSlotFree || f.Late == rules.Yes):
			return "orders what no one wants, or where no one is to obey"
		case step == SnapshotLetGo && f.Backup != DeletionOfNothing:
			return "says nothing of a backup that stays"
		case step == SnapshotLetGo && ordered && open:
			return "leaves an order to delete what is to stay"
		case step == SnapshotReleaseDeleted && (!ordered || f.Answer != OrderSucceeded), step == SnapshotReleaseRefused && (!ordered || f.Answer != OrderFailed):
			return "reports what no one answered"
		case step == SnapshotReleaseLate && ordered:
			return "leaves an order behind"
		case step == SnapshotReleaseCluster && f.Cluster == rules.Yes:
			return "gives up what can be done"
		case step == SnapshotClear && f.Slot&(DeletionSlotOrdered|DeletionSlotBackup) == 0:
			return "takes another's order away"
		case step == SnapshotConclude && f.Backup != DeletionNotReported:
			return "reports what is reported"
		case f.Cluster == rules.No && !releases && step != SnapshotClear:
			return "holds it without a cluster"
		case f.Late == rules.Yes && f.Backup != DeletionNotReported && !releases && step != SnapshotClear:
			return "holds it permanently"
		case f.Backup == DeletionOfNothing && !releases && step != SnapshotClear:
			return "holds it for nothing"
		case f.Backup == DeletionWanted && ordered && !open && !releases:
			return "waits for another answer"
		}
		return ""
	})
}
