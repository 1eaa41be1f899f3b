package model

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// restoreActions are the actions that a world with restores has in addition, with their weights.
var restoreActions = []lostAction{
	{"request a restore", 8, (*lostWorld).request},
	{"withdraw a restore", 1, func(w *lostWorld, _ int) bool { was := w.wish; w.wish = nil; return was != nil }},
	{"plan a restore", 60, (*lostWorld).answer},
	{"final backup", 30, func(w *lostWorld, _ int) bool { return w.save(false) }},
	{"final backup fails", 1, func(w *lostWorld, _ int) bool { return w.save(true) }},
	{"client", 40, func(w *lostWorld, _ int) bool { return w.serve() }},
	{"an earlier approval", 2, func(w *lostWorld, k int) bool {
		if len(w.plans) == 0 {
			return false
		}
		w.approved = w.plans[k%len(w.plans)]
		return true
	}},
	{"the time limit", 1, func(w *lostWorld, _ int) bool { was := w.overdue; w.overdue = true; return !was }},
	{"damage", 1, func(w *lostWorld, _ int) bool { w.damaged = !w.damaged; return true }},
}

// request sets spec.recovery.restore: to a revision, or to all that a lineage has.
func (w *lostWorld) request(k int) bool {
	w.nonces++
	if w.wish != nil && w.nonces%8 > 0 {
		return false
	}
	g := w.nonces % len(w.groups)
	t := leases.RestoreTarget{}
	if k > 0 || g != w.newest {
		t.Lineage = w.groups[g].lineage
	}
	if n := len(w.groups[g].writes); k < 2 && n > 0 {
		t.Revision = w.groups[g].base + int64(1+w.nonces%n)
	}
	w.wish = &t
	w.say("user: requests %s", t)
	return true
}

// restoreWalk takes random steps in a cluster that is healthy at first.
func restoreWalk(seed uint64) *lostWorld {
	w := newRestoreWorld(0, 0)
	var actions []lostAction
	for _, a := range append(slices.Clone(restoreActions), lostActions...) {
		if !lostFaults[a.name] { // faults are rarer than in a recovery, which needs some
			a.weight *= 8
		}
		actions = append(actions, a)
	}
	w.walk(rand.New(rand.NewPCG(seed, 3)), actions, 4**lostSteps)
	return w
}

func TestRestoresKeepOneRaftGroup(t *testing.T) {
	t.Parallel()
	walks := max(*lostWalks*3/20, 1)
	restored, lost, slowest, ordered := 0, 0, 0, map[policy.Kind]int{}
	for seed := range lostSeeds(walks) {
		w := restoreWalk(seed)
		end := w.restoreOver()
		if w.bad != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.bad, strings.Join(w.story, "\n"))
		}
		restored, slowest = restored+w.restored, max(slowest, end.turns)
		if end.lost {
			lost++
		}
		for kind, n := range w.ordered {
			ordered[kind] += n
		}
	}
	if walks >= enoughWalks/2 && restored < walks/20 {
		t.Errorf("only %d restores are carried out", restored)
	}
	t.Logf("%d restores in %d walks of %d steps; the steps are %v; after the faults, they serve or wait for the user after %d turns at most; nothing "+
		"is left in %d", restored, walks, 4**lostSteps, ordered, slowest, lost)
}
