package model

import (
	"flag"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// approve is a user who approves the plan that the status shows. Of three members, the user gives up one at most, which can come back. Of
// five, if no voter is the source, or while an order stands, the user gives up only members that are destroyed, as the plan asks: those that come
// back could be a quorum with another one.
func (w *lostWorld) approve() bool {
	r := w.status.recovery
	if r == nil || r.Plan == nil || r.Approve == "" || w.approved == r.Plan.Hash {
		return false
	}
	if voters := len(w.groups[w.newest].voters); len(r.Plan.GiveUp) >= membership.Quorum(voters) {
		return false // a quorum that is only away
	}
	fenced := r.Plan.Source == v1alpha1.RecoverySource(leases.RecoverSurvivor) && r.Plan.LostRevisions != nil // its source is a voter
	if (len(w.members) > 3 || !fenced || w.record.Order() != nil) && slices.ContainsFunc(r.Plan.GiveUp, w.exists) {
		return false // it is not destroyed
	}
	w.approved, w.losses[r.Plan.Hash] = r.Plan.Hash, r.Plan.LostRevisions
	w.agree(r.Plan)
	w.say("user: approves %s from %s", r.Plan.Hash, r.Plan.Member)
	if w.gaveUp += len(r.Plan.GiveUp); len(r.Plan.GiveUp) > 0 {
		w.say("user: gives up %s", r.Plan.GiveUp)
	}
	return true
}

// exists says whether the member with the name or the raft ID has its data, and its node can return.
func (w *lostWorld) exists(name string) bool {
	for k, m := range w.members {
		if m.there && !m.gone && (names[k] == name || leases.FormatID(uint64(m.identity.MemberID)) == name) {
			return true
		}
	}
	return false
}

// lostAction is an action of the world.
type lostAction struct {
	name   string
	weight int
	do     func(w *lostWorld, k int) bool
}

// lostActions are all actions of the world, with their weights.
var lostActions = []lostAction{
	{"agent", 240, (*lostWorld).agent},
	{"renew", 100, (*lostWorld).renew},
	{"druid", 120, func(w *lostWorld, k int) bool { return w.plan(k % 2) }},
	{"approve", 30, func(w *lostWorld, _ int) bool { return w.approve() }},
	{"write", 30, func(w *lostWorld, k int) bool { return w.commit(k%len(w.groups)) || w.commit(w.newest) }},
	{"replicate", 20, (*lostWorld).replicate},
	{"propose", 12, (*lostWorld).propose},
	{"propose a vote", 12, (*lostWorld).proposeVote},
	{"back up", 20, (*lostWorld).backUp},
	{"status", 60, func(w *lostWorld, k int) bool { return w.report(k % 2) }},
	{"caches", 4, func(w *lostWorld, k int) bool {
		if d := &w.druids[k%2]; d.cached == nil {
			d.cached = w.cache()
		} else {
			d.cached = nil
		}
		return true
	}},
	{"druid ends", 2, func(w *lostWorld, k int) bool {
		d := &w.druids[k%2]
		was := d.step != nil
		*d = lostDruid{}
		return was
	}},
	{"ten minutes", 4, func(w *lostWorld, _ int) bool { w.now = w.now.Add(tenMinutes); return true }},
	{"etcd ends", 2, func(w *lostWorld, k int) bool { was := w.members[k].run; w.members[k].run = false; return was }},
	{"agent ends", 2, func(w *lostWorld, k int) bool {
		m := &w.members[k]
		m.acknowledged, m.step = "", lostLook
		return true
	}},
	{"wipe", 1, (*lostWorld).wipe},
	{"node", 8, func(w *lostWorld, k int) bool {
		m := &w.members[k]
		if m.gone {
			return false
		}
		m.on, m.run, m.acknowledged, m.step = !m.on, false, "", lostLook
		return true
	}},
	{"out of service", 1, func(w *lostWorld, k int) bool {
		m := &w.members[k]
		if m.on || m.gone {
			return false
		}
		m.gone = true
		return true
	}},
	{"API", 2, func(w *lostWorld, k int) bool { w.members[k].api = !w.members[k].api; return true }},
	{"peers", 2, func(w *lostWorld, k int) bool { w.members[k].net = !w.members[k].net; return true }},
	{"record copied", 1, func(w *lostWorld, _ int) bool {
		old := w.record
		w.old = &old
		return w.there
	}},
	{"record lost", 1, func(w *lostWorld, k int) bool {
		back := leases.Record{}
		if w.old != nil && k > 0 {
			back = *w.old
		}
		if !w.there || w.undoes(back) {
			return false
		}
		w.version++
		if w.there = back.Epoch > 0; w.there {
			w.record = back
		}
		return true
	}},
}

// wipe takes away the data of a member whose etcd does not run.
func (w *lostWorld) wipe(k int) bool {
	m := &w.members[k]
	if m.run || !m.there {
		return false
	}
	m.there, m.identity, m.built, m.acknowledged, m.step = false, datadir.IdentityFile{}, datadir.IdentityFile{}, "", lostLook
	return true
}

// lostWalk takes random steps.
func lostWalk(seed uint64, mutant lostMutation) *lostWorld {
	r := rand.New(rand.NewPCG(seed, 2))
	size := 3
	if seed%4 == 3 {
		size = 5
	}
	w := newLostWorldOf(size, mutant)
	w.policy = lostPolicies[seed/4%uint64(len(lostPolicies))]
	most := len(w.members) - 1
	if w.backUp(0) {
		most++
	}
	for _, k := range r.Perm(len(w.members))[:r.IntN(most+1)] {
		if w.members[k].run = false; r.IntN(3) > 0 {
			w.wipe(k)
			w.say("fault: the data of %s is lost", names[k])
		}
	}
	w.walk(r, lostActions, *lostSteps)
	return w
}

// walk takes random steps.
func (w *lostWorld) walk(r *rand.Rand, actions []lostAction, steps int) {
	weights := 0
	for _, a := range actions {
		weights += a.weight
	}
	for n := 0; n < steps && w.bad == ""; n++ {
		at := r.IntN(weights)
		for _, a := range actions {
			if at -= a.weight; at >= 0 {
				continue
			}
			k := r.IntN(len(w.members))
			if a.do(w, k) && lostFaults[a.name] {
				w.say("fault: %s of %s", a.name, names[k])
			}
			break
		}
	}
}

var lostFaults = map[string]bool{
	"etcd ends": true, "agent ends": true, "wipe": true, "node": true, "out of service": true, "API": true, "peers": true, "record copied": true,
	"record lost": true,
}

var (
	lostWalks = flag.Int("model.recoveries", 2600, "random walks of recoveries; there are three walks of restores for every 20 of them")
	lostSteps = flag.Int("model.length", 250, "random steps of a walk of recoveries; a walk of restores has four times as many")
)

// lostSeeds are the seeds of so many walks.
func lostSeeds(walks int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for n := range uint64(walks) {
			if !yield(*walkSeed - 1 + n) {
				return
			}
		}
	}
}

