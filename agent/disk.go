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

// Pauses before a report that could not be written is written again. Nothing waits for it but a recovery.
const reportPause, maxReportPause = time.Second, 30 * time.Second

// reportInterval is the time between two comparisons with the Lease while etcd does not run: a user can have deleted or edited it, or the
// free space can have changed.
const reportInterval = 15 * time.Second

// freeStep is the change of the free space in bytes that is written by itself. druid refuses a recovery that lacks room, and must see that
// you made room. The agent writes at most once in reportInterval.
const freeStep = 1 << 20

// diskReport keeps what the member Lease says about the disk equal to what the agent knows. Nothing is known before the
// first decision about a start. While etcd runs, the Lease says nothing, because etcd changes the disk.
type diskReport struct {
	store  *leases.Store
	member string
	podUID string
	log    *slog.Logger

	wake chan struct{}
	mu   sync.Mutex
	// known says that report is known; a nil report is that etcd runs.
	known  bool
	report *leases.DiskReport
}

func newDiskReport(store *leases.Store, member, podUID string, log *slog.Logger) *diskReport {
	return &diskReport{store: store, member: member, podUID: podUID, log: log, wake: make(chan struct{}, 1)}
}

// set takes what the disk holds, nil while etcd runs. It does not block. A report that was on its way when etcd started can reach the Lease
// after it was withdrawn: nil withdraws it again.
func (d *diskReport) set(c *leases.DiskReport) {
	d.mu.Lock()
	changed := !d.known || !sameReport(d.report, c)
	d.known, d.report = true, c
	d.mu.Unlock()
	if changed || c == nil {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// sameReport ignores sizes, which change by themselves.
func sameReport(a, b *leases.DiskReport) bool {
	if a == nil || b == nil {
		return a == b
	}
	one, other := *a, *b
	one.Size, one.Free, other.Size, other.Free = 0, 0, 0, 0
	return one == other
}

// sameFree says whether the free space is about the same. Small changes are frequent, and no reason for a write.
func sameFree(a, b *leases.DiskReport) bool {
	return a == nil || b == nil || max(a.Free-b.Free, b.Free-a.Free) < freeStep
}

// Run writes every change until ctx ends, and a report again that the Lease has lost.
func (d *diskReport) Run(ctx context.Context) error {
	again := time.NewTicker(reportInterval)
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

// waits says whether etcd does not run, so that the Lease is to have a report.
func (d *diskReport) waits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.report != nil
}

// writeUntilDone retries until the Lease says what is known, or ctx ends. It logs each error once.
func (d *diskReport) writeUntilDone(ctx context.Context) {
	rest := loop.Backoff{First: reportPause, Last: maxReportPause}
	var reported loop.Change[string]
	for err := d.write(ctx); err != nil && ctx.Err() == nil; err = d.write(ctx) {
		if reported.To(err.Error()) {
			d.log.WarnContext(ctx, "report of the disk not written, retrying", "member", d.member, "err", err)
		}
		loop.Sleep(ctx, rest.Next())
	}
}

// write makes the Lease say what is known now. A Lease of another Pod of the member is not ours to write.
func (d *diskReport) write(ctx context.Context) error {
	lease, err := d.store.Marks(ctx, d.member)
	d.mu.Lock()
	report := d.report // read after the version: a report that was withdrawn since is never written with a later version
	d.mu.Unlock()
	if err != nil || lease.PodUID != d.podUID || sameReport(lease.Disk, report) && sameFree(lease.Disk, report) {
		return err
	}
	crash.Before("publish-disk")
	_, err = d.store.PublishDiskReport(ctx, d.member, lease.LeaseVersion, report)
	crash.After("publish-disk")
	return err
}
