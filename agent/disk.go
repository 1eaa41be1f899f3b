package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// Pauses before a claim that could not be written is written again. Nothing waits for it but a recovery.
const claimPause, maxClaimPause = time.Second, 30 * time.Second

// claimInterval is the time between two comparisons with the Lease while etcd does not run: a user can have deleted or edited it.
const claimInterval = 15 * time.Second

// diskClaim keeps what the member Lease says about the disk equal to what the agent knows. Nothing is known before the
// first decision about a start. While etcd runs, the Lease says nothing, because etcd changes the disk.
type diskClaim struct {
	store  *leases.Store
	member string
	podUID string
	log    *slog.Logger

	wake chan struct{}
	mu   sync.Mutex
	// known says that claim is known; a nil claim is that etcd runs.
	known bool
	claim *leases.Claim
}

func newDiskClaim(store *leases.Store, member, podUID string, log *slog.Logger) *diskClaim {
	return &diskClaim{store: store, member: member, podUID: podUID, log: log, wake: make(chan struct{}, 1)}
}

// set takes what the disk holds, nil while etcd runs. It does not block.
func (d *diskClaim) set(c *leases.Claim) {
	d.mu.Lock()
	changed := !d.known || !sameClaim(d.claim, c)
	if changed {
		d.known, d.claim = true, c
	}
	d.mu.Unlock()
	if changed {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// sameClaim ignores sizes, which change by themselves.
func sameClaim(a, b *leases.Claim) bool {
	if a == nil || b == nil {
		return a == b
	}
	one, other := *a, *b
	one.Size, one.Free, other.Size, other.Free = 0, 0, 0, 0
	return one == other
}

// Run writes every change until ctx ends, and a claim again that the Lease has lost.
func (d *diskClaim) Run(ctx context.Context) error {
	again := time.NewTicker(claimInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			if d.waits() {
				d.writeUntilDone(ctx)
			}
		case <-d.wake:
			d.writeUntilDone(ctx)
		}
	}
}

// waits says whether etcd does not run, so that the Lease is to have a claim.
func (d *diskClaim) waits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claim != nil
}

// writeUntilDone retries until the Lease says what is known, or ctx ends. It logs each error once.
func (d *diskClaim) writeUntilDone(ctx context.Context) {
	rest := loop.Backoff{First: claimPause, Last: maxClaimPause}
	var reported loop.Change[string]
	for err := d.write(ctx); err != nil && ctx.Err() == nil; err = d.write(ctx) {
		if reported.To(err.Error()) {
			d.log.WarnContext(ctx, "claim of the disk not written, retrying", "member", d.member, "err", err)
		}
		loop.Sleep(ctx, rest.Next())
	}
}

// write makes the Lease say what is known now. A Lease of another Pod of the member is not ours to write.
func (d *diskClaim) write(ctx context.Context) error {
	lease, err := d.store.Marks(ctx, d.member)
	d.mu.Lock()
	claim := d.claim // read after the version: a claim that was withdrawn since is never written with a later version
	d.mu.Unlock()
	if err != nil || lease.PodUID != d.podUID || sameClaim(lease.Disk, claim) {
		return err
	}
	crash.Before("publish-disk")
	_, err = d.store.PublishClaim(ctx, d.member, lease.LeaseVersion, claim)
	crash.After("publish-disk")
	return err
}
