package duties

import (
	"testing"
	"time"
)

// TestUndecidedComparisonPauseBounded: the pause of undecided comparisons is bounded.
func TestUndecidedComparisonPauseBounded(t *testing.T) {
	for undecided, want := range map[int]time.Duration{
		0: oddInterval, undecidedOften: oddInterval, undecidedOften + 1: 2 * oddInterval, undecidedOften + 3: 8 * oddInterval,
		undecidedOften + 9: maxUndecidedPause, 1000: maxUndecidedPause,
	} {
		if got := oddPause(time.Millisecond, undecided); got != want {
			t.Errorf("after %d: %s, want %s", undecided, got, want)
		}
	}
	// A comparison of a large database takes longer, and still no more than its share of the time.
	if got, want := oddPause(time.Minute, 1000), compareShare*time.Minute; got != want {
		t.Errorf("after a minute: %s, want %s", got, want)
	}
}
