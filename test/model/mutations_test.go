package model

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// guard that a mutation takes away.
type guard uint32

const (
	mutOldToken guard = 1 << iota
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
	mutNoGuard
	mutNoBootstrapCheck
	mutOtherMark
	mutBlindMark
	mutBesideReplacing
	mutStillServed
	mutClaimIsDone
	mutNoFarewell
	mutOtherDone
	mutNoGroupTerm
)

// mutation is the protocol without one of its guards.
type mutation struct {
	guard guard
	// rule is a row of the start table that is left out.
	rule string
	// drains are the rows of the drain's table that are left out.
	drains []string
	// history that finds it, where random walks come to it too rarely.
	history []string
	// shape of the walks that find it, where another one than all.
	shape *shape
}

func (w *world) is(g guard) bool { return w.mutant != nil && w.mutant.guard&g != 0 }

// formed is a healthy cluster of three that meets these faults, forming one that has not begun.
func formed(only string) *shape {
	return &shape{replicas: 3, steps: 300, formed: true, fine: true, faults: 12, only: only}
}

func forming(only string) *shape {
	return &shape{replicas: 3, steps: 250, fine: true, faults: 8, only: only}
}

// shrinking is a healthy cluster of five, so that some may be away while others go.
func shrinking(only string) *shape {
	return &shape{replicas: 5, steps: 400, formed: true, fine: true, faults: 12, only: only}
}

const asked = leases.RetireRequested

// blind are the rows of the drain that look at the others.
var blind = []string{"quorum-back", "quorum", "others-back", "others-not-healthy"}

// leaving is a healthy cluster of which one member is this far on its way out.
func leaving(replicas int, far leases.RetireState, only string) *shape {
	return &shape{replicas: replicas, steps: 300, formed: true, leaving: far, faults: 8, only: only}
}

// mutations are what the model must find: each takes away one guard, and the one behind it where two stand in a row.
var mutations = map[string]mutation{
	"a re-used token":                           {guard: mutOldToken, shape: forming("AlHUV")},
	"a start under an old raft ID":              {guard: mutOldID},
	"a volume gone back in time":                {guard: mutNoFloor, shape: formed("BBRRE")},
	"a volume replaced by an older copy":        {guard: mutNoVolumeUID | mutNoFloor, shape: formed("BiUE")},
	"a volume gone back to a former raft ID":    {guard: mutNoGroupTerm, history: formerID},
	"two Pods of one name":                      {guard: mutNoLock, shape: formed("FE")},
	"all Leases deleted, seen by an agent":      {guard: mutAbsentIsForming | mutNoEvidence, shape: formed("EMVA")},
	"all Leases deleted, seen by druid":         {guard: mutDruidBlind, shape: formed("jVEH")},
	"a druid that acts on stale caches":         {guard: mutNoLiveRead},
	"a stale published list":                    {guard: mutTrustList},
	"mixed max-learners":                        {guard: mutMixedLimits},
	"a thawed observer":                         {guard: mutThawed, shape: formed("+b")},
	"a lost compare-and-set":                    {guard: mutBlindWrite, shape: forming("AFZHU")},
	"a removal that a quorum does not outlive":  {guard: mutNoGuard, shape: formed("vEvN")},
	"an attempt that goes on after it was lost": {guard: mutNoBootstrapCheck, shape: forming("FFZHUV")},
	"a drain without a claim":                   {drains: []string{"claim"}, shape: leaving(3, asked, "AE")},
	"a drain by another order's mark":           {guard: mutOtherMark, shape: leaving(3, asked, "MAA")},
	"a drain that a quorum does not outlive":    {guard: mutNoGuard, drains: blind, shape: leaving(3, asked, "Nuuu")},
	"a drain next to a member that is down":     {drains: []string{"others-not-healthy"}, shape: leaving(5, asked, "EN")},
	"a drain next to a replacement":             {guard: mutBesideReplacing, shape: shrinking("IVEHA")},
	"a claim that is taken back":                {guard: mutBlindMark, shape: leaving(3, asked, "+AA")},
	"a drain that clients see":                  {guard: mutStillServed, shape: leaving(3, picked, "A")},
	"a claim taken for an acknowledgement":      {guard: mutClaimIsDone, shape: formed("I-+")},
	"an acknowledgement of another order":       {guard: mutOtherDone, shape: leaving(3, leases.RetireDone, "MAA")},
	"leftovers of whom no one acknowledged":     {guard: mutNoFarewell, shape: shrinking("vI+bG")},
}

// steps that a mutation may take to be found.
const mutationSteps = 2_000_000

// hunt walks until a violation, and says after how many steps.
func hunt(m *mutation, most int) (s shape, trace []action, bad string, steps int) {
	for seed := uint64(1); steps < most; seed++ {
		s = shapes[seed%uint64(len(shapes))]
		if m.shape != nil {
			s = *m.shape
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
