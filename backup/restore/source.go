package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	// ahead is how many delta backups are fetched in advance. A bucket takes tens of milliseconds to respond, longer
	// than applying a delta backup of ten seconds.
	ahead = 16
	// wholeDelta is the largest delta backup that is fetched in advance, in bytes; recorders upload such a delta
	// backup in one part. Larger ones are streamed. held is the limit of what is in memory at the same time.
	wholeDelta = store.PartSize
	held       = 2 * wholeDelta
)

// fetched is a delta backup that is being fetched. data is nil if it is too large to be kept in memory.
type fetched struct {
	catalog.Delta
	ready chan struct{}
	data  []byte
	err   error
	// release returns the memory of data.
	release func()
}

// prefetch fetches small delta backups in advance, in their order.
func prefetch(ctx context.Context, g *errgroup.Group, s store.Store, deltas []catalog.Delta) <-chan *fetched {
	queue, memory := make(chan *fetched, ahead), semaphore.NewWeighted(held)
	g.Go(loop.Recovered(func() error {
		defer close(queue)
		for _, d := range deltas {
			f := &fetched{Delta: d, ready: make(chan struct{}), release: func() {}}
			if d.Size > wholeDelta {
				close(f.ready)
			} else {
				if err := memory.Acquire(ctx, d.Size); err != nil {
					return err
				}
				f.release = func() { memory.Release(d.Size) }
				g.Go(func() error {
					defer close(f.ready)
					f.err = loop.Recover(func() (err error) {
						f.data, err = fetchDelta(ctx, s, d)
						return err
					})
					return nil // readers of it get the error
				})
			}
			select {
			case queue <- f:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}))
	return queue
}

func fetchDelta(ctx context.Context, s store.Store, d catalog.Delta) ([]byte, error) {
	// Read one byte more than was listed, to detect an object that grew since.
	r, err := s.Get(ctx, d.Key, 0, d.Size+1)
	if err != nil {
		return nil, err
	}
	data := make([]byte, d.Size+1)
	n, err := io.ReadFull(r, data)
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // what a broken connection says may wrap them
		err = nil // for the reader to find out
	}
	return data[:n], errors.Join(err, r.Close())
}

func (f *fetched) open(ctx context.Context, s store.Store) (io.ReadCloser, error) {
	select {
	case <-f.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case f.err != nil:
		return nil, fmt.Errorf("restore: fetch delta backup %s: %w", f.Key, f.err)
	case f.data != nil:
		return io.NopCloser(bytes.NewReader(f.data)), nil
	}
	r, err := s.Get(ctx, f.Key, 0, -1)
	if err != nil {
		return nil, fmt.Errorf("restore: fetch delta backup %s: %w", f.Key, err)
	}
	return r, nil
}

// reader returns the content of the delta backup, and a function that releases it.
func (f *fetched) reader(ctx context.Context, s store.Store) (d *delta.Reader, done func() error, err error) {
	source, err := f.open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	d, err = delta.NewReader(source, delta.Expected{Object: f.Key, Lineage: string(f.Lineage), From: f.From, To: f.To})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("restore: %w", err), source.Close())
	}
	return d, func() error {
		d.Close()
		return source.Close()
	}, nil
}

// work is what the reader of the delta backups sends to the writer: records that continue what is there, or the end of
// a delta backup.
type work struct {
	records []delta.Record
	ended   bool
	size    int64 // of the delta that ended
}

// reader reads the delta backups of a plan and delivers what continues the full backup.
type reader struct {
	c         *Config
	clusterID uint64
	joint     joint
	// leases are those that the delta backups record, by ID. If one was granted again, the later one counts.
	leases      map[int64]delta.Lease
	checkpoints []Checkpoint
	// segments are what each delta backup added, if segmented is set.
	segments  []segment
	segmented bool
}

