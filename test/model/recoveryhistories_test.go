package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// lose takes away the data of members.
func (w *lostWorld) lose(ks ...int) {
	for _, k := range ks {
		w.members[k].run = false
		w.wipe(k)
	}
}

// off stops the node of a member.
func (w *lostWorld) off(k int) {
	m := &w.members[k]
	m.on, m.run, m.acknowledged, m.step = false, false, "", lostLook
}

// until lets the agents of these members, the user and the first druid act in turn, until there is nothing more to wait for.
func (w *lostWorld) until(done func() bool, ks ...int) bool {
	for range 40 {
		for _, k := range ks {
			for _, do := range []func(int) bool{w.agent, w.agent, w.renew} {
				if do(k); done() {
					return true
				}
			}
		}
		w.live(ks...)
		for range 3 {
			if w.plan(0); done() {
				return true
			}
		}
	}
	return false
}

// live is what agents, clients and the user do besides.
func (w *lostWorld) live(ks ...int) {
	if !w.idle {
		w.approve()
	}
	w.report(0)
	if !w.restoring.on {
		return
	}
	for _, k := range ks {
		w.answer(k)
	}
	if !w.unsaved {
		w.save(false)
	}
	w.serve()
}

func (w *lostWorld) stage(stage leases.Stage) func() bool {
	return func() bool { return w.record.Order() != nil && w.record.Order().Stage == stage }
}

func (w *lostWorld) acknowledged(ks ...int) bool {
	for _, k := range ks {
		if disk := w.members[k].lease.Disk; disk == nil || w.record.Order() == nil || disk.Order != w.record.Order().Name() {
			return false
		}
	}
	return true
}

func never() bool { return false }

