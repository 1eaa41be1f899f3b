package archive

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
)

// Collected is what became of an object that retention lets go.
type Collected struct {
	chain.Verdict
	// Locked objects stay until their lock ends; the next collection finds them again.
	Locked bool
}

// Collect lists what is below prefix, and deletes what retention lets go in the line of l, or without l in each one, oldest first. It reports each object after it
// is gone, or found to be locked. Any other error ends it; what was deleted until then was superfluous anyway.
func Collect(ctx context.Context, s store.Store, prefix string, l chain.Lineage, p chain.Policy, e chain.Evidence, now time.Time, inform func(Collected) error) error {
	if err := p.Validate(); err != nil {
		return err
	}
	c, err := chain.Read(ctx, s, prefix)
	if err != nil {
		return err
	}
	for _, v := range c.Retain(l, p, e, now) {
		if v.Keep {
			continue
		}
		err := s.Delete(ctx, v.Key)
		locked := errors.Is(err, store.ErrLocked)
		if err != nil && !locked {
			return err
		}
		if err := inform(Collected{Verdict: v, Locked: locked}); err != nil {
			return err
		}
	}
	return nil
}
