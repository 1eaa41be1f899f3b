package model

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// guardDeletion that a mutation takes away.
type guardDeletion uint32

const (
	mutOldToken guardDeletion = 1 << iota
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
	mutNoFinalizer
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

// mutation is the protocol without one of its guards.
type mutation struct {
	guardDeletion guardDeletion
	// rule is a row of the start table that is left out.
	rule string
	// drains are the rows of the drain's table that are left out.
	drains []string
	// history that finds it, where random walks come to it too rarely.
	history []string
	// podHealth of the walks that find it, where another one than all.
	podHealth *podHealth
}

func (w *world) is(g guardDeletion) bool { return w.mutant != nil && w.mutant.guardDeletion&g != 0 }

// formed is a healthy cluster of three that meets these faults, forming one that has not begun.
func formed(only string) *podHealth {
	return &podHealth{replicas: 3, steps: 300, formed: true, fine: true, faults: 12, only: only}
}

func forming(only string) *podHealth {
	return &podHealth{replicas: 3, steps: 250, fine: true, faults: 8, only: only}
}

// shrinking is a healthy cluster of five, so that some may be away while others go.
func shrinking(only string) *podHealth {
	return &podHealth{replicas: 5, steps: 400, formed: true, fine: true, faults: 12, only: only}
}

const asked = leases.RemovalRequested

// blind are the rows of the drain that look at the others.
var blind = []string{"quorum-back", "quorum", "others-back", "others-not-healthy"}

// leaving is a healthy cluster of which one member is this far on its way out.
func leaving(replicas int, far leases.RemovalState, only string) *podHealth {
	return &podHealth{replicas: replicas, steps: 300, formed: true, leaving: far, faults: 8, only: only}
}

// mutations are what the model must find: each takes away one guard, and the one behind it where two stand in a row.
var mutations = map[string]mutation{
	"a re-used token":                           {guardDeletion: mutOldToken, podHealth: forming("AlHUV")},
	"a start under an old raft ID":              {guardDeletion: mutOldID},
	"a volume gone back in time":                {guardDeletion: mutNoFloor, podHealth: formed("BBRRE")},
	"a volume replaced by an older copy":        {guardDeletion: mutNoVolumeUID | mutNoFloor, podHealth: formed("BiUE")},
	"a volume gone back to a former raft ID":    {guardDeletion: mutNoGroupTerm, history: formerID},
	"two Pods of one name":                      {guardDeletion: mutNoLock, podHealth: formed("FE")},
	"all Leases deleted, seen by an agent":      {guardDeletion: mutAbsentIsForming | mutNoEvidence, podHealth: formed("EMVA")},
	"all Leases deleted, seen by druid":         {guardDeletion: mutDruidBlind, podHealth: formed("jVEH")},
	"a druid that acts on stale caches":         {guardDeletion: mutNoLiveRead},
	"a stale published list":                    {guardDeletion: mutTrustList},
	"mixed max-learners":                        {guardDeletion: mutMixedLimits},
	"a thawed observer":                         {guardDeletion: mutThawed, podHealth: formed("+b")},
	"a lost compare-and-set":                    {guardDeletion: mutBlindWrite, podHealth: forming("FFZHU")},
	"a removal that a quorum does not outlive":  {guardDeletion: mutNoFinalizer, podHealth: formed("vEvN")},
	"an attempt that goes on after it was lost": {guardDeletion: mutNoBootstrapCheck, podHealth: forming("FFZHUV")},
	"a drain without a claim":                   {drains: []string{"claim"}, podHealth: leaving(3, asked, "AE")},
	"a drain by another order's mark":           {guardDeletion: mutOtherMark, podHealth: leaving(3, asked, "MAA")},
	"a drain that a quorum does not outlive":    {guardDeletion: mutNoFinalizer, drains: blind, podHealth: leaving(3, asked, "Nuuu")},
	"a drain next to a member that is down":     {drains: []string{"others-not-healthy"}, podHealth: leaving(5, asked, "EN")},
	"a drain next to a replacement":             {guardDeletion: mutAlongsideReplacing, podHealth: shrinking("IVEHA")},
	"a claim that is taken back":                {guardDeletion: mutBlindMark, podHealth: leaving(3, asked, "+AA")},
	"a drain that clients see":                  {guardDeletion: mutStillServed, podHealth: leaving(3, picked, "A")},
	"a claim taken for an acknowledgement":      {guardDeletion: mutClaimIsDone, podHealth: formed("I-+")},
	"an acknowledgement of another order":       {guardDeletion: mutOtherDone, podHealth: leaving(3, leases.RemovalDone, "MAA")},
	"leftovers of whom no one acknowledged":     {guardDeletion: mutNoRemovalAck, podHealth: shrinking("vI+bG")},
}

// steps that a mutation may take to be found.
const mutationSteps = 2_000_000

// hunt walks until a violation, and says after how many steps.
func hunt(m *mutation, most int) (s podHealth, trace []action, bad string, steps int) {
	for seed := uint64(1); steps < most; seed++ {
		s = shapes[seed%uint64(len(shapes))]
		if m.podHealth != nil {
			s = *m.podHealth
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
