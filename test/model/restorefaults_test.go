package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// restoreFault happens once during a restore. old has copies of the record: from before the order, and from each stage of it.
type restoreFault func(w *lostWorld, old map[leases.Stage]leases.Record)

// unplaced reports whether the data of the new raft group is only next to the data directory of the member that formed it. It is lost if
// the order to build it is on the record again: the promises end there.
func (w *lostWorld) unplaced() bool {
	_, ok := w.quorum(w.newest)
	return w.newest > 0 && !ok && len(w.groups[w.newest].voters) == 1
}

// undoes says whether the new raft group is lost if the record is set back to this one, or is deleted: its data can be built again, or nothing
// but the record shows yet that it was formed.
func (w *lostWorld) undoes(record leases.Record) bool {
	again := record.Order() != nil && record.Order().Stage == leases.StageExecute
	return w.unplaced() && (again || w.status.epoch < int64(w.groups[w.newest].epoch))
}

// rolledBack sets the record back to the copy of a stage.
func rolledBack(to leases.Stage) restoreFault {
	return func(w *lostWorld, old map[leases.Stage]leases.Record) {
		if copied, ok := old[to]; ok && !w.undoes(copied) {
			w.record, w.version = copied, w.version+1
		}
	}
}

// restoreFaults happen at each step of a restore.
var restoreFaults = map[string]restoreFault{
	"the record is rolled back":            rolledBack(""),
	"the record is rolled back to Prepare": rolledBack(leases.StagePrepare),
	"the record is rolled back to Execute": rolledBack(leases.StageExecute),
	"both druids end":                      func(w *lostWorld, _ map[leases.Stage]leases.Record) { w.druids = [2]lostDruid{} },
	"the agents end": func(w *lostWorld, _ map[leases.Stage]leases.Record) {
		for k := range w.members {
			w.members[k].acknowledged, w.members[k].step, w.answers[k] = "", lostLook, leases.RestorePlan{}
		}
	},
	"the record is deleted": func(w *lostWorld, _ map[leases.Stage]leases.Record) {
		if !w.undoes(leases.Record{}) {
			w.there, w.version = false, w.version+1
		}
	},
	"a volume is wiped": func(w *lostWorld, _ map[leases.Stage]leases.Record) {
		if w.newest == 0 || len(w.groups[w.newest].voters) > 1 { // else it has the only copy
			w.members[0].run = false
			w.wipe(0)
		}
	},
	"the backups are damaged": func(w *lostWorld, _ map[leases.Stage]leases.Record) { w.damaged, w.idle = true, true },
	"the time limit is over":  func(w *lostWorld, _ map[leases.Stage]leases.Record) { w.overdue = true },
	"the user withdraws it":   func(w *lostWorld, _ map[leases.Stage]leases.Record) { w.wish = nil },
}

// moment is what distinguishes a step from the one before. How far a druid is with the labels of a Pod does not.
func (w *lostWorld) moment() string {
	d := &w.druids[0]
	plans, version := d.step != nil && d.step.Kind != policy.LabelPod, 0
	if plans {
		version = d.version
	}
	return fmt.Sprint(len(w.story), w.version, w.members[0].step, w.members[1].step, w.members[2].step, plans, version)
}

// restoreMoments are the numbers of the steps of a restore before which something changed.
func restoreMoments() (moments []int) {
	w := newRestoreWorld(0, 0)
	w.requested()
	n, last := 0, ""
	w.until(func() bool {
		if n++; w.moment() != last {
			moments, last = append(moments, n), w.moment()
		}
		return w.newest > 0 && w.servesAll()
	}, allOf...)
	return moments
}

// Each fault happens before each step of a restore. The cluster serves clients afterwards, and the restore is carried out, withdrawn or
// released. If the user withdraws the restore before
// the order to execute it, the cluster has every write.
func TestARestoreEndsWellAtEachStep(t *testing.T) {
	moments := restoreMoments()
	for name, fault := range restoreFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, at := range moments {
				if w := faulted(fault, at); w.bad != "" {
					t.Fatalf("%s before step %d: %s\n%s", name, at, w.bad, strings.Join(w.story, "\n"))
				}
			}
		})
	}
}

// ends reports whether nothing more happens to the restore: it is carried out, or the user withdrew it. If no backup can be restored,
// the order was released, or the user had approved nothing.
func (w *lostWorld) ends() bool {
	switch {
	case w.newest > 0:
		return true
	case w.damaged:
		return w.approved == "" || w.ordered[policy.ReleaseRecovery] > 0
	default:
		return w.wish == nil && w.druids[0].step == nil
	}
}

// faulted is a restore during which the fault happens after so many steps.
func faulted(fault restoreFault, at int) *lostWorld {
	w := newRestoreWorld(0, 0)
	w.requested()
	n, old := 0, map[leases.Stage]leases.Record{"": w.record}
	w.until(func() bool {
		if order := w.record.Order(); order != nil {
			old[order.Stage] = w.record
		}
		n++
		return n >= at
	}, allOf...)
	order, formed, writes := w.record.Order(), w.newest, len(w.groups[0].writes)
	w.say("the fault")
	fault(w, old)
	ended := w.until(func() bool { return w.servesAll() && w.ends() }, allOf...)
	kept := w.newest == 0 && len(w.groups[0].writes) >= writes
	switch {
	case w.bad != "":
	case !w.servesAll():
		w.violate("the cluster does not serve, record %+v", w.record)
	case !ended:
		w.violate("the restore is neither carried out nor released, record %+v", w.record)
	case w.wish == nil && formed == 0 && (order == nil || order.Stage == leases.StagePrepare) && !kept:
		w.violate("a withdrawn restore changes the cluster")
	}
	return w
}
