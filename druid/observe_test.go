package druid

import (
	"sync"
	"testing"
	"time"
)

// The steps of a stage run at once, and several may find that druid has to look again.
func TestTheSoonestLookWins(t *testing.T) {
	var (
		o     observation
		group sync.WaitGroup
	)
	for i := range parallel {
		group.Go(func() { o.lookAgain(time.Duration(i) * time.Second) })
	}
	group.Wait()
	if o.again != time.Second {
		t.Errorf("looks again after %v, want %v: 0 is never", o.again, time.Second)
	}
}
