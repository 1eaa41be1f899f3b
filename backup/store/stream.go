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

// streamPart is what one connection of a Stream fetches at once, in bytes. At 10 MB/s it takes ten times as long as the answer of
// a store that is 40 ms away; and eight of them are what a member's agent can spare.
const streamPart = 4 << 20

// Distant is a store that sends more over several connections than over one.
type Distant interface {
	// Connections is over how many at once.
	Connections() int
}

// Connections is over how many connections at once an object of s is read; 1 where the store is not Distant.
func Connections(s Store) int {
	if d, ok := s.(Distant); ok {
		return max(d.Connections(), 1)
	}
	return 1
}

// Versioned is what Get of a store returns that can report which version of an object it reads; empty: it is not reported.
type Versioned interface{ Version() string }

// Stream reads an object that was listed with that size from its first byte to its last, over several connections at once
// where the store is Distant. It holds so many parts of 4 MiB in memory. What broke is taken up by Get, part by part. A part of
// another version than the first fails the Read that comes to it with ErrChanged; a checksum that the store has of the whole object
// is not verified: this is for what has its own.
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

// stream hands out parts in their order. It has as many as it has buffers: each is fetched, waits for its turn, or is read.
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

// begin a part whenever there is a buffer.
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
			return nil // anyone who comes to it hears of it
		})
	}
}

// fetch a part. Of the last one a byte more than was listed is asked for: what grew since is not whole in the listed length.
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

// next takes the next part. One that is shorter than it should be is the last, whatever was listed.
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

// Close ends what is still fetched.
func (s *stream) Close() error {
	s.cancel()
	return s.running.Wait()
}

// MaxWait is for how long a listing may bring nothing: a connection that stalls is given up after a minute, and tried again. How
// long it takes in all is not bounded: a delta per second, kept for a week, is 600 requests of a thousand objects.
const MaxWait = 2 * time.Minute

// progressKey of a context has the func that is informed of progress under it.
type progressKey struct{}

// OnProgress returns a context under which a store calls moved whenever it got on with a listing: for each page of a bucket, for each
// file of a directory. What decorates a store hands the context on, and need not know of it.
func OnProgress(ctx context.Context, moved func()) context.Context {
	outer, _ := ctx.Value(progressKey{}).(func())
	return context.WithValue(ctx, progressKey{}, func() {
		moved()
		if outer != nil {
			outer()
		}
	})
}

// Progressed reports who wants to know of it that something came under ctx.
func Progressed(ctx context.Context) {
	if moved, ok := ctx.Value(progressKey{}).(func()); ok {
		moved()
	}
}

// Patient returns a context for listings, which ends when under it no progress was made for so long. However many objects there
// are, a listing that gets on is not given up: where it ended by the clock, backups would end with it, and for good. The context
// must be canceled, as any other.
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
	return fmt.Sprintf("nothing came from the store for %s; check that it answers, and what is on the way to it", e.maxWait)
}

// Because returns err with what ended the context of a Patient, if that is why it came: some clients of stores say only that they
// were canceled.
func Because(ctx context.Context, err error) error {
	stalled, is := errors.AsType[stalledError](context.Cause(ctx))
	if _, notified := errors.AsType[stalledError](err); err == nil || !is || notified {
		return err
	}
	return fmt.Errorf("%w: %w", err, stalled)
}
