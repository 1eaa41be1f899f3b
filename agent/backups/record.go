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

// recording is a recorder at work.
type recording struct {
	*delta.Recorder
	from   int64
	cancel context.CancelFunc

	mu     sync.Mutex
	status delta.Status
	// bytes of the deltas that it saved.
	bytes int64
}

// record starts the recorder at a revision. It outlives ctx, so that what it has can be flushed when ctx has ended.
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
	s.log.InfoContext(ctx, "deltas began", "from", from)
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

// checkpointInterval of deltas: for each etcd reads its whole database, some seconds of one core for 8 GiB.
const checkpointInterval = time.Hour

// recorderEnded: whatever the reason, store and etcd are looked at before it is begun again.
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
		// What follows may be there, but was left out once. Unless a full comes before it, it would be left out again.
		s.gap = r.saved()
	case errors.Is(err, delta.ErrCompacted), errors.Is(err, delta.ErrAhead):
	default:
		s.deltas.failed(time.Now())
	}
	s.inform.recorderFailed(ctx, err)
}

// saved is the last revision that it saved.
func (r *recording) saved() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.status.Saved, r.from-1)
}

// received is the last revision of which it needs no watch any more.
func (r *recording) received() int64 {
	saved := r.saved()
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.status.Received, saved)
}

// end is the end of the recorder, where there is one.
func (r *recording) end() {
	if r != nil {
		r.cancel()
	}
}

// observed is informed of all that the recorder does, by its own goroutine.
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
	s.inform.recorded(ctx, status)
}

// flush saves what is at hand when leadership ends. No one waits for long: what is not saved the next leader saves.
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
	s.log.InfoContext(ctx, "last delta saved", "revision", saved)
}

// relookInterval is how long what was saved is believed to be there: someone may delete it, or another cluster come into
// its place.
const revalidationInterval = 10 * time.Minute

var errGone = errors.New("backups that were saved are gone from the store: only a new full closes the gap")

// stale says that it is time to look next to the recorder. Without one the store is looked at more often.
func (s *session) stale(now time.Time) bool {
	return s.recorder != nil && s.catalogState&(CatalogComplete|unsound) != 0 && !now.Before(s.looked.Add(s.revalidation)) && !s.read.resting(now)
}

// observeAgain looks while the recorder goes on, and ends it where nothing more may be saved. A store that does not answer
// leaves the chain as it was: what goes on being saved still leads on from it.
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
		s.inform.failed(ctx, err)
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
	s.inform.read(ctx, s.newest, s.saved, s.catalogState, hindrance, s.doubt)
}

// review lists what is there of what was saved before, up to a revision. What etcd compacted meanwhile the recorder has.
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
