package plan

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestAnEtcdSnapshotIsSettledOnceForAllFacts(t *testing.T) {
	count := map[string]int{}
	eachSnapshotFacts(func(f SnapshotFacts) {
		step, rule := JudgeSnapshot(f)
		count[rule]++
		failed := step == SnapshotFailCluster || step == SnapshotFailBackup
		ends := failed || step == SnapshotConclude
		mine, answered := f.Slot == OrderSlotMine, f.Answer&finalAnswer != 0
		switch {
		case f.Hold == SnapshotHoldMissing && step != SnapshotHoldIt, f.Hold == SnapshotHeldNeedless && step != SnapshotLetGo:
			t.Errorf("%+v: %s comes before the finalizer is as it should be", f, rule)
		case f.Hold != SnapshotHeldRight:
		case f.Phase == SnapshotFinal && step != SnapshotWait && step != SnapshotClear && step != SnapshotDelete:
			t.Errorf("%+v: %s takes back an outcome", f, rule)
		case f.Phase != SnapshotFinal && (step == SnapshotClear || step == SnapshotDelete):
			t.Errorf("%+v: %s forgets an outcome that is not told", f, rule)
		case step == SnapshotClear && !mine:
			t.Errorf("%+v: %s takes another's order away", f, rule)
		case step == SnapshotDelete && (f.Expired == rules.No || mine):
			t.Errorf("%+v: %s deletes what is still needed", f, rule)
		case f.Phase == SnapshotFinal && step == SnapshotWait && (mine || f.Expired == rules.Yes):
			t.Errorf("%+v: %s leaves something behind", f, rule)
		case step == SnapshotOrder && (f.Slot != OrderSlotFree || f.Cluster != SnapshotClusterThere || f.Backup != rules.Yes):
			t.Errorf("%+v: %s orders where nobody is to obey, or over another's order", f, rule)
		case step == SnapshotConclude && !(mine && answered):
			t.Errorf("%+v: %s tells an outcome that nobody answered", f, rule)
		case step == SnapshotFollow && (!mine || f.Answer != OrderRunning || f.Phase != SnapshotPending):
			t.Errorf("%+v: %s says that somebody is at it", f, rule)
		case f.Phase != SnapshotFinal && mine && answered && step != SnapshotConclude:
			t.Errorf("%+v: %s does not tell the outcome", f, rule)
		case failed && f.Cluster == SnapshotClusterThere && f.Backup == rules.Yes:
			t.Errorf("%+v: %s gives up what can be done", f, rule)
		case failed && f.Cluster == SnapshotClusterMissing:
			t.Errorf("%+v: %s does not wait for the cluster", f, rule)
		case f.Phase == SnapshotPending && f.Cluster == SnapshotClusterGone && !ends:
			t.Errorf("%+v: %s waits for a cluster that does not come", f, rule)
		case f.Phase == SnapshotPending && f.Cluster == SnapshotClusterThere && f.Backup == rules.No && !ends:
			t.Errorf("%+v: %s waits for backups that nobody asked for", f, rule)
		case f.Phase&(SnapshotPending|SnapshotRunning) != 0 && f.Cluster == SnapshotClusterThere && f.Backup == rules.Yes && f.Slot == OrderSlotFree &&
			step != SnapshotOrder:
			t.Errorf("%+v: %s does not order", f, rule)
		}
	})
	var rows []string
	for _, r := range snapshotRows {
		rows = append(rows, r.name)
	}
	fired(t, count, rows...)
	renderSnapshots(t, count)
}

func eachSnapshotFacts(check func(SnapshotFacts)) {
	for _, phase := range bits(anySnapshotPhase) {
		for _, cluster := range bits(anySnapshotCluster) {
			for _, backup := range bits(anyAnswer) {
				for _, slot := range bits(anyOrderSlot) {
					for _, answer := range bits(anyOrderAnswer) {
						for _, expired := range bits(anyAnswer) {
							for _, hold := range bits(anySnapshotHold) {
								check(SnapshotFacts{phase, cluster, backup, slot, answer, expired, hold})
							}
						}
					}
				}
			}
		}
	}
}

func renderSnapshots(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range snapshotRows {
		rows = append(rows, []string{
			r.name, cell(r.phase, anySnapshotPhase, []string{"new", "Pending", "Running", "final"}),
			cell(r.cluster, anySnapshotCluster, []string{"there", "missing", "gone"}), answer(r.backup),
			cell(r.slot, anyOrderSlot, []string{"unknown", "free", "another's", "its"}),
			cell(r.answer, anyOrderAnswer, []string{"none", "Running", "Succeeded", "Failed"}), answer(r.expired),
			cell(r.hold, anySnapshotHold, []string{"as it should", "missing", "needless"}), bold(string(r.step)),
		})
	}
	section(t, "snapshot", "An EtcdSnapshot: druid/plan.snapshotRows", []string{
		"phase", "its cluster is", "backed up", "order on the Lease", "answer", "ttl is over", "finalizer", "step",
	}, rows, count)
}
