package backups

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/guard"
)

// hangPatience is for how long a pass of retention may outlive leadership, or hold up another: what heeds its context ends in
// less.
const hangPatience = 10 * time.Second

// errHangs says that no pass is begun.
var errHangs = errors.New("an earlier pass of retention is under way, or hangs in its store")

// pass runs one pass of retention, or a deletion on demand, and no second one next to it: each of two would count on what the
// other deletes. One that is under way is waited for, but not for long. Once ctx has ended it does not wait for long: a directory
// whose mount hangs heeds no context, and would hold the leader's Lease permanently. A pass that is left finds, should it
// ever go on, that it may delete nothing more: it asks for the raft term before each deletion, under the same ctx.
func (d *Duty) pass(ctx context.Context, retain func(context.Context) error) error {
	patience := time.NewTimer(hangPatience)
	defer patience.Stop()
	select {
	case d.passing <- struct{}{}:
	case <-patience.C:
		return errHangs
	case <-ctx.Done():
		return errHangs
	}
	done := make(chan error, 1)
	var group errgroup.Group
	group.Go(func() error {
		defer func() { <-d.passing }()
		done <- guard.Run(func() error { return retain(ctx) })
		return nil
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(hangPatience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		d.Log.WarnContext(ctx, "retention left hanging in its store: none is begun before it returns", "after", hangPatience)
		return errHangs
	}
}
