package agent

import (
	"context"
	"time"

	"github.com/etcd-druid/druid/internal/loop"
)

// releaseInterval between two releases. A backup or a verification needs additional pages, and Go returns freed memory
// only slowly. One release takes some hundredths of a second.
const releaseInterval = 2 * time.Minute

// release repeatedly returns unused memory to the operating system, until ctx ends.
func (a *Agent) release(ctx context.Context) error {
	for ctx.Err() == nil {
		loop.Sleep(ctx, releaseInterval)
		releaseUnused()
	}
	return nil
}
