package model

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// safeguard is a check of the protocol that a mutation takes away.
type safeguard uint32

const (
	mutOldToken safeguard = 1 << iota
	mutOldID
	mutNoFloor
	mutNoVolumeUID
	mutNoPodUID
	mutNoLock
	mutAbsentIsForming
	mutDruidBlind
	mutNoLiveRead
	mutTrustList
	mutMixedLimits
	mutThawed
	mutBlindWrite
	mutNoEvidence
	mutNoQuorumCheck
	mutNoBootstrapCheck
	mutOtherMark
	mutBlindMark
	mutAlongsideReplacing
	mutStillServed
	mutClaimIsDone
	mutNoRemovalAck
	mutOtherDone
	mutNoGroupTerm
)

// mutation is the protocol without one of its safeguards.
type mutation struct {
	safeguard safeguard
	// rule is a row of the start table that is left out.
	rule string
	// drains are the rows of the drain's table that are left out.
	drains []string
	// history that finds it, where random walks come to it too rarely.
	history []string
	// setup of the walks that find it, where another one than all.
	setup *setup
}

func (w *world) is(g safeguard) bool { return w.mutant != nil && w.mutant.safeguard&g != 0 }

// formed is a healthy cluster of three that meets these faults, forming one that has not begun.
func formed(only string) *setup {
	return &setup{replicas: 3, steps: 300, formed: true, fine: true, faults: 12, only: only}
}

func forming(only string) *setup {
	return &setup{replicas: 3, steps: 250, fine: true, faults: 8, only: only}
}

// shrinking is a healthy cluster of five, so that some may be away while others go.
func shrinking(only string) *setup {
	return &setup{replicas: 5, steps: 400, formed: true, fine: true, faults: 12, only: only}
}

const asked = leases.RemovalRequested

// blind are the rows of the drain that look at the others.
var blind = []string{"revert-no-quorum", "quorum", "revert-others-not-healthy", "others-not-healthy"}

// leaving is a healthy cluster of which one member is this far on its way out.
func leaving(replicas int, far leases.RemovalState, only string) *setup {
	return &setup{replicas: replicas, steps: 300, formed: true, leaving: far, faults: 8, only: only}
}

// mutations are what the model must find: each takes away one safeguard, and the one behind it where two stand in a row.
var mutations = map[string]mutation{
	"a re-used token":                                        {safeguard: mutOldToken, setup: forming("AlHUV")},
	"a start under an old raft ID":                           {safeguard: mutOldID},
	"a volume gone back in time":                             {safeguard: mutNoFloor, setup: formed("BBRRE")},
	"a volume replaced by an older copy":                     {safeguard: mutNoVolumeUID | mutNoFloor, setup: formed("BiUE")},
	"a volume gone back to a former raft ID":                 {safeguard: mutNoGroupTerm, history: formerID},
	"two Pods of one name":                                   {safeguard: mutNoLock, setup: formed("FE")},
	"all Leases deleted, seen by an agent":                   {safeguard: mutAbsentIsForming | mutNoEvidence, setup: formed("EMVA")},
	"all Leases deleted, seen by druid":                      {safeguard: mutDruidBlind, setup: formed("jVEH")},
	"a druid that acts on stale caches":                      {safeguard: mutNoLiveRead},
	"a stale published list":                                 {safeguard: mutTrustList},
	"mixed max-learners":                                     {safeguard: mutMixedLimits},
	"a thawed observer":                                      {safeguard: mutThawed, setup: formed("+b")},
	"a lost compare-and-set":                                 {safeguard: mutBlindWrite, setup: forming("FFZHU")},
	"a removal that a quorum does not outlive":               {safeguard: mutNoQuorumCheck, setup: formed("vEvN")},
	"an attempt that goes on after it was lost":              {safeguard: mutNoBootstrapCheck, setup: forming("FFZHUV")},
	"a drain without a claim":                                {drains: []string{"claim"}, setup: leaving(3, asked, "AE")},
	"a drain by another order's mark":                        {safeguard: mutOtherMark, setup: leaving(3, asked, "MAA")},
	"a drain that a quorum does not outlive":                 {safeguard: mutNoQuorumCheck, drains: blind, setup: leaving(3, asked, "Nuuu")},
	"a drain next to a member that is down":                  {drains: []string{"others-not-healthy"}, setup: leaving(5, asked, "EN")},
	"a drain next to a replacement":                          {safeguard: mutAlongsideReplacing, setup: shrinking("IVEHA")},
	"a claim that is taken back":                             {safeguard: mutBlindMark, setup: leaving(3, asked, "+AA")},
	"a drain that clients see":                               {safeguard: mutStillServed, setup: leaving(3, picked, "A")},
	"a claim taken for an acknowledgement":                   {safeguard: mutClaimIsDone, setup: formed("I-+")},
	"an acknowledgement of another order":                    {safeguard: mutOtherDone, setup: leaving(3, leases.RemovalDone, "MAA")},
	"objects of a member whose removal was not acknowledged": {safeguard: mutNoRemovalAck, setup: shrinking("vI+bG")},
}

// steps that a mutation may take to be found.
const mutationSteps = 2_000_000

// hunt walks until a violation, and says after how many steps.
func hunt(m *mutation, most int) (s setup, trace []action, bad string, steps int) {
	for seed := uint64(1); steps < most; seed++ {
		s = shapes[seed%uint64(len(shapes))]
		if m.setup != nil {
			s = *m.setup
		}
		w, taken, n := walk(seed, s, m)
		if steps += n; w.ghost.bad != "" {
			return s, taken, w.ghost.bad, steps
		}
	}
	return s, nil, "", steps
}

func TestEveryMutationIsFound(t *testing.T) {
	for name, m := range mutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if m.history != nil {
				if w := relive(t, m.history, &m); w.ghost.bad == "" {
					t.Fatal("not found by its history")
				}
				return
			}
			s, trace, bad, steps := hunt(&m, mutationSteps)
			if bad == "" {
				t.Fatalf("not found in %d steps", steps)
			}
			short := shrink(s, &m, trace)
			t.Logf("%s: found after %d steps, %d actions: %s", name, steps, len(short), bad)
		})
	}
}
