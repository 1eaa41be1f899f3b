package backups

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// Intervals of the reports.
const (
	// minGap is the minimum time between two renewals of a Lease.
	minGap = time.Second
	// fullHeartbeat is the renewal interval of the full Lease. A druid that has just started trusts only changes that it
	// observed. Until then, it keeps what was reported before.
	fullHeartbeat = time.Minute
)

// beats are the renewal intervals of the Leases when nothing changes.
type beats struct{ full, delta time.Duration }

func beatsOf(c config.Backup) beats { return beats{fullHeartbeat, c.DeltaLeaseDuration() / 3} }

// reporter reports on the two Leases what is saved. What it cannot write it writes later. Nothing waits for it.
type reporter struct {
	leases *leases.Store
	config config.Backup
	self   Identity
	log    *slog.Logger
	beats  beats

	mu    sync.Mutex
	full  notice
	delta notice
	// trouble is an error of the store. It is reported if there is no other error.
	trouble fault
	// supersededBy is the lineage that the last listing showed to be newer than the lineage of this cluster.
	supersededBy string
	// taken is the newest full backup. whole says that delta backups continue it.
	taken catalog.Full
	whole bool
	// Everything acknowledged by savedAt is saved. reportedAt is the part of it that was reported.
	savedAt, reportedAt time.Time
	// lag returns the age in seconds of the oldest write that is not saved.
	lag func() float64
	// auth is what a full backup has of authentication: the newest one that this session took, or before that, what was read in the Lease.
	auth leases.BackupAuth
	// verified is what was last read of the verifications of the backups; changed has a mark when that changed.
	verified leases.Verification
	changed  chan struct{}
	// leaseRead says that the Lease was read.
	leaseRead bool
}

// notice is the content of a Lease.
type notice struct {
	leases.Backup
	wake chan struct{}
}

// fault is an error as a Lease has it.
type fault struct {
	text  string
	cause leases.BackupCause
}

// faultOf returns the text and the cause of err, or nothing for nil. The text is brief: druid writes the status of the EtcdCluster whenever
// it changes.
func faultOf(err error) fault {
	return fault{store.Brief(err), leases.BackupCause(store.CauseOf(err))}
}

// report sets the error in a Lease.
func (f fault) report(b *leases.Backup) { b.Error, b.Cause = f.text, f.cause }

// faultIn returns the error in a Lease.
func faultIn(b leases.Backup) fault { return fault{b.Error, b.Cause} }

func newReporter(d *Duty, c config.Backup, self Identity) *reporter {
	return &reporter{
		leases: d.Leases, config: c, self: self, log: d.Log, beats: d.beats(c), lag: d.Metrics.rpo,
		changed: make(chan struct{}, 1),
		full:    notice{wake: make(chan struct{}, 1)}, delta: notice{wake: make(chan struct{}, 1)},
	}
}

