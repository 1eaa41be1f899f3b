package backups

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/guard"
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
			return chain.DeltaKey(s.config.Prefix, s.self.Lineage, from, to, at)
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
		err := guard.Run(func() error { return recorder.Run(running) })
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
	s.chain = ChainUnknown
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
		s.log.WarnContext(ctx, "last delta not saved", "err", err)
		return
	}
	s.log.InfoContext(ctx, "last delta saved", "revision", saved)
}
