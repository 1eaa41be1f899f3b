package agent

import (
	"context"
	"time"

	"github.com/etcd-druid/druid/internal/loop"
)

// releaseInterval between two releases: a backup or a proof needs pages of its own, and Go gives back what it freed only
// slowly. One costs some hundredths of a second.
const releaseInterval = 2 * time.Minute

// release gives back again and again what was needed meanwhile, until ctx ends.
func (a *Agent) release(ctx context.Context) error {
	for ctx.Err() == nil {
		loop.Sleep(ctx, releaseInterval)
		releaseUnused()
	}
	return nil
}