// lostHistories are what a mutation needs to do harm. Each begins with three members that serve.
var lostHistories = map[string]struct {
	mutant lostMutation
	live   func(w *lostWorld) (reached bool)
}{
	// The survivor restarts without the record after the new raft group was formed, and the member that was given up is back.
	"an acknowledgement before the fence": {mutUnfenced, func(w *lostWorld) bool {
		w.lose(1)
		w.off(2)
		reached := w.until(func() bool { return w.newest == 1 }, 0, 1)
		for _, k := range []int{0, 2} {
			m := &w.members[k]
			m.on, m.api, m.acknowledged, m.step = true, false, "", lostLook
			w.agent(k)
			w.agent(k)
		}
		w.commit(0)
		return reached
	}},
	// Two volumes that were not mounted are there again, and their members serve, cut off.
	"an order without acknowledgements": {mutUnheard, func(w *lostWorld) bool {
		before := slices.Clone(w.members)
		w.lose(1, 2)
		reached := w.until(w.stage(leases.StagePrepare), 0, 1, 2)
		for k := 1; k < 3; k++ {
			m := &w.members[k]
			m.there, m.group, m.index, m.identity, m.api = true, before[k].group, before[k].index, before[k].identity, false
		}
		w.members[0].net = false
		w.until(never, 0, 1, 2)
		return reached && w.commit(0)
	}},
	// A majority that is cut off from the API server serves.
	"absence taken for a loss": {mutAwayIsLost, func(w *lostWorld) bool {
		w.members[1].api, w.members[2].api, w.members[0].net = false, false, false
		w.until(never, 0, 1, 2)
		return w.commit(0)
	}},
	// The only voter of the raft group that was formed again is cut off, and serves. The others have the data of the one before.
	"absence of the only voter taken for a loss": {mutAwayIsLost, func(w *lostWorld) bool {
		w.formsAlone()
		w.cutFromAPI(0)
		w.members[1].net, w.members[2].net = false, false
		w.until(never, 1, 2)
		w.commit(w.newest)
		return w.newest == 1
	}},
	// One druid sees a majority that acknowledged. Before it writes, that majority is lost, and the other druid goes on.
	"a release after the raft group was formed": {mutLateRelease, func(w *lostWorld) bool {
		w.lose(2)
		w.off(1)
		reached := w.until(w.stage(leases.StagePrepare), 0, 1, 2)
		w.members[1].on = true
		for _, k := range []int{2, 1, 0} {
			for range 4 {
				w.agent(k)
				w.agent(k)
				w.renew(k)
			}
		}
		reached = reached && w.acknowledged(0, 1, 2) && w.plan(1) && w.plan(1)
		w.wipe(1)
		reached = w.until(func() bool { return w.newest == 1 }, 1, 2, 0) && reached
		w.plan(1)
		return reached
	}},
	// The agent that carries out an order is suspended. The record is lost, and another order is carried out.
	"an order that fires twice": {mutFiresTwice, func(w *lostWorld) bool {
		w.off(1)
		w.lose(2)
		reached := w.until(func() bool { return w.members[0].step == lostForm }, 0, 2)
		w.there, w.version, w.members[0].api, w.members[1].on = false, w.version+1, false, true
		reached = w.until(func() bool { return w.newest > 0 }, 1, 2) && reached
		w.members[0].api = true
		w.agent(0)
		return reached
	}},
	// The member that was given up returns with more than the chosen one has, while that one carries out the order.
	"an order that outlasts the return of a majority": {mutNoLateRelease, func(w *lostWorld) bool {
		w.members[2].index--
		w.members[2].commit = w.members[2].index
		w.lose(1)
		w.off(0)
		reached := w.until(w.stage(leases.StageExecute), 1, 2)
		w.members[0].on = true
		for !w.acknowledged(0) && w.stage(leases.StageExecute)() && w.agent(0) {
			w.renew(0)
		}
		reached = reached && w.acknowledged(0)
		for range lateLooks {
			w.plan(0)
		}
		w.until(func() bool { return w.newest > 0 || w.members[0].run && w.members[2].run }, 0, 2)
		return reached
	}},
	// The disk of the member that was chosen is lost before it acts.
	"a disk that is not the one that was chosen": {mutClaimIsStale, func(w *lostWorld) bool {
		w.lose(1, 2)
		reached := w.until(w.stage(leases.StageExecute), 0, 1, 2)
		w.wipe(0)
		for range 10 {
			w.agent(0)
		}
		return reached
	}},
	// A write is on the first three of five members, and the second one does not know how far the log is committed. The fourth one lacks
	// the write, and knows that all before is committed. The three others lose their disks.
	"the highest commit index taken for the best disk": {mutBestByCommit, func(w *lostWorld) bool {
		reached := w.commit(0) && w.members[1].index > w.members[3].index
		w.members[1].commit = w.members[3].commit - 1
		return w.twoDisks() && reached
	}},
	// The fourth of five members led, and appended entries that reached no other one. The first three acknowledged a write in a later term.
	"the longest log taken for the best disk": {mutBestByLength, func(w *lostWorld) bool {
		w.members[0].leading, w.members[3].leading, w.members[3].net = 0, w.groups[0].term, false
		for range 5 {
			w.propose(3)
		}
		reached := w.commit(0) && w.last(3).Index > w.last(1).Index && w.last(3).Term < w.last(1).Term
		w.members[3].net = true
		return w.twoDisks() && reached
	}},
	// The second member acknowledged an order with an empty disk, and joins again after its release. It writes with the
	// first one, whose disk is lost then. The record is set back to the order, and the third member did not see the write.
	"a vote before the disk report is withdrawn": {mutUnreported, func(w *lostWorld) bool {
		w.lose(1)
		w.off(2)
		reached := w.until(func() bool { return w.acknowledged(0, 1) }, 0, 1)
		ordered := w.record
		w.members[2].on = true
		reached = w.until(func() bool { return w.members[0].run && w.members[2].run }, 0, 2) && reached
		for range 6 {
			w.agent(1)
		}
		w.members[2].net = false
		w.commit(0)
		w.lose(0)
		w.members[1].api, w.members[1].net, w.members[2].net = false, false, true
		w.record, w.version = ordered, w.version+1
		return w.until(func() bool { return w.newest > 0 }, 0, 2) && reached
	}},
	// The first member formed the raft group again and was its only voter. Its disk was lost, the third member formed a later raft group, and
	// the first one joined that. Then its volume goes back to the time when it was alone, and the record too.
	"data of a raft group before that of the Lease": {mutNoLaterGroup, func(w *lostWorld) bool {
		w.formsAlone()
		alone, record := w.members[0], w.record
		w.lose(0)
		reached := w.until(func() bool { return w.newest == 2 && w.members[0].lease.Epoch == w.groups[2].epoch }, 0, 1, 2)
		m := &w.members[0]
		m.run, m.there, m.acknowledged, m.step = false, true, "", lostLook
		m.identity, m.group, m.index, m.lostLog = alone.identity, alone.group, alone.index, alone.lostLog
		w.record, w.version = record, w.version+1
		for range 6 {
			w.agent(0)
		}
		w.commit(1)
		return reached
	}},
	// The third member learns. The first two promote it, and the second one leads without the API server. The first one loses its disk, and
	// restores the backup. The two others are cut off from it and from the API server.
	"a promotion that druid did not see": {mutLearnersIdle, func(w *lostWorld) bool {
		w.policy = lostPolicies[3]
		w.lose(2)
		w.agent(2)
		w.agent(2)
		w.renew(2)
		w.members[0].leading, w.members[1].leading = 0, w.groups[0].term
		for k := range 2 {
			w.replicate(k)
			w.renew(k)
		}
		reached := w.backUp(1)
		w.members[1].api = false
		reached = w.agent(2) && len(w.groups[0].voters) == 3 && len(w.record.MemberList.Members) == 3 && reached
		w.members[2].api, w.members[0].net = false, false
		w.lose(0)
		reached = w.commit(0) && reached
		w.until(never, 0)
		return reached && w.commit(0)
	}},
	// The first two members acknowledge a write that the third one lacks, and lose their disks. No approval is needed within the bounds.
	"a plan beyond the bounds, policy Automatic": {mutUnbounded, func(w *lostWorld) bool {
		w.policy = lostPolicies[2]
		reached := w.commit(0) && w.renew(0)
		w.lose(0, 1)
		return w.until(func() bool { return w.newest > 0 }, allOf...) && reached
	}},
	// The record is lost before the member that formed the raft group uses its data, and druid makes it again from the status, without a lineage.
	"built data that is not used": {mutNoPlace, func(w *lostWorld) bool {
		w.lose(1, 2)
		reached := w.until(func() bool { return w.newest == 1 }, allOf...)
		for range 3 {
			w.plan(0)
			w.report(0)
		}
		reached = w.status.epoch == 2 && reached
		w.there, w.version = false, w.version+1
		w.faultsOver()
		return reached
	}},
	// The user declared two members destroyed that are only cut off. They serve until they read the record.
	"a raft group that serves after it was replaced": {mutLateServes, func(w *lostWorld) bool {
		w.excused, w.members[0].net = true, false
		for k := 1; k < 3; k++ {
			w.members[k].api, w.members[k].gone = false, true
		}
		reached := w.until(func() bool { return w.newest == 1 }, 0)
		for range 3 {
			for k := 1; k < 3; k++ {
				w.members[k].api = true
				w.agent(k)
			}
		}
		w.excused = false
		w.commit(0)
		return reached
	}},
}

