package snapshot

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

// anyKey is read only for the revision of the response. The key need not exist.
const anyKey = "\x00"

// Config describes the member from which the full backup is taken, and the target.
type Config struct {
	// Client of exactly one member.
	Client *clientv3.Client
	Store  store.Store
	// Lineage of the member's history, in the trailer's words.
	Lineage string
	// Key returns the name of the object for a revision that is certainly in it, and the time at which its content was
	// fixed.
	Key func(revision int64, at time.Time) string
	// Level of the compression; 0 means the fastest.
	Level zstd.EncoderLevel
	// Progress receives the number of bytes of the database that have passed, about once per MiB. It may be nil and
	// must not block.
	Progress func(bytes int64)
}

// Result is a full backup that is completely in the store.
type Result struct {
	Trailer
	// Key of the object, and its size in bytes.
	Key        string
	ObjectSize int64
}

// Take streams the database of the member into the store, in one pass. Nothing appears in the store if the stream or
// the upload fails, if ctx ends, or if the checksum of etcd does not match (ErrTorn).
func Take(ctx context.Context, c Config) (Result, error) {
	// The stream always ends with this call, because etcd holds a read transaction open for it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	trailer, stream, err := open(ctx, c)
	if err != nil {
		return Result{}, err
	}
	return upload(ctx, c.Store, c.Key(trailer.Revision, trailer.Taken), trailer, stream, passage{c.Level, c.Progress})
}

// passage has the compression level and the progress function of a stream.
type passage struct {
	level    zstd.EncoderLevel
	progress func(bytes int64)
}

// upload puts a stream of etcd into the store, completely or not at all, and closes it.
func upload(ctx context.Context, s store.Store, key string, trailer Trailer, stream io.ReadCloser, c passage) (Result, error) {
	result := Result{Key: key}
	g, ctx := errgroup.WithContext(ctx)
	ahead := NewReadAhead(aheadChunk, aheadChunks)
	reader, writer := io.Pipe()
	// Whatever ends one of them becomes the cause and ends the others. The object is made at the end of file of the
	// reader, so the reader must never see an end of file for an incomplete stream.
	context.AfterFunc(ctx, func() {
		_ = stream.Close()
		_ = writer.CloseWithError(context.Cause(ctx))
	})
	g.Go(func() error {
		ahead.Run(ctx, stream)
		return nil // compress hears of how it ends
	})
	g.Go(loop.Recovered(func() error {
		if err := compress(writer, ahead, &trailer, c.level, c.progress); err != nil {
			return err
		}
		return writer.Close()
	}))
	g.Go(loop.Recovered(func() error {
		o, err := s.Put(ctx, result.Key, reader, store.PutOptions{IfAbsent: true})
		if err != nil {
			return fmt.Errorf("full snapshot: %w", err)
		}
		result.ObjectSize = o.Size
		// The writer must not wait for a reader that has ended.
		_ = reader.CloseWithError(fmt.Errorf("full snapshot: the store reported %s as stored before it was completely read: %w", result.Key, io.ErrClosedPipe))
		return nil
	}))
	if err := g.Wait(); err != nil {
		if cause := context.Cause(ctx); !errors.Is(err, cause) { // otherwise it is the error of the closed pipe
			err = fmt.Errorf("full snapshot: %w: %w", cause, err)
		}
		return Result{}, err
	}
	result.Trailer = trailer
	return result, nil
}

// open starts the stream. The order of the calls makes the bounds valid: what a quorum agreed to before the stream
// begins is in it, and what the member reached after the first message may be missing.
func open(ctx context.Context, c Config) (Trailer, io.ReadCloser, error) {
	endpoints := c.Client.Endpoints()
	if len(endpoints) != 1 {
		return Trailer{}, nil, fmt.Errorf("%w, not %d: %v", ErrEndpoints, len(endpoints), endpoints)
	}
	t := Trailer{Version: Version, Lineage: c.Lineage, Started: time.Now().UTC()}
	before, err := c.Client.Get(ctx, anyKey, clientv3.WithCountOnly())
	if err != nil {
		return t, nil, fmt.Errorf("full snapshot: read the revision of the quorum through %s: %w", endpoints[0], err)
	}
	status, err := c.Client.Status(ctx, endpoints[0])
	if err != nil {
		return t, nil, fmt.Errorf("full snapshot: status of %s: %w", endpoints[0], err)
	}
	stream, err := c.Client.SnapshotWithVersion(ctx)
	if err != nil {
		return t, nil, fmt.Errorf("full snapshot: stream of %s: %w", endpoints[0], err)
	}
	t.Taken = time.Now().UTC()
	after, err := c.Client.Get(ctx, anyKey, clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		_ = stream.Snapshot.Close()
		return t, nil, fmt.Errorf("full snapshot: read the revision of %s: %w", endpoints[0], err)
	}
	first, second, third := before.Header, status.Header, after.Header
	if first.MemberId != second.MemberId || first.MemberId != third.MemberId || first.ClusterId != third.ClusterId {
		_ = stream.Snapshot.Close()
		return t, nil, fmt.Errorf("%w: different members responded at %s: %x, %x and %x", ErrEndpoints, endpoints[0],
			first.MemberId, second.MemberId, third.MemberId)
	}
	t.ClusterID, t.MemberID = ID(first.ClusterId), ID(first.MemberId)
	t.EtcdVersion, t.StorageVersion = status.Version, stream.Version
	t.Revision, t.Upper = first.Revision, third.Revision
	return t, stream.Snapshot, nil
}

const (
	// window of the encoder. A larger one uses more memory and gains little on pages of 4 KiB.
	window = 1 << 20
	// step is how much of the database passes between two calls of Progress.
	step = 1 << 20
	// aheadChunk is how much of the stream is passed on at once, and aheadChunks how many chunks there are. etcd sends
	// 32 KiB at a time. If these were passed on one by one, each would wait longer for the scheduler than for the
	// compression.
	aheadChunk  = 256 << 10
	aheadChunks = 4
)

// compress writes the object: the stream of etcd as one zstd frame, then the trailer, which it completes. It returns
// nil only if the checksum of etcd matches.
func compress(w io.Writer, stream *ReadAhead, t *Trailer, level zstd.EncoderLevel, progress func(int64)) error {
	counted := &countingWriter{w: w}
	// Slower levels gain little on such data and use more memory.
	encoder, err := zstd.NewWriter(counted, zstd.WithEncoderLevel(max(level, zstd.SpeedFastest)), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return fmt.Errorf("full snapshot: compress: %w", err)
	}
	check := newChecksum()
	if err := pump(encoder, stream, check, progress); err != nil {
		_ = encoder.Close() // frees it; its remaining output is discarded
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
func pump(w io.Writer, stream *ReadAhead, check *checksum, progress func(int64)) error {
	for reported := int64(0); ; {
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
		if progress != nil && check.passed >= reported+step {
			reported = check.passed
			progress(reported)
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
