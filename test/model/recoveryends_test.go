package model

import (
	"github.com/etcd-druid/druid/api/v1alpha1"
)

const (
	// lostTurns is how many turns a cluster may take after the faults until it is healthy or waits for the user. In a turn, every actor acts.
	lostTurns = 60
	// waitTurns is how many turns in a row it must say what it waits for. One turn after the faults, the Leases still have the earlier state.
	waitTurns = 10
)

// waits is the phase of status.recovery if it says what the user must do, else empty.
func (w *lostWorld) waits() v1alpha1.RecoveryPhase {
	switch r := w.status.recovery; {
	case r == nil, r.Message == "":
	case r.Phase == v1alpha1.RecoveryProposed && r.Approve != "", r.Phase == v1alpha1.RecoveryRefused:
		return r.Phase
	}
	return ""
}

// healthy says whether all members vote in the raft group that the record names.
func (w *lostWorld) healthy() bool {
	up, _ := w.quorum(w.newest)
	return w.there && w.record.Order() == nil && w.record.ClusterID == w.groups[w.newest].cluster && len(up) == len(w.members) &&
		len(w.groups[w.newest].learners) == 0
}

// faultsEnd brings back nodes, peers, the API server and the caches of druid. A member whose node was declared out of service starts
// elsewhere with an empty volume.
func (w *lostWorld) faultsEnd() {
	w.say("the faults end")
	for k := range w.members {
		m := &w.members[k]
		if m.gone {
			m.gone = false
			w.wipe(k)
		}
		m.on, m.api, m.net = true, true, true
	}
	for i := range w.druids {
		w.druids[i].cached = nil
	}
}

// turn lets every actor act.
func (w *lostWorld) turn() {
	all := make([]int, len(w.members))
	for k := range w.members {
		all[k] = k
		w.agent(k)
		w.agent(k)
		w.renew(k)
		w.replicate(k)
		w.backUp(k)
	}
	w.live(all...)
	for range 3 {
		for di := range w.druids {
			w.plan(di)
			w.report(di)
		}
	}
}

// turns takes turns until done, and returns how many. Time passes meanwhile.
func (w *lostWorld) turns(done func() bool) (n int, ok bool) {
	for ; n < lostTurns && w.bad == ""; n++ {
		if done() {
			return n, true
		}
		w.turn()
		if n%waitTurns == 0 {
			w.now = w.now.Add(tenMinutes)
		}
		w.overdue = w.overdue || n == waitTurns
	}
	return n, w.bad == "" && done()
}

// hasSource says whether there is something left from which the cluster could be formed again.
func (w *lostWorld) hasSource() bool {
	for k := range w.members {
		if w.members[k].there {
			return true
		}
	}
	return w.policy.backup && w.inStore(w.newest) > 0
}

// ended is how a walk ended after its faults.
type ended struct {
	turns int                    // until the cluster was healthy or waited for the user
	waits v1alpha1.RecoveryPhase // for what it waited
	lost  bool                   // nothing was left to recover from
}

// faultsOver lets the faults end. Within a limit of turns, the cluster is healthy, or says for a while what the user must do. If the user then
// approves each plan and repairs the backup store, it is healthy within another such limit, unless nothing is left.
func (w *lostWorld) faultsOver() ended {
	return w.over(w.healthy, "is not healthy", w.checkWaits)
}

// restoreOver does the same in a world with restores: the cluster serves clients too, unless it waits for the user. The user withdraws the
// request at last.
func (w *lostWorld) restoreOver() ended {
	return w.over(w.servesAll, "does not serve clients", func(v1alpha1.RecoveryPhase) { w.wish = nil })
}

// over ends the faults, and takes turns until done or until the cluster waits for the user. It calls then before the user acts.
func (w *lostWorld) over(done func() bool, otherwise string, then func(waits v1alpha1.RecoveryPhase)) (e ended) {
	w.faultsEnd()
	w.idle = true
	n, rests := w.rests(done)
	if e.turns, e.waits = n, w.waits(); !rests {
		w.stuck(otherwise + " and waits for no user")
	}
	then(e.waits)
	return w.userActs(e)
}

// rests takes turns until one of two things stays so for a while: done, or the cluster waits for the user.
func (w *lostWorld) rests(done func() bool) (turns int, ok bool) {
	since := 0
	n, ok := w.turns(func() bool {
		if since++; !done() && w.waits() == "" {
			since = 0
		}
		return since > waitTurns
	})
	return n - since, ok
}

// userActs lets the user repair the backups and approve each plan.
func (w *lostWorld) userActs(e ended) ended {
	w.idle = false
	w.repairBackups()
	_, healthy := w.turns(func() bool { return w.healthy() && (!w.restoring.on || w.servesAll()) })
	if !healthy && w.hasSource() {
		w.stuck("is not healthy, although the user acted")
	}
	e.lost = !healthy
	return e
}

// checkWaits compares what the cluster waits for with what there is: a source is never refused, and the policy Automatic needs no approval of a
// plan within its bounds.
func (w *lostWorld) checkWaits(phase v1alpha1.RecoveryPhase) {
	if phase == v1alpha1.RecoveryRefused && w.hasSource() && !w.damaged {
		w.stuck("refuses a recovery, although there is a source")
	}
	if phase == v1alpha1.RecoveryProposed && w.policy.automatic && w.policy.permits(w.status.recovery.Plan) {
		w.stuck("waits for the approval of a plan that the policy permits")
	}
}

// permits says whether a plan is within the bounds, and gives up no member.
func (p lostPolicy) permits(plan *v1alpha1.RecoveryPlan) bool {
	return plan.LostRevisions != nil && plan.LostSeconds != nil && len(plan.GiveUp) == 0 &&
		(p.revisions == nil || *plan.LostRevisions <= *p.revisions) && p.seconds != nil && *plan.LostSeconds <= *p.seconds
}

// stuck reports that the cluster does not become healthy.
func (w *lostWorld) stuck(how string) {
	w.violate("%s %s: the record is %+v, the order %+v, the status %+v", isStuck, how, w.record, w.record.Order(), w.status.recovery)
}

const isStuck = "after the faults, the cluster"
