package model

import "testing"

// found are counterexamples that the model once found in the product's decisions, as it printed them. Each heals now.
var found = map[string]struct {
	setup setup
	trace string
}{
	"a seed whose claim is deleted while the cluster forms": {
		setup{replicas: 3, fine: true},
		"O00 T00 O00 D10 D10 D10 T00 D00 D00 D00 D00 D00 D00 D00 D00 H00 k00",
	},
	"a voter without its volume while the cluster grows": {
		setup{replicas: 3, formed: true},
		"T00 L10 O00 O00 +00 D10 D10 U10 K10 D10 D10 D10 D10 H10 k10",
	},
	"a voter with a new Lease is asked to go while another loses its volume": {
		setup{replicas: 5, formed: true},
		"I00 H11 J40 J13 H34",
	},
	"one of two members is to go, and both are without their volumes": {
		setup{replicas: 3, steps: 400, formed: true, faults: 30},
		"H10 U20 H00 -00 j00",
	},
	"duties next to a Lease that is not marked, its volume going": {
		setup{replicas: 1, formed: true, fine: true},
		"H00 j00 Y00",
	},
}

func TestCounterexamplesStayHealed(t *testing.T) {
	for name, tc := range found {
		t.Run(name, func(t *testing.T) {
			trace, err := parse(tc.trace)
			if err != nil {
				t.Fatal(err)
			}
			if w := replay(tc.setup, nil, trace, false); w.ghost.bad != "" {
				t.Fatal(story(tc.setup, nil, trace))
			}
		})
	}
}

func TestTraceIsReadAsItIsWritten(t *testing.T) {
	_, trace, _ := walk(7, shapes[2], nil)
	again, err := parse(format(trace))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := format(again), format(trace); got != want || len(trace) == 0 {
		t.Errorf("got %s, want %s", got, want)
	}
}
