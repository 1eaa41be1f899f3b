package model

import (
	"regexp"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// all members.
var allOf = []int{0, 1, 2}

// requested is a healthy cluster whose user requests the state after the first write.
func (w *lostWorld) requested() {
	w.serve()
	w.wish = &leases.RestoreTarget{Revision: 1}
}

// cutFromAPI takes the API server away from members.
func (w *lostWorld) cutFromAPI(ks ...int) {
	for _, k := range ks {
		w.members[k].api = false
	}
}

func (w *lostWorld) formedAgain() bool { return w.newest > 0 }

func (w *lostWorld) isSaved() bool {
	save := w.saves[saveName(w.record)]
	return save != nil && save.state == policy.SaveDone
}

// Violations that mutations cause.
const (
	findsLateSave  = "^the final backup has .* and clients of the Service wrote "
	findsUnfenced  = "^epoch 2 is formed while [23] voters of the raft group before are not fenced"
	findsUnplanned = "^the user did not approve the plan [0-9a-f]+ of order "
)

// restoreHistories are what a mutation needs to do harm. In each, the user requests a restore of a healthy cluster.
var restoreHistories = map[string]struct {
	mutant restoreMutation
	lost   lostMutation
	finds  string // the violation, as a regular expression
	live   func(w *lostWorld) (reached bool)
}{
	"clients that are not cut off": {mutClientsSeen, 0, findsLateSave, func(w *lostWorld) bool { return w.until(w.formedAgain, allOf...) }},
	"a final backup that is not made": {mutUnsaved, 0, "^order .* is carried out without a final backup", func(w *lostWorld) bool {
		w.unsaved = true
		w.until(w.formedAgain, allOf...)
		return len(w.saves) > 0
	}},
	"a plan without its approval": {mutUnapproved, 0, findsUnplanned + "2-", func(w *lostWorld) bool {
		w.idle = true
		w.until(w.formedAgain, allOf...)
		return w.record.Restore.Plan.Final()
	}},
	// The manifest stays as it is after the restore.
	"a request that is carried out again": {mutAlwaysAgain, 0, findsUnplanned + "3-", func(w *lostWorld) bool {
		reached := w.until(func() bool { return w.newest == 1 && w.servesAll() }, allOf...)
		w.idle = true
		w.until(never, allOf...)
		return reached
	}},
	// The user writes another approval after the final backup, and the first one again after clients wrote.
	"a final backup before the last write": {mutInterrupted, 0, findsLateSave, func(w *lostWorld) bool {
		reached := w.until(w.isSaved, allOf...)
		approved := w.approved
		w.idle, w.approved = true, "another"
		reached = w.until(w.servesAll, allOf...) && w.serve() && reached
		w.approved = approved
		w.until(w.formedAgain, allOf...)
		return reached
	}},
	"clients that are sent to members under an order": {mutServesOrdered, 0, "^a client is sent to .* while order .* stands", func(w *lostWorld) bool {
		reached := w.until(w.stage(leases.StagePrepare), allOf...)
		for range 24 {
			w.plan(1)
			w.serve()
		}
		return reached
	}},
	// A druid plans to send clients to a Pod, and is suspended. Another one carries out the restore up to the write of the order.
	"a label of a suspended druid":  {mutLateLabels, 0, findsLateSave, (*lostWorld).lateLabel},
	"clients cut off without marks": {mutUnmarked, 0, findsLateSave, (*lostWorld).lateLabel},
	// A druid does not see the record any more, but the Pods. Another one carries out the restore up to the write of the order.
	"a mark that an old record does not have": {mutUnconfirmed, 0, findsLateSave, func(w *lostWorld) bool {
		w.before(func() { w.druids[1].cached = w.cache() })
		reached := w.until(w.prepares, allOf...)
		for range 4 {
			w.plan(1)
		}
		w.serve()
		return w.until(w.formedAgain, allOf...) && reached
	}},
	// The same, for a druid that is suspended while it confirms the label of a Pod with the mark of an earlier restore.
	"a Pod that is read after the record": {mutPodsLast, 0, findsLateSave, func(w *lostWorld) bool {
		w.before(func() {
			for w.plan(0) { // until the labels are as they are to be
			}
			w.labels[2].serving, w.labels[2].cutFor = false, "earlier"
			w.plan(1)
			w.plan(1)
		})
		reached := w.druids[1].half && w.druids[1].step.Member == names[2]
		reached = w.until(w.prepares, allOf...) && reached
		w.plan(1)
		w.plan(1)
		w.serve()
		return w.until(w.formedAgain, allOf...) && reached
	}},
	// Two members restart without the API server after they acknowledged the order.
	"an acknowledgement before the fence": {0, mutUnfenced, findsUnfenced, func(w *lostWorld) bool {
		reached := w.until(w.stage(leases.StageExecute), allOf...)
		w.cutFromAPI(1, 2)
		w.members[0].net = false
		for k := 1; k < 3; k++ {
			w.members[k].acknowledged, w.members[k].step = "", lostLook
			w.agent(k)
			w.agent(k)
		}
		reached = w.until(w.formedAgain, 0) && reached
		w.commit(0)
		return reached
	}},
	// Two members lose the API server before they read the order, and serve clients whose connections are open.
	"an order without acknowledgements": {0, mutUnheard, findsUnfenced, func(w *lostWorld) bool {
		reached := w.until(w.stage(leases.StagePrepare), allOf...)
		w.cutFromAPI(1, 2)
		w.members[0].net = false
		w.until(w.formedAgain, 0)
		return reached && w.commit(0)
	}},
	"absence taken for a loss": {0, mutAwayIsLost, findsUnfenced, func(w *lostWorld) bool {
		reached := w.until(w.stage(leases.StagePrepare), allOf...)
		w.cutFromAPI(1, 2)
		w.members[0].net = false
		w.until(w.formedAgain, 0)
		return reached && w.commit(0)
	}},
	// The user withdraws the restore while the chosen agent records the new raft group.
	"a release after the raft group was formed": {0, mutLateRelease, "^the record goes back to epoch 1 after epoch 2 was formed", func(w *lostWorld) bool {
		reached := w.until(w.stage(leases.StageExecute), allOf...)
		w.wish = nil
		planned := w.plan(1)
		confirmed := w.plan(1)
		confirmed = w.plan(1) && confirmed
		reached = planned && confirmed && reached
		for range 9 {
			w.agent(0)
		}
		w.plan(1)
		return reached && w.newest == 1
	}},
	// The chosen agent is suspended after it built the data. The user withdraws the restore, and clients write.
	"an order that was released": {0, mutFiresTwice, findsUnfenced, func(w *lostWorld) bool {
		built := func() bool { return w.members[0].step == lostForm }
		reached := w.until(built, allOf...)
		w.wish = nil
		reached = w.until(func() bool { return w.record.Order() == nil }) && w.until(func() bool { return w.labels[1].serving }, 1, 2) && w.serve() && reached
		w.agent(0)
		return reached
	}},
}

// prepares reports whether the first druid is about to write the order.
func (w *lostWorld) prepares() bool {
	d := &w.druids[0]
	return d.step != nil && d.step.Kind == policy.PrepareRecovery && d.version > 0
}

// before lets something happen before the user requests the restore.
func (w *lostWorld) before(happens func()) {
	wish := w.wish
	w.wish = nil
	happens()
	w.wish = wish
}

// lateLabel suspends a druid that is about to send clients to a Pod until another one is about to write the order.
func (w *lostWorld) lateLabel() bool {
	reached := w.until(func() bool { return w.record.Restore.Plan.Final() }, allOf...)
	for range 3 {
		w.plan(0)
	}
	w.report(0)
	w.labels[2].serving = false
	reached = w.plan(1) && reached && w.druids[1].step.Kind == policy.LabelPod && w.approve()
	reached = w.until(w.prepares, allOf...) && reached
	w.plan(1)
	w.serve()
	return w.until(w.formedAgain, allOf...) && reached
}

func TestEveryMutationOfARestoreIsFound(t *testing.T) {
	for name, history := range restoreHistories {
		w := newRestoreWorld(0, 0)
		w.requested()
		if !history.live(w) || w.bad != "" {
			t.Errorf("%s: without the mutation, violation %q, or the history does not come about:\n%s", name, w.bad, strings.Join(w.story, "\n"))
		}
		w = newRestoreWorld(history.mutant, history.lost)
		w.requested()
		if history.live(w); !regexp.MustCompile(history.finds).MatchString(w.bad) {
			t.Errorf("%s: found %q instead of %q:\n%s", name, w.bad, history.finds, strings.Join(w.story, "\n"))
		}
	}
}

// A restore from a raft group that was restored itself, and then a recovery from a lost quorum. The backups of the recovered raft group
// continue those of the raft group that the restore came from.
func TestARecoveryKeepsTheOriginOfARestore(t *testing.T) {
	w := newRestoreWorld(0, 0)
	w.requested()
	reached := w.until(func() bool { return w.newest == 1 && w.servesAll() }, allOf...) && w.serve()
	target := leases.RestoreTarget{Revision: w.groups[1].base + 1}
	w.wish = &target
	reached = w.until(func() bool { return w.newest == 2 && w.servesAll() }, allOf...) && reached
	w.wish = nil
	w.lose(1, 2)
	if reached = w.until(func() bool { return w.newest == 3 }, allOf...) && reached; !reached || w.bad != "" {
		t.Fatalf("violation %q, or the history does not come about:\n%s", w.bad, strings.Join(w.story, "\n"))
	}
	if g, _, ok := w.saved(target, w.record.Lineage); g != 1 || !ok {
		t.Errorf("the backups lead to %s in epoch %d (%t), not in epoch %d", target, w.groups[g].epoch, ok, w.groups[1].epoch)
	}
}
