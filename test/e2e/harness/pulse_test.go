package harness

import (
	"testing"
	"time"
)

// A gap that is reported in the middle and reported again when it is longer is excused by all that was felt since it began.
func TestAStallExcusesTheGapThatItFallsInto(t *testing.T) {
	begun := time.Now().Add(-time.Minute)
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	p := pulse{}
	for _, s := range []stall{{at(1), 5 * time.Second}, {at(10), 2 * time.Second}, {at(20), time.Second}} {
		p.feel(s)
	}
	for _, look := range []struct {
		since int
		want  time.Duration
	}{{0, 5 * time.Second}, {2, 2 * time.Second}, {2, 2 * time.Second}, {11, time.Second}, {21, 0}} {
		if got := p.stall(at(look.since)); got != look.want {
			t.Errorf("since second %d someone waited for %s, want %s", look.since, got, look.want)
		}
	}
}

func TestRunDelayIsTheSecondNumber(t *testing.T) {
	for raw, want := range map[string]time.Duration{"224414234 50983322 825\n": 50983322, "": 0, "7\n": 0, "7 x 1": 0} {
		got, ok := runDelay(raw)
		if got != want || ok != (want > 0) {
			t.Errorf("runDelay(%q) is %s, %v, want %s", raw, got, ok, want)
		}
	}
}
