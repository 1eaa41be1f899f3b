package backups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// orderTimeout bounds an order from its first start, across leaders. A full backup of 8 GiB at 5 MB/s takes half an
// hour, and another one can be running.
const orderTimeout = time.Hour

// orderKinds maps the Leases on which druid writes orders to the kind of backup.
var orderKinds = map[leases.Component]string{
	leases.ComponentFullSnapshot: kindFull, leases.ComponentDeltaSnapshot: kindDelta,
}

// ServeOrders performs the orders that druid writes on the two backup Leases, until ctx ends. It needs the leader's
// Lease, so that only one agent performs them. An order that a predecessor started and did not answer is performed
// again: one additional backup does no harm.
func (d *Duty) ServeOrders(ctx context.Context) error {
	var group errgroup.Group
	for component, kind := range orderKinds {
		group.Go(func() error {
			return loop.Recover(func() error { d.serveOrders(ctx, component, kind); return nil })
		})
	}
	return group.Wait()
}

func (d *Duty) serveOrders(ctx context.Context, component leases.Component, kind string) {
	tries, trouble := attempts{pace: d.readPace}, ""
	for ctx.Err() == nil {
		if c, changed := d.configured(); c == nil {
			await(ctx, changed, maxRest) // without backups there are no such Leases
			continue
		}
		err := d.follow(ctx, component, kind)
		if tries.failed(time.Now()); err == nil {
			tries.succeeded()
			tries.next = time.Now().Add(tries.pace.after(1))
		}
		if text := textOf(err); text != trouble && ctx.Err() == nil {
			if trouble = text; err != nil {
				d.Log.WarnContext(ctx, "requested backup failed, retrying", "kind", kind, "err", err)
			}
		}
		_, changed := d.at()
		await(ctx, changed, time.Until(tries.next))
	}
}

// follow performs the orders that a watch of the Lease shows, until the watch ends or an order has to wait.
func (d *Duty) follow(ctx context.Context, component leases.Component, kind string) (failed error) {
	watching, end := context.WithCancel(ctx)
	defer end()
	err := d.Leases.WatchSnapshotOrder(watching, component, func(o leases.SnapshotOrder) {
		if failed != nil || !o.Open() {
			return
		}
		if failed = d.perform(ctx, component, kind); failed != nil {
			end() // the next watch shows it again
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// perform performs the order that is on the Lease now, if it is open. After an error, it must be tried again.
func (d *Duty) perform(ctx context.Context, component leases.Component, kind string) error {
	order, err := d.Leases.SnapshotOrder(ctx, component)
	if errors.Is(err, leases.ErrAbsent) || err == nil && !order.Open() {
		return nil // the watch is behind
	}
	if err != nil {
		return err
	}
	if s, _ := d.at(); s == nil {
		return ErrIdle
	}
	a := order.Answer
	if a.Phase == "" {
		a = leases.SnapshotAnswer{UID: order.UID, Kind: order.Kind, Phase: leases.SnapshotRunning, Started: time.Now().UTC()}
		if err := d.answer(ctx, component, a); err != nil {
			return err
		}
	}
	limit, done := orderTimeout, "saved"
	if order.Kind == leases.SnapshotDelete {
		limit, done = deleteTimeout, "deleted"
	}
	trying, cancel := context.WithDeadline(ctx, a.Started.Add(limit))
	defer cancel()
	artifact, err := d.execute(trying, kind, order)
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // the next leader's agent performs it
	case err != nil && trying.Err() != nil:
		err = fmt.Errorf("not %s within %s: %w", done, limit, err)
	case interrupted(err):
		return err
	}
	return d.conclude(ctx, component, a, artifact, err)
}

// errOrderKind is final: the known kinds depend only on the agent's version.
var errOrderKind = errors.New("this agent does not know this kind of request because it is older than druid; update the image of the agent")

// execute performs an order on the Lease for backups of kind.
func (d *Duty) execute(ctx context.Context, kind string, order leases.SnapshotOrder) (Artifact, error) {
	if order.Kind == "" {
		return d.Snapshot(ctx, kind)
	}
	if kind != kindFull {
		return Artifact{}, fmt.Errorf("request %q on the Lease for a %s: %w", order.Kind, kind, errOrderKind)
	}
	switch order.Kind {
	case leases.SnapshotFinal:
		return d.final(ctx)
	case leases.SnapshotVerified:
		return d.verified(ctx, func() (Artifact, error) { return d.Snapshot(ctx, kindFull) })
	case leases.SnapshotFinalVerified:
		return d.verified(ctx, func() (Artifact, error) { return d.final(ctx) })
	case leases.SnapshotDelete:
		target, err := order.Target()
		if err != nil {
			return Artifact{}, err
		}
		return d.delete(ctx, order, target)
	}
	return Artifact{}, fmt.Errorf("request %q on the Lease for a %s: %w", order.Kind, kind, errOrderKind)
}

// interrupted says that the session or its recorder ended for another reason than the order. The next session performs
// the order again.
func interrupted(err error) bool {
	return errors.Is(err, ErrIdle) || errors.Is(err, delta.ErrEnded) || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// conclude retries until the final answer is written. Without the answer, the backup would have to be made again.
func (d *Duty) conclude(ctx context.Context, component leases.Component, a leases.SnapshotAnswer, artifact Artifact, failure error) error {
	a.Phase, a.Finished = leases.SnapshotSucceeded, time.Now().UTC()
	a.Object, a.URI, a.Revision, a.Size, a.SHA256 = artifact.Key, artifact.URI, artifact.Revision, artifact.Size, artifact.SHA256
	a.StorageVersion = artifact.StorageVersion
	if failure != nil {
		a.Phase, a.Error = leases.SnapshotFailed, failure.Error()
	}
	d.Log.InfoContext(ctx, "request for a backup answered", "order", a.UID, "phase", string(a.Phase), "object", a.Object, "revision", a.Revision)
	for failures := 1; ; failures++ {
		err := d.answer(ctx, component, a)
		if err == nil || ctx.Err() != nil {
			return err
		}
		await(ctx, nil, d.readPace.after(failures))
	}
}

// answer answers an order if it still exists. An order that was deleted needs no answer.
func (d *Duty) answer(ctx context.Context, component leases.Component, a leases.SnapshotAnswer) error {
	for {
		order, err := d.Leases.SnapshotOrder(ctx, component)
		if errors.Is(err, leases.ErrAbsent) || err == nil && (order.UID != a.UID || order.Kind != a.Kind) {
			return nil
		}
		if err != nil {
			return err
		}
		crash.Before("answer-snapshot-order")
		err = d.Leases.AnswerSnapshot(ctx, component, order.Version, a)
		crash.After("answer-snapshot-order")
		if !errors.Is(err, leases.ErrConflict) {
			return err // lost to a renewal of ours, mostly: then once more
		}
	}
}
