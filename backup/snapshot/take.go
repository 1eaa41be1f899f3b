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

	"github.com/etcd-druid/druid/backup/readahead"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

// anyKey is read for the revision alone; whether it exists does not matter.
const anyKey = "\x00"

// Config says of whom a full is taken, and where it is put.
type Config struct {
	// Client of exactly one member.
	Client *clientv3.Client
	Store  store.Store
	// Lineage of the member's history, in the trailer's words.
	Lineage string
	// Key names the object of a revision that is proven to be in it, and of the time at which its content was fixed.
	Key func(revision int64, at time.Time) string
	// Level of the compression; the fastest for 0.
	Level zstd.EncoderLevel
	// Progress is reported how many bytes of the database have passed, about once per MiB. It may be nil, and must not block.
	Progress func(bytes int64)
}

// Result is a full that was taken: it is in the store, whole.
type Result struct {
	Trailer
	// Key of the object, and its size in bytes.
	Key        string
	ObjectSize int64
}

// Take streams the member's database into the store, in one pass. Nothing appears there when the stream or the upload
// fails, when ctx ends, or when etcd's checksum does not hold (ErrTorn).
func Take(ctx context.Context, c Config) (Result, error) {
	// Whatever happens, the stream ends with this call: etcd holds a read transaction open for it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	trailer, stream, err := open(ctx, c)
	if err != nil {
		return Result{}, err
	}
	return upload(ctx, c.Store, c.Key(trailer.Revision, trailer.Taken), trailer, stream, passage{c.Level, c.Progress})
}

// passage is how a stream passes, and who hears of it.
type passage struct {
	level    zstd.EncoderLevel
	progress func(bytes int64)
}

// upload puts a stream of etcd's into the store, whole or not at all, and closes it.
func upload(ctx context.Context, s store.Store, key string, trailer Trailer, stream io.ReadCloser, c passage) (Result, error) {
	result := Result{Key: key}
	g, ctx := errgroup.WithContext(ctx)
	ahead := readahead.New(aheadChunk, aheadChunks)
	reader, writer := io.Pipe()
	// Whatever ends one of them ends the others, once it is known as the cause. The reader's end of file is what makes the object:
	// it must never see one for half a stream.
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
		// Anyone who still writes must not wait for a reader.
		_ = reader.CloseWithError(fmt.Errorf("full snapshot: %s is in the store before all of it was read: %w", result.Key, io.ErrClosedPipe))
		return nil
	}))
	if err := g.Wait(); err != nil {
		if cause := context.Cause(ctx); !errors.Is(err, cause) { // it is what a closed pipe said
			err = fmt.Errorf("full snapshot: %w: %w", cause, err)
		}
		return Result{}, err
	}
	result.Trailer = trailer
	return result, nil
}

// open starts the stream. The order of the calls is what verifys the bounds: what a quorum agreed to before the stream
// begins is in it, and what the member reached after the first message came may not be.
func open(ctx context.Context, c Config) (Trailer, io.ReadCloser, error) {
	endpoints := c.Client.Endpoints()
	if len(endpoints) != 1 {
		return Trailer{}, nil, fmt.Errorf("%w, not of %d: %v", ErrEndpoints, len(endpoints), endpoints)
	}
	t := Trailer{Version: Version, Lineage: c.Lineage, Started: time.Now().UTC()}
	before, err := c.Client.Get(ctx, anyKey, clientv3.WithCountOnly())
	if err != nil {
		return t, nil, fmt.Errorf("full snapshot: read the revision of %s from a quorum: %w", endpoints[0], err)
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
		return t, nil, fmt.Errorf("%w: %s was answered by members %x, %x and %x", ErrEndpoints, endpoints[0],
			first.MemberId, second.MemberId, third.MemberId)
	}
	t.ClusterID, t.MemberID = ID(first.ClusterId), ID(first.MemberId)
	t.EtcdVersion, t.StorageVersion = status.Version, stream.Version
	t.Revision, t.Upper = first.Revision, third.Revision
	return t, stream.Snapshot, nil
}

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
