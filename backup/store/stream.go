package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/loop"
)

// streamPart is how many bytes one connection of a Stream fetches at a time. At 10 MB/s that takes ten times as long
// as a round trip to a store that is 40 ms away. The agent of a member has memory for eight parts.
const streamPart = 4 << 20

// Distant is a store that is faster over several connections than over one.
type Distant interface {
	// Connections returns how many connections to use concurrently.
	Connections() int
}

// Connections returns how many connections read an object of s concurrently: 1 if the store is not Distant.
func Connections(s Store) int {
	if d, ok := s.(Distant); ok {
		return max(d.Connections(), 1)
	}
	return 1
}

// Versioned is implemented by readers of Get that can report the version of their object. An empty version means
// unknown.
type Versioned interface{ Version() string }

// Stream reads an object completely, using its listed size, over several concurrent connections if the store is
// Distant. It holds as many parts of 4 MiB in memory. Get resumes broken connections, part by part. If a part is of
// another version than the first one, Read returns ErrChanged. Stream does not verify a checksum that the store has of
// the complete object: use it for content with its own checksum.
func Stream(ctx context.Context, s Store, key string, size int64) (io.ReadCloser, error) {
	n := int64(Connections(s))
	n = min(n, (size+streamPart-1)/streamPart)
	if n < 2 {
		return s.Get(ctx, key, 0, -1)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &stream{
		store: s, key: key, size: size, ctx: ctx, cancel: cancel,
		parts: make(chan *part, n), free: make(chan []byte, n),
	}
	for range n {
		r.free <- make([]byte, 0, streamPart+1)
	}
	r.running.Go(func() error { r.begin(); return nil })
	return r, nil
}

// stream delivers parts in their order. It has as many parts as buffers: each is being fetched, waiting, or being
// read.
type stream struct {
	store  Store
	key    string
	size   int64
	ctx    context.Context //nolint:containedctx // a Read has none, and must not outlast its Stream's
	cancel context.CancelFunc

	running errgroup.Group
	parts   chan *part
	free    chan []byte

	current *part
	rest    []byte
	version string
	err     error
}

type part struct {
	offset, length int64
	ready          chan struct{} // closed when what is below is known
	content        []byte
	version        string
	err            error
}

// begin starts a part whenever a buffer is free.
func (s *stream) begin() {
	defer close(s.parts)
	for offset := int64(0); offset < s.size; offset += streamPart {
		var buffer []byte
		select {
		case buffer = <-s.free:
		case <-s.ctx.Done():
			return
		}
		p := &part{offset: offset, length: min(streamPart, s.size-offset), ready: make(chan struct{}), content: buffer}
		s.parts <- p // there is room: there are as many places as buffers
		s.running.Go(func() error {
			defer close(p.ready)
			p.err = loop.Recover(func() error { return s.fetch(p) })
			return nil // a reader that gets there returns the error
		})
	}
}

// fetch fetches a part. For the last part, it requests one byte more than was listed, to detect an object that grew
// since.
func (s *stream) fetch(p *part) error {
	length := p.length
	if p.offset+length == s.size {
		length++
	}
	r, err := s.store.Get(s.ctx, s.key, p.offset, length)
	if err != nil {
		return err
	}
	defer r.Close() // all was read, or an error is on its way
	if v, ok := r.(Versioned); ok {
		p.version = v.Version()
	}
	n, err := io.ReadFull(r, p.content[:length])
	p.content = p.content[:n]
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // what a broken connection says may wrap them
		return nil // the object ends there
	}
	return err
}

func (s *stream) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(s.rest) == 0 {
		if s.err == nil {
			s.err = s.next()
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next takes the next part. A part that is shorter than expected is the last one, whatever size was listed.
func (s *stream) next() error {
	if p := s.current; p != nil {
		if int64(len(p.content)) < p.length {
			return io.EOF
		}
		s.current = nil
		s.free <- p.content[:0]
	}
	p, ok := <-s.parts
	if !ok {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		return io.EOF
	}
	select {
	case <-p.ready:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	if p.err != nil {
		return p.err
	}
	if s.version == "" {
		s.version = p.version
	}
	if p.version != "" && p.version != s.version {
		return fmt.Errorf("get %s: %w at byte %d; read it again", s.key, ErrChanged, p.offset)
	}
	s.current, s.rest = p, p.content
	return nil
}

// Close ends all fetches.
func (s *stream) Close() error {
	s.cancel()
	return s.running.Wait()
}

// MaxWait is how long a listing may deliver nothing: a connection that stalls is closed after a minute, and tried
// again. The total duration has no limit: one delta backup per second, kept for a week, is 600 requests of a thousand
// objects.
const MaxWait = 2 * time.Minute

// progressKey is the context key of the function that receives progress.
type progressKey struct{}

// OnProgress returns a context under which a store calls moved for each progress of a listing: for each page of a
// bucket, for each file of a directory. A store that wraps another one passes the context on and need not know about
// it.
func OnProgress(ctx context.Context, moved func()) context.Context {
	outer, _ := ctx.Value(progressKey{}).(func())
	return context.WithValue(ctx, progressKey{}, func() {
		moved()
		if outer != nil {
			outer()
		}
	})
}

// Progressed reports progress under ctx to the function of OnProgress.
func Progressed(ctx context.Context) {
	if moved, ok := ctx.Value(progressKey{}).(func()); ok {
		moved()
	}
}

// Patient returns a context for listings, which ends if there is no progress for maxWait. A listing that progresses is
// never cancelled, however many objects there are: with a fixed timeout, backups would stop permanently at some number
// of objects. Cancel the context as any other.
func Patient(ctx context.Context, maxWait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(maxWait, func() { cancel(stalledError{maxWait}) })
	return OnProgress(ctx, func() { timer.Reset(maxWait) }), func() {
		timer.Stop()
		cancel(nil)
	}
}

// stalledError ends a Patient context.
type stalledError struct{ maxWait time.Duration }

func (e stalledError) Error() string {
	return fmt.Sprintf("the store sent no data for %s; check that it responds, and the network to it", e.maxWait)
}

// Because adds to err what ended the Patient context, if that is the cause. Some clients of stores only return that
// they were cancelled.
func Because(ctx context.Context, err error) error {
	stalled, is := errors.AsType[stalledError](context.Cause(ctx))
	if _, reported := errors.AsType[stalledError](err); err == nil || !is || reported {
		return err
	}
	return fmt.Errorf("%w: %w", err, stalled)
}
