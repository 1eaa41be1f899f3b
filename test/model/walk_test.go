package model

import (
	"flag"
	"testing"
	"time"
)

var (
	walkSteps = flag.Int("model.steps", 1_000_000, "random steps of all walks")
	walkSeed  = flag.Uint64("model.seed", 1, "seed of the first walk")
)

var shapes = []setup{
	{replicas: 3, steps: 150, faults: 6},
	{replicas: 3, steps: 250, formed: true, faults: 8, fine: true},
	{replicas: 3, steps: 400, formed: true, faults: 30},
	{replicas: 1, steps: 150, formed: true, faults: 10, fine: true},
	{replicas: 3, steps: 250, faults: 15, fine: true},
	{replicas: 5, steps: 400, formed: true, faults: 20},
	{replicas: 3, steps: 400, formed: true, faults: 12, fine: true, only: "-+IAEaTFVN"},
	{replicas: 5, steps: 400, formed: true, faults: 12, only: "--+IEaTMGJHAub"},
	{replicas: 3, steps: 250, faults: 10, only: "-+IuTHJA"},
	{replicas: 3, steps: 300, formed: true, leaving: asked, faults: 8, only: "+IAEaNTVFJH"},
	{replicas: 5, steps: 300, formed: true, leaving: picked, faults: 12},
}

func TestRandomWalks(t *testing.T) {
	began := time.Now()
	all, walks, excused := 0, 0, 0
	found := map[string]int{}
	for seed := *walkSeed; all < *walkSteps; seed++ {
		s := shapes[seed%uint64(len(shapes))]
		w, trace, steps := walk(seed, s, nil)
		all += steps
		walks++
		if w.ghost.excused {
			excused++
		}
		if w.ghost.bad != "" {
			c := class(w.ghost.bad)
			if found[c]++; found[c] == 1 {
				t.Errorf("seed %d: %s", seed, story(s, nil, trace))
			}
		}
	}
	t.Logf("%d steps in %d walks (%d with too few intact volumes) in %s; %v", all, walks, excused, time.Since(began), found)
}