// change changes the report. urgent are the Leases to update at once.
func (h *reporter) change(change func(), urgent ...*notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	for _, n := range urgent {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// failed reports on both Leases that backups cannot continue. A repeated error is logged once, as in note.
func (h *reporter) failed(ctx context.Context, err error) {
	h.mu.Lock()
	same := h.trouble != fault{}
	h.trouble = faultOf(err)
	h.mu.Unlock()
	if !same {
		h.change(func() {}, &h.full, &h.delta)
		h.log.WarnContext(ctx, "backup failed, retrying", "what", "store", "err", err)
	}
}

func (h *reporter) fullFailed(ctx context.Context, err error) { h.note(ctx, "full", &h.full, err) }

func (h *reporter) recorderFailed(ctx context.Context, err error) {
	h.change(func() { h.whole = false })
	h.note(ctx, "deltas", &h.delta, err)
}

// note sets the error on a Lease, nil for none. Only the first error is logged and reported at once.
func (h *reporter) note(ctx context.Context, what string, n *notice, err error) {
	h.mu.Lock()
	same := (n.Error == "") == (err == nil)
	faultOf(err).report(&n.Backup)
	h.mu.Unlock()
	if same {
		return
	}
	h.change(func() {}, n)
	if err != nil {
		h.log.WarnContext(ctx, "backup failed, retrying", "what", what, "err", err)
	} else {
		h.log.InfoContext(ctx, "backups resumed", "what", what)
	}
}

// read reports what a listing shows, what blocks the delta backups, and its doubt; nil for none.
func (h *reporter) read(ctx context.Context, newest catalog.Full, since time.Time, saved int64, c CatalogState, hindrance, doubt error) {
	h.mu.Lock()
	same := h.trouble == faultOf(doubt)
	h.mu.Unlock()
	if doubt != nil && !same {
		h.log.WarnContext(ctx, "state of backups uncertain, nothing is deleted", "err", doubt)
	}
	by := ""
	if other, superseded := errors.AsType[*supersededError](doubt); superseded {
		by = string(other.by)
	}
	h.change(func() {
		h.taken, h.whole, h.trouble, h.supersededBy = newest, c == CatalogComplete, faultOf(doubt), by
		if h.full.Object != newest.Key {
			h.full.Backup = leases.Backup{
				Revision: newest.Revision, Lineage: string(h.self.Lineage), Object: newest.Key, Size: newest.Size, Taken: newest.At,
				Error: h.full.Error, Cause: h.full.Cause,
			}
		}
		h.full.Since, h.delta.Revision, h.delta.Lineage = since, saved, string(h.self.Lineage)
	}, &h.full, &h.delta)
	h.note(ctx, "deltas", &h.delta, hindrance)
}

// fullTaken reports a full backup and the state after it.
func (h *reporter) fullTaken(b leases.Backup, taken catalog.Full, c CatalogState) {
	h.change(func() {
		h.full.Backup, h.taken = b, taken
		if b.Auth.Object != "" {
			h.auth = b.Auth
		}
		h.whole = c == CatalogComplete
		if h.whole {
			fault{}.report(&h.delta.Backup)
			h.delta.Revision = max(h.delta.Revision, b.Revision)
		}
	}, &h.full, &h.delta)
}

// recorded reports the progress of the recorder.
func (h *reporter) recorded(ctx context.Context, s delta.Status) {
	problem := s.SaveError
	if problem == nil {
		problem = s.WatchError
	}
	whole := false
	h.change(func() {
		h.savedAt, whole = s.SavedAt, h.whole
		if whole { // otherwise no full backup precedes the deltas
			h.delta.Revision = max(h.delta.Revision, s.Saved)
		}
		if s.Object.Key != "" {
			h.delta.Object, h.delta.Size, h.delta.SHA256 = s.Object.Key, s.Object.Size, s.Object.SHA256
			h.delta.Taken = s.Object.Header.Closed
		}
	})
	if whole || problem != nil {
		h.note(ctx, "deltas", &h.delta, problem)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// unopened reports why the store cannot be opened.
func (h *reporter) unopened(ctx context.Context, err error) {
	h.trouble = faultOf(err)
	for c, patch := range map[leases.Component]patcher{
		leases.ComponentFullSnapshot: h.fullPatch, leases.ComponentDeltaSnapshot: h.deltaPatch,
	} {
		p, _ := patch(time.Now())
		if err := h.renew(ctx, c, p); err != nil {
			h.log.DebugContext(ctx, "state of backups not written to the Lease", "component", string(c), "err", err)
		}
	}
}

// run renews the Leases until ctx ends. It reports nothing afterwards, because the next leader can have newer
// information.
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

// patcher returns what to write into a Lease, and what to do after the write.
type patcher func(now time.Time) (p leases.BackupPatch, reported func())

// persist renews one Lease until ctx ends, and continues after a panic.
func (h *reporter) persist(ctx context.Context, c leases.Component, wake <-chan struct{}, interval time.Duration, patch patcher) {
	for ctx.Err() == nil {
		err := loop.Recover(func() error {
			h.keep(ctx, c, wake, interval, patch)
			return nil
		})
		if err != nil {
			h.log.ErrorContext(ctx, "state of backups not written to the Lease", "component", string(c), "err", err)
			await(ctx, nil, interval)
		}
	}
}

// keep renews one Lease when there is something to report, and at each interval. It logs an error once per change.
func (h *reporter) keep(ctx context.Context, c leases.Component, wake <-chan struct{}, interval time.Duration, patch patcher) {
	trouble := ""
	for await(ctx, wake, interval); ctx.Err() == nil; await(ctx, wake, interval) {
		p, reported := patch(time.Now())
		err := h.renew(ctx, c, p)
		if errors.Is(err, leases.ErrForbidden) && p.Backup.Auth != (leases.BackupAuth{}) {
			// The admission policy of an earlier druid does not know the annotation.
			p.Backup.Auth = leases.BackupAuth{}
			err = h.renew(ctx, c, p)
		}
		if err == nil {
			reported()
		}
		if err == nil && c == leases.ComponentFullSnapshot {
			h.readVerification(ctx)
		}
		if text := textOf(err); text != trouble && ctx.Err() == nil {
			trouble = text
			if err != nil {
				h.log.WarnContext(ctx, "state of backups not written to the Lease", "component", string(c), "err", err)
			}
		}
		await(ctx, nil, minGap)
	}
}

func (h *reporter) renew(ctx context.Context, c leases.Component, p leases.BackupPatch) error {
	defer crash.Around("renew-backup-lease")()
	return h.leases.RenewBackup(ctx, c, p)
}

// fullPatch updates the renewal time of the full Lease while the newest full backup is not overdue.
func (h *reporter) fullPatch(now time.Time) (p leases.BackupPatch, reported func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, reported = leases.BackupPatch{Backup: h.full.Backup}, func() {}
	cmp.Or(faultIn(p.Backup), h.trouble).report(&p.Backup)
	p.Backup.SupersededBy = h.supersededBy
	if h.taken.Key == "" {
		return p, reported
	}
	if d, err := h.config.FullLeaseDuration(h.taken.At, now); err == nil && d >= time.Minute {
		p.RenewTime, p.Duration = &now, d
	}
	return p, reported
}

// deltaPatch updates the renewal time of the delta Lease when more is known to be saved than at the last update.
func (h *reporter) deltaPatch(now time.Time) (p leases.BackupPatch, reported func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.Backup = h.delta.Backup
	cmp.Or(h.trouble, faultIn(p.Backup)).report(&p.Backup)
	p.Backup.Lag = time.Duration(h.lag() * float64(time.Second))
	savedAt := h.savedAt
	if h.whole && savedAt.After(h.reportedAt) {
		p.RenewTime, p.Duration = &now, h.config.DeltaLeaseDuration()
	}
	return p, func() { h.change(func() { h.reportedAt = savedAt }) }
}
