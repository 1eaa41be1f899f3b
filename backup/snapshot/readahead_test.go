package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/etcd-druid/druid/backup/snapshot"
)

const chunk, chunks = 100, 3

// read returns all that a Reader delivers of a stream.
func read(ctx context.Context, stream io.Reader) (all []byte, err error) {
	r := snapshot.NewReadAhead(chunk, chunks)
	go r.Run(ctx, stream)
	for {
		next, err := r.Next()
		if next == nil {
			return all, err
		}
		all = append(all, next...)
	}
}

func TestAStreamComesWholeHoweverItIsCut(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, chunk * chunks, chunk*chunks + 1, 10*chunk + 7} {
		want := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(want)
		for name, cut := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader, "with its end": iotest.DataErrReader,
		} {
			if got, err := read(t.Context(), cut(bytes.NewReader(want))); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %s: %d bytes came, %v", size, name, len(got), err)
			}
		}
	}
}

func TestAStreamThatBreaksIsNoStreamThatEnded(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{io.ErrUnexpectedEOF, fmt.Errorf("reset: %w", io.EOF), errors.New("damaged")} {
		for _, before := range []int{0, 1, chunk, 5*chunk + 1} {
			got, err := read(t.Context(), io.MultiReader(bytes.NewReader(make([]byte, before)), iotest.ErrReader(broken)))
			if !errors.Is(err, broken) || len(got) != before {
				t.Errorf("after %d bytes and %q: %d bytes came, %v", before, broken, len(got), err)
			}
		}
	}
}

// endless is a stream without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestAContextEndsTheStream(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := snapshot.NewReadAhead(chunk, chunks)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx, endless{})
	}()
	if next, err := r.Next(); len(next) != chunk || err != nil {
		t.Fatalf("%d bytes came, %v", len(next), err)
	}
	cancel(stopped)
	<-ended // what is lent does not come back: all else is full
	for {
		next, err := r.Next()
		if next == nil {
			if !errors.Is(err, stopped) {
				t.Errorf("it ends with %v", err)
			}
			return
		}
	}
}

func TestAPanicIsNoEnd(t *testing.T) {
	t.Parallel()
	got, err := read(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "panic") || len(got) != 0 {
		t.Errorf("%d bytes came, and the panic is reported as %v", len(got), err)
	}
}

// TestClosedStreamIsNotTheCause: the error of a stream that was closed is not reported as the cause.
func TestClosedStreamIsNotTheCause(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	stream, _ := io.Pipe()
	context.AfterFunc(ctx, func() { _ = stream.Close() })
	time.AfterFunc(time.Millisecond, func() { cancel(stopped) })
	if _, err := read(ctx, stream); !errors.Is(err, stopped) {
		t.Errorf("it ends with %v", err)
	}
}
