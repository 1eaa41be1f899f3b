package delta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	// DefaultPeriod is how old an event gets before its delta is closed.
	DefaultPeriod = 10 * time.Second
	// MinPeriod is the shortest one: a store takes some requests a second, not more.
	MinPeriod = time.Second
	// DefaultMaxBytes closes a delta early. With its leases it is still one part of an upload, so one request.
	DefaultMaxBytes = store.PartSize - 256<<10
	// readTimeout of one linearizable read.
	readTimeout = 10 * time.Second
)

// ErrAhead: etcd does not reach what was saved: its history is not the one that was saved.
var ErrAhead = errors.New("etcd does not have the revisions that were saved before")

// Config of a Recorder.
type Config struct {
	// Conn is to the member that is watched, or to several of one cluster.
	Conn  grpc.ClientConnInterface
	Store store.Store
	// Key names a delta; a later time must give another name.
	Key func(from, to int64, at time.Time) string
	// Lineage that the revisions belong to, and ClusterID, of etcd; another cluster's answers end the recorder.
	Lineage   string
	ClusterID uint64
	// From is the first revision to save. Before is the digest of the revision before it, as it was saved; zero: not known.
	From   int64
	Before Digest
	// Period (DefaultPeriod) is how old an event gets before its delta is closed, MaxBytes (DefaultMaxBytes) how large a
	// delta grows before it is. Not more than twice MaxBytes, and a revision, wait in memory: then the watch is not read.
	Period   time.Duration
	MaxBytes int
	// Level of the compression; the fastest for 0.
	Level zstd.EncoderLevel
	// CheckpointEvery is how often a delta gets a Checkpoint, for which etcd reads all of its database; 0: never.
	CheckpointEvery time.Duration
	// Observe is informed of each change, and each Period when there is none; it must not block. May be nil.
	Observe func(Status)
	// Now is the clock, time.Now when nil. It must not differ from the machine's by much: waiting is by the machine's.
	Now func() time.Time
}

// Recorder saves what happens in etcd as deltas. It runs once.
type Recorder struct {
	cfg     Config
	flushes chan flush
	ended   chan struct{}
	once    sync.Once
	// saved is the last revision that is in the store.
	saved atomic.Int64
}

// flush asks for all up to a revision to be saved.
type flush struct {
	revision int64
	done     chan<- int64
}

// NewRecorder checks the configuration.
func NewRecorder(cfg Config) (*Recorder, error) {
	if cfg.Period == 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Status) {}
	}
	cfg.From = max(cfg.From, firstRevision)
	switch {
	case cfg.Conn == nil || cfg.Store == nil || cfg.Key == nil || cfg.Lineage == "":
		return nil, errors.New("a recorder needs a connection, a store, names and a lineage")
	case cfg.Period < MinPeriod:
		return nil, fmt.Errorf("period of deltas is %s, want at least %s", cfg.Period, MinPeriod)
	case cfg.MaxBytes < 0 || cfg.CheckpointEvery < 0:
		return nil, fmt.Errorf("negative limit of a recorder: %d bytes, a checkpoint each %s", cfg.MaxBytes, cfg.CheckpointEvery)
	}
	r := &Recorder{cfg: cfg, flushes: make(chan flush), ended: make(chan struct{})}
	r.saved.Store(cfg.From - 1)
	return r, nil
}

// Run records until ctx ends, and returns nil then; what was not saved by then is not. It ends with ErrCompacted, ErrGap,
// ErrFork or ErrAhead when the deltas cannot be continued, after it saved what it has. What else fails, it tries again.
func (r *Recorder) Run(ctx context.Context) error {
	first := false
	r.once.Do(func() { first = true })
	if !first {
		return errors.New("a recorder runs once")
	}
	defer close(r.ended)
	g, ctx := errgroup.WithContext(ctx)
	l := newRecording(r)
	book := newLeaseBook(r.cfg.Conn, r.cfg.Now)
	l.book = book
	up := &uploader{
		store: r.cfg.Store, key: r.cfg.Key, conn: r.cfg.Conn, leases: book, now: r.cfg.Now, backoff: firstBackoff, every: r.cfg.CheckpointEvery,
	}
	w := newWatcher(r.cfg.Conn, r.cfg.ClusterID, r.cfg.Now, r.cfg.From, l.in)
	g.Go(loop.Recovered(func() error { return book.run(ctx) }))
	g.Go(loop.Recovered(func() error { return up.run(ctx, l.batches, l.outcomes) }))
	g.Go(loop.Recovered(func() error { return r.beat(ctx, l.beats, l.in) }))
	g.Go(loop.Recovered(func() error {
		if err := r.awaitFirst(ctx, l.in); err != nil {
			return nil //nolint:nilerr // ctx ended, or the loop was reported
		}
		return w.run(ctx)
	}))
	g.Go(loop.Recovered(func() error { return l.run(ctx) }))
	return g.Wait()
}

// Flush saves what etcd had acknowledged when it was called without waiting for the period to end, and returns the last
// revision that is saved.
func (r *Recorder) Flush(ctx context.Context) (int64, error) {
	revision, err := r.revision(ctx)
	if err != nil {
		return 0, err
	}
	done := make(chan int64, 1)
	select {
	case r.flushes <- flush{revision, done}:
	case <-ctx.Done():
		return 0, fmt.Errorf("save up to revision %d: %w", revision, ctx.Err())
	case <-r.ended:
		return 0, fmt.Errorf("save up to revision %d: %w", revision, ErrEnded)
	}
	select {
	case saved := <-done:
		return saved, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("save up to revision %d: %w", revision, ctx.Err())
	case <-r.ended:
		return 0, fmt.Errorf("save up to revision %d: %w", revision, ErrEnded)
	}
}

