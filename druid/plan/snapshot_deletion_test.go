package plan

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestADeletedEtcdSnapshotIsHeldForNoLongerThanItMust(t *testing.T) {
	count := map[string]int{}
	eachDeletionFacts(func(f DeletionFacts) {
		step, rule := JudgeSnapshotDeletion(f)
		count[rule]++
		ordered, open := f.Slot == DeletionSlotOrdered, f.Answer&finalAnswer == 0
		releases := slices.Contains([]SnapshotStep{
			SnapshotLetGo, SnapshotReleaseDeleted, SnapshotReleaseRefused, SnapshotReleaseCluster, SnapshotReleaseLate,
		}, step)
		switch {
		case step == SnapshotOrder && (f.Backup != DeletionWanted || f.Cluster != rules.Yes || f.Slot != DeletionSlotFree || f.Late == rules.Yes):
			t.Errorf("%+v: %s orders what nobody wants, or where nobody is to obey", f, rule)
		case step == SnapshotLetGo && f.Backup != DeletionOfNothing:
			t.Errorf("%+v: %s says nothing of a backup that stays", f, rule)
		case step == SnapshotLetGo && ordered && open:
			t.Errorf("%+v: %s leaves an order to delete what is to stay", f, rule)
		case step == SnapshotReleaseDeleted && (!ordered || f.Answer != OrderSucceeded), step == SnapshotReleaseRefused && (!ordered || f.Answer != OrderFailed):
			t.Errorf("%+v: %s tells what nobody answered", f, rule)
		case step == SnapshotReleaseLate && ordered:
			t.Errorf("%+v: %s leaves an order behind", f, rule)
		case step == SnapshotReleaseCluster && f.Cluster == rules.Yes:
			t.Errorf("%+v: %s gives up what can be done", f, rule)
		case step == SnapshotClear && f.Slot&(DeletionSlotOrdered|DeletionSlotBackup) == 0:
			t.Errorf("%+v: %s takes another's order away", f, rule)
		case step == SnapshotConclude && f.Backup != DeletionUntold:
			t.Errorf("%+v: %s tells what is told", f, rule)
		case f.Cluster == rules.No && !releases && step != SnapshotClear:
			t.Errorf("%+v: %s holds it without a cluster", f, rule)
		case f.Late == rules.Yes && f.Backup != DeletionUntold && !releases && step != SnapshotClear:
			t.Errorf("%+v: %s holds it for ever", f, rule)
		case f.Backup == DeletionOfNothing && !releases && step != SnapshotClear:
			t.Errorf("%+v: %s holds it for nothing", f, rule)
		case f.Backup == DeletionWanted && ordered && !open && !releases:
			t.Errorf("%+v: %s waits for another answer", f, rule)
		}
	})
	var rows []string
	for _, r := range deletionRows {
		rows = append(rows, r.name)
	}
	fired(t, count, rows...)
	renderDeletions(t, count)
}

func eachDeletionFacts(check func(DeletionFacts)) {
	for _, backup := range bits(anyDeletionBackup) {
		for _, cluster := range bits(anyAnswer) {
			for _, slot := range bits(anyDeletionSlot) {
				for _, answer := range bits(anyOrderAnswer) {
					for _, late := range bits(anyAnswer) {
						check(DeletionFacts{backup, cluster, slot, answer, late})
					}
				}
			}
		}
	}
}

func renderDeletions(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range deletionRows {
		rows = append(rows, []string{
			r.name, cell(r.backup, anyDeletionBackup, []string{"none, or to stay", "not told yet", "to delete"}), answer(r.cluster),
			cell(r.slot, anyDeletionSlot, []string{"unknown", "free", "another's", "its backup", "its deletion"}),
			cell(r.answer, anyOrderAnswer, []string{"none", "Running", "Succeeded", "Failed"}), answer(r.late), bold(string(r.step)),
		})
	}
	section(t, "deletion", "An EtcdSnapshot that is being deleted and held: druid/plan.deletionRows", []string{
		"backup", "cluster there and backed up", "order on the Lease", "answer", "late", "step",
	}, rows, count)
}
