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
	"github.com/etcd-druid/druid/backup/guard"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// orderTimeout bounds an order from its first beginning, anyone who led since: a full of 8 GiB at 5 MB/s takes half an hour, and
// one may be under way.
const orderTimeout = time.Hour

// orderKinds are the Leases on which druid orders, and what it orders there.
var orderKinds = map[leases.Component]string{
	leases.ComponentFullSnapshot: kindFull, leases.ComponentDeltaSnapshot: kindDelta,
}

// Obey performs what druid orders on the two backup Leases, until ctx ends: with the leader's Lease, so that one agent does.
// An order that a predecessor began and did not answer is performed again: one backup more harms no one.
func (d *Duty) Obey(ctx context.Context) error {
	var group errgroup.Group
	for component, kind := range orderKinds {
		group.Go(func() error {
			return guard.Run(func() error { d.obey(ctx, component, kind); return nil })
		})
	}
	return group.Wait()
}

func (d *Duty) obey(ctx context.Context, component leases.Component, kind string) {
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
				d.Log.WarnContext(ctx, "ordered backup hindered", "kind", kind, "err", err)
			}
		}
		_, changed := d.at()
		await(ctx, changed, time.Until(tries.next))
	}
}

// follow performs what a watch of the Lease shows, until the watch ends or an order has to wait.
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

// perform the order that is on the Lease now, if it is open. An error says that it is to be tried again.
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
		return ctx.Err() // who leads next performs it
	case err != nil && trying.Err() != nil:
		err = fmt.Errorf("not %s within %s: %w", done, limit, err)
	case interrupted(err):
		return err
	}
	return d.conclude(ctx, component, a, artifact, err)
}

// errOrderKind is final: which kinds there are changes with the agent's version only.
var errOrderKind = errors.New("this agent does not know such an order: it is older than druid, update its image")

// execute an order on the Lease for backups of kind.
func (d *Duty) execute(ctx context.Context, kind string, order leases.SnapshotOrder) (Artifact, error) {
	if order.Kind == "" {
		return d.Snapshot(ctx, kind)
	}
	if kind != kindFull {
		return Artifact{}, fmt.Errorf("order %q on the Lease for a %s: %w", order.Kind, kind, errOrderKind)
	}
	switch order.Kind {
	case leases.SnapshotFinal:
		return d.final(ctx)
	case leases.SnapshotVerified:
		return d.verified(ctx, func() (Artifact, error) { return d.Snapshot(ctx, kindFull) })
	case leases.SnapshotFinalVerified:
		return d.verified(ctx, func() (Artifact, error) { return d.final(ctx) })
	case leases.SnapshotDelete, leases.SnapshotElsewhere:
	}
	target, err := order.Target()
	switch {
	case order.Kind != leases.SnapshotDelete && order.Kind != leases.SnapshotElsewhere:
		return Artifact{}, fmt.Errorf("order %q on the Lease for a %s: %w", order.Kind, kind, errOrderKind)
	case err != nil:
		return Artifact{}, err
	case order.Kind == leases.SnapshotDelete:
		return d.delete(ctx, order, target)
	}
	return d.elsewhere(ctx, target.Place)
}

// interrupted says that what was to save ended, and not for its own fault: what follows it is asked again.
func interrupted(err error) bool {
	return errors.Is(err, ErrIdle) || errors.Is(err, delta.ErrEnded) || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// conclude writes the final answer until it is written: else what was saved would have to be saved again.
func (d *Duty) conclude(ctx context.Context, component leases.Component, a leases.SnapshotAnswer, artifact Artifact, failure error) error {
	a.Phase, a.Finished = leases.SnapshotSucceeded, time.Now().UTC()
	a.Object, a.URI, a.Revision, a.Size, a.SHA256 = artifact.Key, artifact.URI, artifact.Revision, artifact.Size, artifact.SHA256
	a.StorageVersion = artifact.StorageVersion
	if failure != nil {
		a.Phase, a.Error = leases.SnapshotFailed, failure.Error()
	}
	d.Log.InfoContext(ctx, "order answered", "order", a.UID, "phase", string(a.Phase), "object", a.Object, "revision", a.Revision)
	for failures := 1; ; failures++ {
		err := d.answer(ctx, component, a)
		if err == nil || ctx.Err() != nil {
			return err
		}
		await(ctx, nil, d.readPace.after(failures))
	}
}

// answer an order if it still stands. One that was taken away needs no answer.
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
