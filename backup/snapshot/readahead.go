package snapshot

import (
	"context"
	"io"

	"github.com/etcd-druid/druid/internal/loop"
)

// ReadAhead reads a stream ahead of its use, within a given amount of memory, and delivers it in chunks. One goroutine
// calls Run, another one Next. It never takes a broken stream for one that ended.
type ReadAhead struct {
	full, free chan []byte
	// lent is what Next returned last.
	lent []byte
	// end is why the stream was not read to its end, once full is closed.
	end error
}

// NewReadAhead returns a ReadAhead with as many chunks of as many bytes.
func NewReadAhead(chunk, chunks int) *ReadAhead {
	r := &ReadAhead{full: make(chan []byte, chunks), free: make(chan []byte, chunks)}
	for range chunks {
		r.free <- make([]byte, chunk)
	}
	return r
}

// Run reads the stream to its end, or until the stream fails or panics, or ctx ends. Next reports the cause. Run
// cannot interrupt a read that blocks.
func (r *ReadAhead) Run(ctx context.Context, stream io.Reader) {
	defer close(r.full)
	r.end = loop.Recover(func() error { return r.run(ctx, stream) })
}

func (r *ReadAhead) run(ctx context.Context, stream io.Reader) error {
	for {
		var buffer []byte
		select {
		case buffer = <-r.free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n, ended, err := readFull(buffer, stream)
		r.full <- buffer[:n] // there is room for all
		switch {
		case err != nil && ctx.Err() != nil: // the error of a stream that was closed for it is not the cause
			return context.Cause(ctx)
		case ended:
			return err
		}
	}
}

// readFull reads until the buffer is full or the stream has ended, with or without an error.
func readFull(buffer []byte, stream io.Reader) (n int, ended bool, err error) {
	for n < len(buffer) {
		m, err := stream.Read(buffer[n:])
		n += m
		if err == io.EOF { // bare: what broke a stream may wrap the same error
			return n, true, nil
		}
		if err != nil {
			return n, true, err
		}
	}
	return n, false, nil
}

// Next returns the next chunk, which is valid until the next call. At the end it returns nothing and no error.
func (r *ReadAhead) Next() ([]byte, error) {
	if r.lent != nil {
		r.free <- r.lent[:cap(r.lent)]
	}
	var more bool
	if r.lent, more = <-r.full; !more {
		return nil, r.end
	}
	return r.lent, nil
}