// revision is the one of a linearizable read: what was acknowledged before is at most that. What was saved before was
// acknowledged, so less than that is ErrAhead.
func (r *Recorder) revision(ctx context.Context) (int64, error) {
	saved := r.saved.Load()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	response, err := etcdserverpb.NewKVClient(r.cfg.Conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte{0}, CountOnly: true})
	if err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	if got := response.GetHeader().GetClusterId(); r.cfg.ClusterID != 0 && got != r.cfg.ClusterID {
		return 0, fmt.Errorf("%w: %x, want %x", errOtherCluster, got, r.cfg.ClusterID)
	}
	revision := response.GetHeader().GetRevision()
	if revision < saved {
		return 0, fmt.Errorf("%w: saved up to %d, and etcd is at %d", ErrAhead, saved, revision)
	}
	return revision, nil
}

// awaitFirst makes sure that the first revision can come: a watch from the future waits without a word, and drops what
// comes until then.
func (r *Recorder) awaitFirst(ctx context.Context, in chan<- delivery) error {
	wait := newBackoff()
	for {
		_, err := r.revision(ctx)
		if err == nil {
			return nil
		}
		d := delivery{err: err, fatal: errors.Is(err, errOtherCluster) || errors.Is(err, ErrAhead)}
		select {
		case in <- d:
		case <-ctx.Done():
			return ctx.Err()
		}
		if d.fatal {
			return d.err
		}
		if !pause(ctx, wait.Next()) {
			return ctx.Err()
		}
	}
}

// beat reads etcd's revision each period, so that an idle cluster is known to be idle. One whose data went back to before
// what was saved looks idle too: its watch waits for a revision of the future.
func (r *Recorder) beat(ctx context.Context, out chan<- beat, in chan<- delivery) error {
	ticker := time.NewTicker(r.cfg.Period)
	defer ticker.Stop()
	for {
		at := r.cfg.Now()
		switch revision, err := r.revision(ctx); {
		case err == nil:
			select {
			case out <- beat{at, r.cfg.Now(), revision}:
			case <-ctx.Done():
				return nil
			}
		case errors.Is(err, ErrAhead):
			select {
			case in <- delivery{err: err, fatal: true}:
			case <-ctx.Done():
			}
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Status is what a Recorder knows of itself.
type Status struct {
	// Saved is the last revision that is in the store, without a gap from the first one on; at the beginning the one
	// before the first.
	Saved int64
	// SavedAt: all that etcd had acknowledged by then is in the store. An idle cluster moves it too. Zero: not known yet.
	SavedAt time.Time
	// Oldest is when the watch delivered the oldest event that is not in the store; zero when there is none. The data at
	// risk are at least as old as this says, and at most as old as SavedAt says.
	Oldest time.Time
	// Received is the last revision that the watch delivered.
	Received int64
	// Buffered is what is in memory and not in the store yet, in bytes.
	Buffered int
	// Object is what was saved last; its Key is empty when there was nothing.
	Object Saved
	// SaveError and WatchError are why saving and watching do not go on; nil when they do.
	SaveError, WatchError error
}

// Saved is a delta in the store.
type Saved struct {
	Key    string
	Header Header
	// Size in bytes, and the sha256 of the object in hexadecimal.
	Size   int64
	SHA256 string
	// Took is how long the store needed, with all attempts.
	Took time.Duration
}

// beat is a linearizable read. Nothing above revision had been acknowledged when it was asked, and all up to revision had been when it was
// answered.
type beat struct {
	at       time.Time
	answered time.Time
	revision int64
}

// maxBeats is how many beats wait for what they saw to be saved. When more do, the latest is replaced, and SavedAt
// lags for a while.
const maxBeats = 64

// beats are in order.
type beats []beat

func (b beats) add(next beat) beats {
	if n := len(b); n > 0 && (b[n-1].revision >= next.revision || n == maxBeats) {
		b[n-1] = next
		return b
	}
	return append(b, next)
}

// saved takes away those that saw nothing above the revision, and returns the time of the last of them.
func (b beats) saved(revision int64) (rest beats, at time.Time) {
	for len(b) > 0 && b[0].revision <= revision {
		at, b = b[0].at, b[1:]
	}
	return b, at
}

// maxBounds is how many bounds wait for the revisions that they are of. Where nothing is read of the watch for longer, every second one is
// dropped: each of those that stay is true.
const maxBounds = 256

// bounds are beats in order that say when revisions were there at the latest, whenever the watch delivers them.
type bounds []beat

func (b bounds) add(next beat) bounds {
	if n := len(b); n > 0 && b[n-1].revision >= next.revision {
		return b // the earlier answer says more
	}
	if len(b) == maxBounds {
		for i := range maxBounds / 2 {
			b[i] = b[2*i+1]
		}
		b = b[:maxBounds/2]
	}
	return append(b, next)
}

// of is the time of a revision that was delivered at a time, and what is left for the revisions after it.
func (b bounds) of(revision int64, delivered time.Time) (time.Time, bounds) {
	for len(b) > 0 && b[0].revision < revision {
		b = b[1:]
	}
	if len(b) > 0 && b[0].answered.Before(delivered) {
		return b[0].answered, b
	}
	return delivered, b
}
