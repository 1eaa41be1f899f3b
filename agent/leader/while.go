package leader

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/leases"
)

// ErrNotLeader is the cause with which a leader's context ends.
var ErrNotLeader = leases.ErrNotLeader

// Gate blocks until the raft leadership of this member is as wanted, and returns an error only when ctx ended.
type Gate func(ctx context.Context, leading bool) error

// Campaign calls lead whenever the leader's Lease is ours, until ctx ends (leases.Election.Run).
type Campaign func(ctx context.Context, lead func(ctx context.Context)) error

// WhileLeader runs fn whenever this member is the raft leader and its agent holds the leader's Lease, until ctx ends.
// fn's context ends with cause ErrNotLeader when either is lost; the Lease is released after fn has returned. An agent
// campaigns only while its member leads, so the Lease follows raft.
func WhileLeader(ctx context.Context, gate Gate, campaign Campaign, fn func(ctx context.Context)) error {
	// A gate fails only when ctx ends; one that is open does not look at ctx.
	for gate(ctx, true) == nil && ctx.Err() == nil {
		if err := whileRaftLeader(ctx, gate, campaign, fn); err != nil {
			return fmt.Errorf("lead: %w", err)
		}
	}
	return nil
}

func whileRaftLeader(ctx context.Context, gate Gate, campaign Campaign, fn func(ctx context.Context)) error {
	term, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group errgroup.Group
	group.Go(func() error {
		if gate(term, false) == nil {
			end(ErrNotLeader)
		}
		return nil
	})
	group.Go(func() error {
		defer end(nil) // a campaign that ended by an error is begun again by the caller
		return campaign(term, fn)
	})
	return group.Wait()
}
