package backups

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/guard"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// run renews until ctx ends. Nothing is reported then: who leads next may know more already.
func (h *reporter) run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error {
		h.persist(ctx, leases.ComponentFullSnapshot, h.full.wake, h.beats.full, h.fullPatch)
		return nil
	})
	group.Go(func() error {
		h.persist(ctx, leases.ComponentDeltaSnapshot, h.delta.wake, h.beats.delta, h.deltaPatch)
		return nil
	})
	return group.Wait()
}

// patcher says what to write into a Lease, and what to do once it is written.
type patcher func(now time.Time) (p leases.BackupPatch, notified func())

// persist keeps one Lease until ctx ends, also after a panic.
func (h *reporter) persist(ctx context.Context, c leases.Component, wake <-chan struct{}, interval time.Duration, patch patcher) {
	for ctx.Err() == nil {
		err := guard.Run(func() error {
			h.keep(ctx, c, wake, interval, patch)
			return nil
		})
		if err != nil {
			h.log.ErrorContext(ctx, "backups not reported", "component", string(c), "err", err)
			await(ctx, nil, interval)
		}
	}
}

// keep renews one Lease when there is something to report, and at each interval. A trouble is logged once per change.
func (h *reporter) keep(ctx context.Context, c leases.Component, wake <-chan struct{}, interval time.Duration, patch patcher) {
	trouble := ""
	for await(ctx, wake, interval); ctx.Err() == nil; await(ctx, wake, interval) {
		p, notified := patch(time.Now())
		err := h.renew(ctx, c, p)
		if err == nil {
			notified()
		}
		if err == nil && c == leases.ComponentFullSnapshot {
			h.readVerification(ctx)
		}
		if text := textOf(err); text != trouble && ctx.Err() == nil {
			trouble = text
			if err != nil {
				h.log.WarnContext(ctx, "backups not reported", "component", string(c), "err", err)
			}
		}
		await(ctx, nil, minGap)
	}
}

func (h *reporter) renew(ctx context.Context, c leases.Component, p leases.BackupPatch) error {
	defer crash.Around("renew-backup-lease")()
	return h.leases.RenewBackup(ctx, c, p)
}

// fullPatch moves the full Lease's time while the newest full is not overdue.
func (h *reporter) fullPatch(now time.Time) (p leases.BackupPatch, notified func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, notified = leases.BackupPatch{Backup: h.full.Backup}, func() {}
	p.Backup.Error, p.Backup.SupersededBy = cmp.Or(p.Backup.Error, h.trouble), h.supersededBy
	if h.taken.Key == "" {
		return p, notified
	}
	if d, err := h.config.FullLeaseDuration(h.taken.At, now); err == nil && d >= time.Minute {
		p.RenewTime, p.Duration = &now, d
	}
	return p, notified
}

// deltaPatch moves the delta Lease's time when more is known to be saved than when it was last moved.
func (h *reporter) deltaPatch(now time.Time) (p leases.BackupPatch, notified func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.Backup = h.delta.Backup
	p.Backup.Error = cmp.Or(h.trouble, p.Backup.Error)
	p.Backup.Lag = time.Duration(h.lag() * float64(time.Second))
	savedAt := h.savedAt
	if h.whole && savedAt.After(h.reportedAt) {
		p.RenewTime, p.Duration = &now, h.config.DeltaLeaseDuration()
	}
	return p, func() { h.change(func() { h.reportedAt = savedAt }) }
}
