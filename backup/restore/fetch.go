package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/guard"
	"github.com/etcd-druid/druid/backup/readahead"
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
	ahead := readahead.New(chunk, chunks)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		ahead.Run(ctx, reader)
		return nil // write hears of how it ends
	})
	g.Go(guard.Func(func() error { return c.write(f, ahead, t.Size) }))
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

// write writes the database. Its end comes only when all checksums hold; what is longer than its trailer says would fill the disk
// before that is found out.
func (c *Config) write(f *os.File, ahead *readahead.Reader, size int64) error {
	for written := int64(0); ; {
		part, err := ahead.Next()
		switch written += int64(len(part)); {
		case err != nil:
			return fmt.Errorf("restore: %w", err)
		case part == nil:
			return nil
		case written > size:
			return fmt.Errorf("restore: the database is longer than the %d bytes that it says to have", size)
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
