package backups

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// Pace of what is reported.
const (
	// minGap is the least time between two renewals of a Lease, however much changes.
	minGap = time.Second
	// fullHeartbeat of the full Lease: a druid that just started knows within it that fulls are taken.
	fullHeartbeat = time.Minute
)

// beats are the intervals of the Leases' renewals when nothing changes.
type beats struct{ full, delta time.Duration }

func beatsOf(c config.Backup) beats { return beats{fullHeartbeat, c.DeltaLeaseDuration() / 3} }

// reporter reports the two Leases what is saved. What it cannot report it reports later; nothing waits for it.
type reporter struct {
	leases *leases.Store
	config config.Backup
	self   Identity
	log    *slog.Logger
	beats  beats

	mu    sync.Mutex
	full  notice
	delta notice
	// trouble with the store, reported where there is no other.
	trouble string
	// supersededBy is the lineage that the last listing showed to be newer than ours.
	supersededBy string
	// taken is the newest full; whole: deltas lead on from it.
	taken catalog.Full
	whole bool
	// savedAt: all that was acknowledged by then is saved; toldAt is what of it was reported.
	savedAt, reportedAt time.Time
	// lag is the age in seconds of the oldest write that is not saved.
	lag func() float64
	// verified is what was last read of the proofs of the backups; news has a mark when that changed.
	verified      leases.Verification
	pendingUpdate chan struct{}
}

// notice is what a Lease is to say.
type notice struct {
	leases.Backup
	wake chan struct{}
}

func newReporter(d *Duty, c config.Backup, self Identity) *reporter {
	return &reporter{
		leases: d.Leases, config: c, self: self, log: d.Log, beats: d.beats(c), lag: d.Metrics.rpo,
		pendingUpdate: make(chan struct{}, 1),
		full:          notice{wake: make(chan struct{}, 1)}, delta: notice{wake: make(chan struct{}, 1)},
	}
}

// change what is reported. Who calls it says which Leases are to hear of it at once.
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

// failed reports both that they cannot go on. What repeats is logged once, and below too.
func (h *reporter) failed(ctx context.Context, err error) {
	h.mu.Lock()
	same := h.trouble != ""
	h.trouble = err.Error()
	h.mu.Unlock()
	if !same {
		h.change(func() {}, &h.full, &h.delta)
		h.log.WarnContext(ctx, "backups hindered", "what", "store", "err", err)
	}
}

func (h *reporter) fullFailed(ctx context.Context, err error) { h.note(ctx, "full", &h.full, err) }

func (h *reporter) recorderFailed(ctx context.Context, err error) {
	h.change(func() { h.whole = false })
	h.note(ctx, "deltas", &h.delta, err)
}

// note sets a Lease's error, nil for none. The words of two attempts differ, as by the name of a temporary file; what is
// reported at once, and logged, is the first.
func (h *reporter) note(ctx context.Context, what string, n *notice, err error) {
	text := textOf(err)
	h.mu.Lock()
	same := (n.Error == "") == (text == "")
	n.Error = text
	h.mu.Unlock()
	if same {
		return
	}
	h.change(func() {}, n)
	if err != nil {
		h.log.WarnContext(ctx, "backups hindered", "what", what, "err", err)
	} else {
		h.log.InfoContext(ctx, "backups go on", "what", what)
	}
}

// read reports what a listing shows, what hinders the deltas, and what doubt it left; nil for nothing.
func (h *reporter) read(ctx context.Context, newest catalog.Full, saved int64, c CatalogState, hindrance, doubt error) {
	h.mu.Lock()
	same := h.trouble == textOf(doubt)
	h.mu.Unlock()
	if doubt != nil && !same {
		h.log.WarnContext(ctx, "backups in doubt", "err", doubt)
	}
	by := ""
	if other, superseded := errors.AsType[*supersededError](doubt); superseded {
		by = string(other.by)
	}
	h.change(func() {
		h.taken, h.whole, h.trouble, h.supersededBy = newest, c == CatalogComplete, textOf(doubt), by
		if h.full.Object != newest.Key {
			h.full.Backup = leases.Backup{
				Revision: newest.Revision, Lineage: string(h.self.Lineage), Object: newest.Key, Size: newest.Size, Taken: newest.At,
				Error: h.full.Error,
			}
		}
		h.delta.Revision, h.delta.Lineage = saved, string(h.self.Lineage)
	}, &h.full, &h.delta)
	h.note(ctx, "deltas", &h.delta, hindrance)
}

// hindrances are what is wrong with a chain.
var hindrances = map[CatalogState]error{
	CatalogAhead:  errors.New("the store holds revisions that etcd never had: this history is not the one that was saved"),
	CatalogBehind: errors.New("more changes wait to be saved than etcd can hand out without holding up writes: a new full is taken, and between what was saved and that one no single revision can be restored"),
	CatalogBroken: errors.New("what was saved does not lead to what etcd holds: revisions in between are gone, or are others. The leader takes a new full, and to what is between the two nothing can be restored"),
}

// fullTaken reports a full, and of what it makes of the chain.
func (h *reporter) fullTaken(b leases.Backup, taken catalog.Full, c CatalogState) {
	h.change(func() {
		h.full.Backup, h.taken = b, taken
		h.whole = c == CatalogComplete
		if h.whole {
			h.delta.Error, h.delta.Revision = "", max(h.delta.Revision, b.Revision)
		}
	}, &h.full, &h.delta)
}

// recorded reports how far the recorder is.
func (h *reporter) recorded(ctx context.Context, s delta.Status) {
	problem := s.SaveError
	if problem == nil {
		problem = s.WatchError
	}
	whole := false
	h.change(func() {
		h.savedAt, whole = s.SavedAt, h.whole
		if whole { // else nothing leads to what the recorder saves
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

// readVerification reads what others found out about the backups. What cannot be read stays what it was.
func (h *reporter) readVerification(ctx context.Context) {
	_, v, err := h.leases.Full(ctx)
	if err != nil {
		return // anyone who renews the Lease reports
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if reflect.DeepEqual(h.verified, v) {
		return
	}
	h.verified = v
	select {
	case h.pendingUpdate <- struct{}{}:
	default:
	}
}

// disproved reports whether the backups that begin with the newest full were found to be broken.
func (h *reporter) disproved(newest string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.verified.Verdict == leases.VerdictBroken && newest != "" && h.verified.Full == newest
}

// proven is the full that was last found to be sound; empty for none.
func (h *reporter) isVerified() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.verified.VerifiedFull
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// unopened reports why there is no store.
func (h *reporter) unopened(ctx context.Context, err error) {
	h.trouble = err.Error()
	for c, patch := range map[leases.Component]patcher{
		leases.ComponentFullSnapshot: h.fullPatch, leases.ComponentDeltaSnapshot: h.deltaPatch,
	} {
		p, _ := patch(time.Now())
		if err := h.renew(ctx, c, p); err != nil {
			h.log.DebugContext(ctx, "backups not reported", "component", string(c), "err", err)
		}
	}
}

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
		err := loop.Recover(func() error {
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
