package agent

import (
	"context"
	"sync"
	"time"

	"github.com/etcd-druid/druid/backup/guard"
)

// Pauses before a loop that ended is begun again.
const (
	restartPause    = time.Second
	maxRestartPause = time.Minute
	// steady: a loop that ran for this long did not end by being started.
	steady = 2 * time.Minute
)

// keep runs a loop until ctx ends, and begins it again when it fails or panics: nothing of the agent ends because
// something else of it did.
func (a *Agent) keep(ctx context.Context, name string, run func(context.Context) error) {
	for rest := restartPause; ctx.Err() == nil; rest = min(2*rest, maxRestartPause) {
		started := time.Now()
		err := guard.Run(func() error { return run(ctx) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) >= steady {
			rest = restartPause
		}
		a.metrics.restarts.WithLabelValues(name).Inc()
		a.log.ErrorContext(ctx, "loop ended", "loop", name, "err", err)
		pause(ctx, rest)
	}
}

// The loops whose beat liveness looks at: the two that never wait for anything but a bounded call.
const (
	loopObserver = "observer"
	loopRenewer  = "renewer"
)

// beats remembers when each loop last came round.
type beats struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newBeats() *beats {
	now := time.Now()
	return &beats{last: map[string]time.Time{loopObserver: now, loopRenewer: now}}
}

func (b *beats) beat(loop string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[loop] = time.Now()
}

// stuck names a loop that has not come round within its bound, or nothing.
func (b *beats) stuck(bounds map[string]time.Duration) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for loop, last := range b.last {
		if time.Since(last) > bounds[loop] {
			return loop
		}
	}
	return ""
}
