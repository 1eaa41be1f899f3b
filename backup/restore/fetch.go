package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/guard"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// chunk is how much of the database is written at once; chunks are how many of them wait for the disk.
const (
	chunk  = 1 << 20
	chunks = 4
)

// fetch streams the database of the full into path. It is decompressed and verified by one goroutine, and written by
// another.
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
	full, free := make(chan []byte, chunks), make(chan []byte, chunks)
	for range chunks {
		free <- make([]byte, chunk)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(guard.Func(func() error {
		defer close(full)
		return decode(ctx, reader, full, free, t.Size)
	}))
	g.Go(guard.Func(func() error { return c.write(ctx, f, full, free, t.Size) }))
	if err := g.Wait(); err != nil {
		return err
	}
	// What it says of itself was read before the rest: it may have been replaced since.
	if !whole() {
		return fmt.Errorf("restore: %s: %w: it changed while it was read", c.Subject(), ErrSwapped)
	}
	return nil
}

// open reads the database out of source, and proves it. At the reader's end, whole says whether it is the one that t is of.
func (c *Config) open(key string, source io.Reader, t snapshot.Trailer) (reader io.ReadCloser, whole func() bool, err error) {
	if c.File.Key != "" {
		file := snapshot.OpenFile(key, source)
		return file, func() bool { return file.Size() == t.Size }, nil
	}
	full, err := snapshot.Open(key, source)
	return full, func() bool { return full.Trailer() == t }, err
}

// decode hands on chunks until the reader's end, which comes only when all checksums hold. What is longer than its
// trailer says would fill the disk before that is found out.
func decode(ctx context.Context, r io.Reader, full chan<- []byte, free <-chan []byte, size int64) error {
	for read := int64(0); ; {
		var buffer []byte
		select {
		case buffer = <-free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n, err := io.ReadFull(r, buffer[:chunk])
		if read += int64(n); read > size && err == nil {
			return fmt.Errorf("restore: the database is longer than the %d bytes that it says to have", size)
		}
		if n > 0 {
			select {
			case full <- buffer[:n]:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF: // bare: damage may wrap the same errors
			return nil
		case err != nil:
			return fmt.Errorf("restore: %w", err)
		}
	}
}

func (c *Config) write(ctx context.Context, f *os.File, full <-chan []byte, free chan<- []byte, size int64) error {
	for written := int64(0); ; {
		select {
		case buffer, ok := <-full:
			if !ok {
				return nil
			}
			n, err := f.Write(buffer)
			if err != nil {
				return fmt.Errorf("restore: write the database: %w", err)
			}
			written += int64(n)
			c.report(Progress{Phase: Fetching, Bytes: written, TotalBytes: size, TotalDeltas: len(c.Plan.Deltas)})
			free <- buffer
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Config) report(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}
