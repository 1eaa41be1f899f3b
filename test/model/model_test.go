package model

import "testing"

func TestFormsWithoutFaults(t *testing.T) {
	for n := 1; n <= 5; n += 2 {
		w := newWorld(n)
		w.lines = &[]string{}
		steps := w.heal()
		if w.ghost.bad != "" {
			for _, l := range *w.lines {
				t.Log(l)
			}
			t.Fatalf("%d replicas: %s", n, w.ghost.bad)
		}
		t.Logf("%d replicas healthy after %d steps", n, steps)
	}
}