// sizes are the members in the histories that need more than three.
var sizes = map[lostMutation]int{mutBestByCommit: 5, mutBestByLength: 5}

func newHistory(of, mutant lostMutation) *lostWorld { return newLostWorldOf(max(sizes[of], 3), mutant) }

// twoDisks leaves the disks of the second and the fourth of five members, and forms the raft group again from one of them.
func (w *lostWorld) twoDisks() bool {
	w.lose(0, 2, 4)
	w.members[1].run, w.members[3].run = false, false
	return w.until(func() bool { return w.newest > 0 }, 0, 1, 2, 3, 4)
}

// formsAlone lets the first member form the raft group again and serve in it, while the third one is off with the old data.
func (w *lostWorld) formsAlone() {
	w.lose(1)
	w.off(2)
	w.until(func() bool { return w.newest == 1 && w.members[0].run }, 0, 1)
	w.renew(0)
	w.members[2].on = true
}

// The member that formed the raft group again is lost before another one voted. The raft group is formed from the one before: from what
// the third member holds. The user approves that.
func TestLostRaftGroupFormedFromFormer(t *testing.T) {
	for _, reported := range []bool{true, false} {
		w := newLostWorld(0)
		had := slices.Clone(w.groups[0].writes)
		w.formsAlone()
		if !reported { // it is lost before its first renewal
			w.members[0].lease.ID, w.members[0].lease.ClusterID, w.members[0].lease.Epoch = 0, 0, 0
		}
		w.lose(0)
		reached := w.until(func() bool { return w.newest > 1 && w.members[2].run }, 0, 1, 2)
		if !reached || w.bad != "" || !slices.Equal(w.groups[w.newest].writes, had) {
			t.Errorf("reported %t: violation %q, the newest raft group is %+v:\n%s", reported, w.bad, w.groups[w.newest], strings.Join(w.story, "\n"))
		}
	}
}

func TestEveryMutationOfARecoveryIsFound(t *testing.T) {
	for name, history := range lostHistories {
		w := newHistory(history.mutant, 0)
		if !history.live(w) || w.bad != "" {
			t.Errorf("%s: without the mutation, violation %q, or the history does not come about:\n%s", name, w.bad, strings.Join(w.story, "\n"))
		}
		w = newHistory(history.mutant, history.mutant)
		if history.live(w); w.bad == "" {
			t.Errorf("%s: not found:\n%s", name, strings.Join(w.story, "\n"))
		}
	}
}
