package backups

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/internal/loop"
)

// recording is a recorder that is running.
type recording struct {
	*delta.Recorder
	from   int64
	cancel context.CancelFunc

	mu     sync.Mutex
	status delta.Status
	// bytes of the delta backups that the recorder saved.
	bytes int64
}

// record starts the recorder at a revision. The recorder outlives ctx, so that its buffer can be flushed when ctx has
// ended.
func (s *session) record(ctx context.Context, from int64) {
	r := &recording{from: from}
	var before delta.Digest
	if from == s.digestOf+1 {
		before = s.digest
	}
	recorder, err := delta.NewRecorder(delta.Config{
		Conn: s.watch.ActiveConnection(), Store: s.store, Lineage: string(s.self.Lineage), ClusterID: s.self.ClusterID,
		Key: func(from, to int64, at time.Time) string {
			return catalog.DeltaKey(s.config.Prefix, s.self.Lineage, from, to, at)
		},
		From: from, Before: before, Period: time.Duration(s.config.Delta.Period), MaxBytes: int(s.config.Delta.MaxBytes),
		CheckpointEvery: checkpointInterval, Level: levelOf(s.config.Compression),
		Observe: func(status delta.Status) { s.observed(ctx, r, status) },
	})
	if err != nil {
		s.recorderEnded(ctx, r, err)
		return
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.Recorder, r.cancel = recorder, cancel
	s.recorder = r
	s.orders.follow(r)
	s.log.InfoContext(ctx, "recording of delta backups started", "from", from)
	s.group.Go(func() error {
		err := loop.Recover(func() error { return recorder.Run(running) })
		s.ended <- func(ctx context.Context) {
			s.recorder = nil
			s.orders.follow(nil)
			s.recorderEnded(ctx, r, err)
		}
		return nil
	})
}

// checkpointInterval of delta backups. For each checkpoint, etcd reads its complete database, which takes some seconds
// of one core for 8 GiB.
const checkpointInterval = time.Hour

// recorderEnded handles the end of the recorder. Whatever the reason, the store and etcd are read before the recorder
// starts again.
func (s *session) recorderEnded(ctx context.Context, r *recording, err error) {
	if ctx.Err() != nil {
		return
	}
	s.catalogState = CatalogUnknown
	if err == nil {
		return // we ended it
	}
	s.Metrics.failed(kindDelta)
	if r.saved() >= r.from {
		s.deltas.succeeded()
	}
	switch {
	case errors.Is(err, delta.ErrGap), errors.Is(err, delta.ErrFork):
		// The changes might exist, but the watch omitted them once and would omit them again, unless a full backup
		// comes first.
		s.gap = r.saved()
	case errors.Is(err, delta.ErrCompacted), errors.Is(err, delta.ErrAhead):
	default:
		s.deltas.failed(time.Now())
	}
	s.reporter.recorderFailed(ctx, err)
}

// saved returns the last revision that the recorder saved.
func (r *recording) saved() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.status.Saved, r.from-1)
}

// received returns the last revision for which the recorder no longer needs a watch.
func (r *recording) received() int64 {
	saved := r.saved()
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.status.Received, saved)
}

// end ends the recorder, if there is one.
func (r *recording) end() {
	if r != nil {
		r.cancel()
	}
}

// observed receives the status of the recorder, in the recorder's own goroutine.
func (s *session) observed(ctx context.Context, r *recording, status delta.Status) {
	r.mu.Lock()
	before := r.status
	r.status = status
	if status.Object.Key != before.Object.Key {
		r.bytes += status.Object.Size
	}
	r.mu.Unlock()
	if status.Object.Key != before.Object.Key {
		s.Metrics.saved(kindDelta, status.Object.Size, status.Object.Took)
	}
	s.Metrics.follow(status)
	if status.SaveError != nil && before.SaveError == nil {
		s.Metrics.failed(kindDelta)
	}
	s.reporter.recorded(ctx, status)
}

// flush saves the buffered changes when leadership ends. It does not wait for long: the next leader saves the rest.
func (s *session) flush(ctx context.Context) {
	if s.recorder == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.flushFor)
	defer cancel()
	saved, err := s.recorder.Flush(ctx)
	if err != nil {
		s.log.WarnContext(ctx, "last delta backup failed", "err", err)
		return
	}
	s.log.InfoContext(ctx, "last delta backup saved", "revision", saved)
}

// revalidationInterval is how long backups that were saved are assumed to exist. Someone can delete them, or another
// cluster can use the place.
const revalidationInterval = 10 * time.Minute

var errGone = errors.New("saved backups are missing from the store; only a new full backup closes the gap")

// stale says that it is time to check the store while the recorder runs. Without a recorder, the store is checked more
// often.
func (s *session) stale(now time.Time) bool {
	return s.recorder != nil && s.catalogState&(CatalogComplete|unsound) != 0 && !now.Before(s.looked.Add(s.revalidation)) && !s.read.resting(now)
}

// observeAgain checks the store while the recorder continues, and ends the recorder if nothing more may be saved. If
// the store does not respond, the state stays, because new delta backups still continue the saved ones.
func (s *session) observeAgain(ctx context.Context) {
	was, doubt, saved := s.catalogState, s.doubt, s.recorder.saved()
	err := s.review(ctx, saved)
	if ctx.Err() != nil {
		s.catalogState, s.doubt = was, doubt
		return
	}
	if err != nil {
		s.doubt = doubt
		if errors.Is(err, catalog.ErrBootstrap) {
			s.catalogState = CatalogUnknown // the place is another cluster's
			s.recorder.end()
		}
		s.read.failed(time.Now())
		s.Metrics.failed(kindStore)
		s.reporter.failed(ctx, err)
		return
	}
	s.read.succeeded()
	s.looked = time.Now()
	hindrance := hindrances[s.catalogState]
	switch {
	case s.catalogState == CatalogAhead:
		s.recorder.end()
	case s.catalogState == CatalogComplete && s.now-s.recorder.received() > s.backlog:
		s.recorder.end() // it is looked again then, and decided
	case s.catalogState == CatalogComplete:
		s.saved = max(s.saved, s.recorder.saved())
	case was == CatalogComplete:
		hindrance = errGone
	}
	s.reporter.read(ctx, s.newest, s.since, s.saved, s.catalogState, hindrance, s.doubt)
}

// review lists which of the objects saved before still exist, up to a revision. The recorder has what etcd compacted
// meanwhile.
func (s *session) review(ctx context.Context, saved int64) error {
	if _, err := s.revision(ctx, 0); err != nil { // before the listing, as look does
		return err
	}
	h, err := s.list(ctx)
	if err != nil {
		return err
	}
	now, _, err := s.after(ctx)
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		s.catalogState = CatalogAhead
		return nil
	case err != nil:
		return err
	}
	s.now = now
	if s.catalogState == CatalogComplete && s.saved < saved {
		s.catalogState = CatalogBroken
	}
	if s.saved == 0 {
		s.catalogState = CatalogEmpty
	}
	return s.know(h, time.Now())
}
