package snapshot

import (
	"context"
	"io"
)

// aheadChunk is how much of a stream is handed on at once, and aheadChunks how many of them there are. etcd sends 32 KiB at a time; handed
// on one by one, each waits for the scheduler more often than for the compression.
const (
	aheadChunk  = 256 << 10
	aheadChunks = 4
)

// ahead reads a stream while what came of it before is compressed.
type ahead struct {
	full, free chan []byte
	// lent is what next returned last.
	lent []byte
	// end is why the stream was not read to its end, once full is closed.
	end error
}

func newAhead() *ahead {
	a := &ahead{full: make(chan []byte, aheadChunks), free: make(chan []byte, aheadChunks), end: io.ErrUnexpectedEOF}
	for range aheadChunks {
		a.free <- make([]byte, aheadChunk)
	}
	return a
}

// run reads the stream to its end, or until ctx ends. Whoever calls next hears of an error.
func (a *ahead) run(ctx context.Context, stream io.Reader) {
	defer close(a.full)
	for {
		var buffer []byte
		select {
		case buffer = <-a.free:
		case <-ctx.Done():
			a.end = context.Cause(ctx)
			return
		}
		n, ended, err := readFull(buffer, stream)
		a.full <- buffer[:n] // there is room for all
		if ended {
			a.end = err
			return
		}
	}
}

// readFull reads until the buffer is full or the stream has ended, well or with an error.
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

// next returns what comes next of the stream, until it is called again. At the end that is nothing, and no error.
func (a *ahead) next() ([]byte, error) {
	if a.lent != nil {
		a.free <- a.lent[:cap(a.lent)]
	}
	var more bool
	if a.lent, more = <-a.full; !more {
		return nil, a.end
	}
	return a.lent, nil
}
