package snapshot

import (
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/backup/readahead"
)

const (
	// window of the encoder: a larger one costs memory and gains little on etcd's pages of 4 KiB.
	window = 1 << 20
	// step is how much of the database passes between two calls of Progress.
	step = 1 << 20
	// aheadChunk is how much of the stream is handed on at once, and aheadChunks how many of them there are. etcd sends 32 KiB at a time;
	// handed on one by one, each waits for the scheduler more often than for the compression.
	aheadChunk  = 256 << 10
	aheadChunks = 4
)

// compress writes the object: etcd's stream as one frame of zstd, then the trailer, which it completes. It returns nil
// only when etcd's checksum holds.
func compress(w io.Writer, stream *readahead.Reader, t *Trailer, level zstd.EncoderLevel, progress func(int64)) error {
	counted := &countingWriter{w: w}
	// Slower levels than the fastest gain little on such data, and cost more memory too.
	encoder, err := zstd.NewWriter(counted, zstd.WithEncoderLevel(max(level, zstd.SpeedFastest)), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return fmt.Errorf("full snapshot: compress: %w", err)
	}
	check := newChecksum()
	if err := pump(encoder, stream, check, progress); err != nil {
		_ = encoder.Close() // frees it; what it still writes is never seen
		return err
	}
	sum, err := check.verify()
	if err != nil {
		_ = encoder.Close()
		return fmt.Errorf("full snapshot: %w: %w", ErrTorn, err)
	}
	if err := encoder.Close(); err != nil {
		return fmt.Errorf("full snapshot: compress: %w", err)
	}
	t.Size, t.SHA256, t.Stored, t.CRC32C = check.passed, sum, counted.n, counted.crc
	frame, err := t.frame()
	if err != nil {
		return fmt.Errorf("full snapshot: %w", err)
	}
	if _, err := w.Write(frame); err != nil {
		return fmt.Errorf("full snapshot: write trailer: %w", err)
	}
	return nil
}

// pump copies the stream to its end.
func pump(w io.Writer, stream *readahead.Reader, check *checksum, progress func(int64)) error {
	for notified := int64(0); ; {
		chunk, err := stream.Next()
		switch {
		case err != nil:
			return fmt.Errorf("full snapshot: %w after %d bytes: %w", ErrTorn, check.passed, err)
		case chunk == nil:
			return nil
		}
		check.pass(chunk)
		if _, err := w.Write(chunk); err != nil {
			return fmt.Errorf("full snapshot: compress: %w", err)
		}
		if progress != nil && check.passed >= notified+step {
			notified = check.passed
			progress(notified)
		}
	}
}

type countingWriter struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.crc = crc32.Update(c.crc, castagnoli, p[:n])
	return n, err
}
