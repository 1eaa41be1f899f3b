package plan

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestADeletedEtcdSnapshotIsHeldForNoLongerThanItMust(t *testing.T) {
	checkTable(t, deletionRows, "deletion", "An EtcdSnapshot that is being deleted and held: druid/plan.deletionRows", func(f DeletionFacts, d rules.Decision[SnapshotStep]) string {
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
		case step == SnapshotConclude && f.Backup != DeletionUntold:
			return "reports what is reported"
		case f.Cluster == rules.No && !releases && step != SnapshotClear:
			return "holds it without a cluster"
		case f.Late == rules.Yes && f.Backup != DeletionUntold && !releases && step != SnapshotClear:
			return "holds it permanently"
		case f.Backup == DeletionOfNothing && !releases && step != SnapshotClear:
			return "holds it for nothing"
		case f.Backup == DeletionWanted && ordered && !open && !releases:
			return "waits for another answer"
		}
		return ""
	})
}
