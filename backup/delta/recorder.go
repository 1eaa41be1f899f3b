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
	// DefaultPeriod is the age of the oldest event at which its delta backup is closed.
	DefaultPeriod = 10 * time.Second
	// MinPeriod is the shortest period. A store handles only some requests per second.
	MinPeriod = time.Second
	// DefaultMaxBytes is the size at which a delta backup is closed early. With its leases, it still fits into one
	// part of an upload and needs one request.
	DefaultMaxBytes = store.PartSize - 256<<10
	// readTimeout limits one linearizable read.
	readTimeout = 10 * time.Second
)

// ErrAhead: etcd has not reached the revisions that were saved, so its history is not the saved one.
var ErrAhead = errors.New("etcd has not reached the revisions that were saved")

// Config of a Recorder.
type Config struct {
	// Conn connects to the watched member, or to several members of one cluster.
	Conn  grpc.ClientConnInterface
	Store store.Store
	// Key returns the name of a delta backup. A later time must give another name.
	Key func(from, to int64, at time.Time) string
	// Lineage that the revisions belong to, and ClusterID, of etcd; another cluster's answers end the recorder.
	Lineage   string
	ClusterID uint64
	// From is the first revision to save. Before is the saved digest of the revision before it, or zero if unknown.
	From   int64
	Before Digest
	// Period (DefaultPeriod) is the age of the oldest event at which a delta backup is closed, and MaxBytes
	// (DefaultMaxBytes) the size at which it is. At most twice MaxBytes and one revision wait in memory. Above that,
	// the recorder does not read from the watch.
	Period   time.Duration
	MaxBytes int
	// Level of the compression; 0 means the fastest.
	Level zstd.EncoderLevel
	// CheckpointEvery is the interval of Checkpoints; 0 means none. For each, etcd reads its complete database.
	CheckpointEvery time.Duration
	// Observe receives each change of the status, and the status once per Period if there is no change. It must not
	// block. It may be nil.
	Observe func(Status)
	// Now is the clock; nil means time.Now. It must be close to the clock of the machine, which timers use.
	Now func() time.Time
}

// Recorder saves the changes of etcd as delta backups. It runs once.
type Recorder struct {
	cfg     Config
	flushes chan flush
	ended   chan struct{}
	once    sync.Once
	// saved is the last revision in the store.
	saved atomic.Int64
}

// flush is a request to save everything up to a revision.
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
		return nil, errors.New("a recorder needs Conn, Store, Key and Lineage")
	case cfg.Period < MinPeriod:
		return nil, fmt.Errorf("the period of delta backups is %s, want at least %s", cfg.Period, MinPeriod)
	case cfg.MaxBytes < 0 || cfg.CheckpointEvery < 0:
		return nil, fmt.Errorf("MaxBytes is %d and CheckpointEvery is %s: neither may be negative", cfg.MaxBytes, cfg.CheckpointEvery)
	}
	r := &Recorder{cfg: cfg, flushes: make(chan flush), ended: make(chan struct{})}
	r.saved.Store(cfg.From - 1)
	return r, nil
}

// Run records until ctx ends and then returns nil, without saving what is pending. It returns ErrCompacted, ErrGap,
// ErrFork or ErrAhead if the delta backups cannot continue, after saving what it has. It retries after any other
// error.
func (r *Recorder) Run(ctx context.Context) error {
	first := false
	r.once.Do(func() { first = true })
	if !first {
		return errors.New("a recorder can run only once")
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

// Flush saves what etcd had acknowledged at the time of the call, without waiting for the period to end. It returns
// the last revision that is saved.
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

// revision returns the revision of a linearizable read, which includes everything acknowledged before. What was saved
// had been acknowledged, so a lower revision is ErrAhead.
func (r *Recorder) revision(ctx context.Context) (int64, error) {
	saved := r.saved.Load()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	response, err := etcdserverpb.NewKVClient(r.cfg.Conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte{0}, CountOnly: true})
	if err != nil {
		return 0, fmt.Errorf("read the revision of etcd: %w", err)
	}
	if got := response.GetHeader().GetClusterId(); r.cfg.ClusterID != 0 && got != r.cfg.ClusterID {
		return 0, fmt.Errorf("%w: %x, want %x", errOtherCluster, got, r.cfg.ClusterID)
	}
	revision := response.GetHeader().GetRevision()
	if revision < saved {
		return 0, fmt.Errorf("%w: saved up to revision %d, but etcd is at %d", ErrAhead, saved, revision)
	}
	return revision, nil
}

// awaitFirst waits until etcd has the revision before the first one. A watch that starts in the future waits silently
// and drops what comes before.
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

// beat reads the revision of etcd once per period to confirm that an idle cluster is idle. A cluster whose data went
// back to before the saved revision looks idle too, because its watch waits for a future revision.
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

// Status is the state of a Recorder.
type Status struct {
	// Saved is the last revision that is in the store without a gap from the first one. Before the first delta backup,
	// it is the revision before the first.
	Saved int64
	// SavedAt is a time: the store has everything that etcd had acknowledged by then. It also advances in an idle
	// cluster. It is zero if not yet known.
	SavedAt time.Time
	// Oldest is when the watch delivered the oldest event that is not in the store, or zero if there is none. The age
	// of unsaved data is between Oldest and SavedAt.
	Oldest time.Time
	// Received is the last revision that the watch delivered.
	Received int64
	// Buffered is the size of what is in memory and not yet in the store, in bytes.
	Buffered int
	// Object is the last saved delta backup. Its Key is empty if there is none.
	Object Saved
	// SaveError and WatchError are why saving and watching do not continue; nil if they do.
	SaveError, WatchError error
}

// Saved is a delta backup in the store.
type Saved struct {
	Key    string
	Header Header
	// Size in bytes, and the sha256 of the object in hexadecimal.
	Size   int64
	SHA256 string
	// Took is the duration of the upload, with all attempts.
	Took time.Duration
}

// beat is the result of a linearizable read. Nothing above revision was acknowledged when the read was sent, and
// everything up to revision was when the response came.
type beat struct {
	at       time.Time
	answered time.Time
	revision int64
}

// maxBeats limits the beats that wait until their revision is saved. Above that, the latest is replaced, and SavedAt
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

// saved removes the beats with no revision above the given one, and returns the time of the last of them.
func (b beats) saved(revision int64) (rest beats, at time.Time) {
	for len(b) > 0 && b[0].revision <= revision {
		at, b = b[0].at, b[1:]
	}
	return b, at
}

// maxBounds limits the bounds that wait for their revisions. If nothing is read from the watch for longer, every
// second one is dropped. Each remaining one stays true.
const maxBounds = 256

// bounds are beats in order. Each is an upper bound of when its revision was written, however late the watch delivers
// it.
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

// of returns the time of a revision that was delivered at a time, and the bounds for the revisions after it.
func (b bounds) of(revision int64, delivered time.Time) (time.Time, bounds) {
	for len(b) > 0 && b[0].revision < revision {
		b = b[1:]
	}
	if len(b) > 0 && b[0].answered.Before(delivered) {
		return b[0].answered, b
	}
	return delivered, b
}