func (r *reader) run(ctx context.Context, queue <-chan *fetched, out chan<- work) error {
	defer close(out)
	for f := range queue {
		if r.joint.needs(f.To) {
			if err := r.read(ctx, f, out); err != nil {
				return err
			}
		}
		f.release()
		select {
		case out <- work{ended: true, size: f.Size}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// read reads a delta backup to its end, even if only a part is needed: only then it is verified, and its leases are
// known.
func (r *reader) read(ctx context.Context, f *fetched, out chan<- work) (err error) {
	d, done, err := f.reader(ctx, r.c.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if h := d.Header(); h.ClusterID != r.clusterID {
		return fmt.Errorf("restore: delta backup %s: %w: it is of cluster %x, but the full backup is of %x", f.Key, ErrSwapped, h.ClusterID, r.clusterID)
	}
	if err := r.joint.enter(f.Key, f.At, d.Header()); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for {
		records, err := d.Next()
		if err == io.EOF { //nolint:errorlint // a broken connection may wrap it
			break
		}
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if records, err = r.joint.take(records); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if len(records) == 0 {
			continue
		}
		select {
		case out <- work{records: records}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.joint.leave()
	if r.segmented && r.joint.revision > r.joint.base {
		r.segments = append(r.segments, segment{Delta: f.Delta, header: d.Header(), first: r.joint.base + 1, last: r.joint.revision})
	}
	r.learn(f.Key, d)
	return nil
}

// learn takes the leases and the checkpoint from a delta backup that was read to its end.
func (r *reader) learn(key string, d *delta.Reader) {
	if c := d.Checkpoint(); c != nil && c.Revision <= r.joint.revision {
		at := Checkpoint{Object: key, Checkpoint: *c}
		if l := d.Leases(); l.Known {
			at.Alive = append([]int64{}, l.Alive...)
		}
		r.checkpoints = append(r.checkpoints, at)
	}
	for _, l := range d.Leases().Records {
		if l.TTL > 0 || r.leases[l.ID].TTL == 0 {
			r.leases[l.ID] = l
		}
	}
}

// chunk is how much of the database is written at once; chunks are how many of them wait for the disk.
const (
	chunk  = 1 << 20
	chunks = 4
)

// fetch streams the database of the full backup into path. One goroutine decompresses and verifies it, and another one
// writes it.
func fetch(ctx context.Context, c *Config, t snapshot.Trailer, path string) (err error) {
	key, size := c.origin()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	source, err := store.Stream(ctx, c.Store, key, size)
	if err != nil {
		return fmt.Errorf("restore: fetch %s: %w", c.Subject(), err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	reader, whole, err := c.open(key, source, t)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer reader.Close()
	ahead := snapshot.NewReadAhead(chunk, chunks)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		ahead.Run(ctx, reader)
		return nil // write hears of how it ends
	})
	g.Go(loop.Recovered(func() error { return c.write(f, ahead, t.Size) }))
	if err := g.Wait(); err != nil {
		return err
	}
	// The trailer was read before the rest, and the object may have been replaced since.
	if !whole() {
		return fmt.Errorf("restore: %s: %w: it changed while it was read", c.Subject(), ErrSwapped)
	}
	return nil
}

// open reads and verifies the database from source. At the end of the reader, whole reports whether it is the one that
// t describes.
func (c *Config) open(key string, source io.Reader, t snapshot.Trailer) (reader io.ReadCloser, whole func() bool, err error) {
	if c.File.Key != "" {
		file := snapshot.OpenFile(key, source)
		return file, func() bool { return file.Size() == t.Size }, nil
	}
	full, err := snapshot.Open(key, source)
	return full, func() bool { return full.Trailer() == t }, err
}

// write writes the database. It succeeds only if all checksums match. Content that is longer than the trailer says
// must not fill the disk before that is known.
func (c *Config) write(f *os.File, ahead *snapshot.ReadAhead, size int64) error {
	for written := int64(0); ; {
		part, err := ahead.Next()
		switch written += int64(len(part)); {
		case err != nil:
			return fmt.Errorf("restore: %w", err)
		case part == nil:
			return nil
		case written > size:
			return fmt.Errorf("restore: the database is longer than the %d bytes in its trailer", size)
		}
		if _, err := f.Write(part); err != nil {
			return fmt.Errorf("restore: write the database: %w", err)
		}
		c.report(Progress{Phase: Fetching, Bytes: written, TotalBytes: size, TotalDeltas: len(c.Plan.Deltas)})
	}
}

func (c *Config) report(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}