// tally counts what happens in walks.
type tally struct {
	walks, formed, ends, lost, slowest int
	ordered                            map[policy.Kind]int
	formedBy                           map[leases.RecoveryMode]int
	waits                              map[v1alpha1.RecoveryPhase]int
}

func newTally() *tally {
	return &tally{ordered: map[policy.Kind]int{}, formedBy: map[leases.RecoveryMode]int{}, waits: map[v1alpha1.RecoveryPhase]int{}}
}

func (c *tally) add(w *lostWorld, e ended) {
	c.walks++
	if w.newest > 0 {
		c.formed++
	}
	for kind, n := range w.ordered {
		c.ordered[kind] += n
	}
	for mode, n := range w.formedBy {
		c.formedBy[mode] += n
	}
	if c.waits[e.waits]++; e.lost {
		c.lost++
	}
	c.ends += w.unended
	c.slowest = max(c.slowest, e.turns)
}

func TestRecoveriesKeepOneRaftGroup(t *testing.T) {
	t.Parallel()
	counts := map[string]*tally{}
	for _, p := range lostPolicies {
		counts[p.name] = newTally()
	}
	for seed := range lostSeeds(*lostWalks) {
		w := lostWalk(seed, 0)
		end := w.faultsOver()
		if w.bad != "" {
			t.Fatalf("seed %d, policy %s: %s\n%s", seed, w.policy.name, w.bad, strings.Join(w.story, "\n"))
		}
		counts[w.policy.name].add(w, end)
	}
	for _, p := range lostPolicies {
		checkTally(t, p, counts[p.name])
	}
}

// enoughWalks with a policy have each kind of step.
const enoughWalks = 200

// checkTally fails if something never happens with a policy.
func checkTally(t *testing.T, p lostPolicy, c *tally) {
	t.Helper()
	t.Logf("%s: %d walks of %d steps; %d form a raft group again, by %v, %d builds from a log whose end was not committed; the steps are %v; after "+
		"the faults, they wait for %v, after %d turns at most; nothing is left in %d", p.name, c.walks, *lostSteps, c.formed, c.formedBy, c.ends, c.ordered,
		c.waits, c.slowest, c.lost)
	if c.walks < enoughWalks {
		return
	}
	if c.ends == 0 {
		t.Errorf("%s: no walk builds a raft group from a log whose end was not committed", p.name)
	}
	if c.formed < c.walks/20 {
		t.Errorf("%s: only %d of %d walks form a raft group again", p.name, c.formed, c.walks)
	}
	for _, kind := range []policy.Kind{policy.PrepareRecovery, policy.ExecuteRecovery, policy.ReleaseRecovery} {
		if c.ordered[kind] == 0 {
			t.Errorf("%s: no walk has a step %s", p.name, kind)
		}
	}
	if c.formedBy[leases.RecoverSurvivor] == 0 || p.backup != (c.formedBy[leases.RecoverBackup] > 0) {
		t.Errorf("%s: the raft groups are formed by %v", p.name, c.formedBy)
	}
	if !p.automatic && c.waits[v1alpha1.RecoveryProposed] == 0 {
		t.Errorf("%s: no walk ends with a plan that waits for an approval", p.name)
	}
}
