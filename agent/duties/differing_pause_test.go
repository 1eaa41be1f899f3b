package duties

import (
	"testing"
	"time"
)

// TestUndecidedComparisonPauseBounded: the pause of undecided comparisons is bounded.
func TestUndecidedComparisonPauseBounded(t *testing.T) {
	for undecided, want := range map[int]time.Duration{
		0: differingInterval, undecidedOften: differingInterval, undecidedOften + 1: 2 * differingInterval, undecidedOften + 3: 8 * differingInterval,
		undecidedOften + 9: maxUndecidedPause, 1000: maxUndecidedPause,
	} {
		if got := differingPause(time.Millisecond, undecided); got != want {
			t.Errorf("after %d: %s, want %s", undecided, got, want)
		}
	}
	// A comparison of a large database takes longer, and still no more than its share of the time.
	if got, want := differingPause(time.Minute, 1000), compareShare*time.Minute; got != want {
		t.Errorf("after a minute: %s, want %s", got, want)
	}
}
