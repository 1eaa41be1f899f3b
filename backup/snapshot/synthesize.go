package snapshot

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/backup/store"
)

// Synthesized is a database that was made without an etcd, and what is to be said of it.
type Synthesized struct {
	Store store.Store
	Key   string
	// Path of the database. Nobody may be writing to it.
	Path string
	// Trailer as far as it is known before the database is read: all but Size, SHA256, Stored and CRC32C.
	Trailer Trailer
	// Level of the compression; the fastest for 0.
	Level zstd.EncoderLevel
	// Progress is told how many bytes of the database have passed, about once per MiB. It may be nil, and must not block.
	Progress func(bytes int64)
}

// Synthesize puts a database into the store as etcd would have sent it, its checksum included. A key that is taken is
// store.ErrExists, and stays as it is.
func Synthesize(ctx context.Context, c Synthesized) (Result, error) {
	f, err := os.Open(c.Path)
	if err != nil {
		return Result{}, fmt.Errorf("full snapshot: %w", err)
	}
	defer f.Close() // it was only read
	sum := sha256.New()
	c.Trailer.Version = Version
	stream := io.MultiReader(io.TeeReader(f, sum), &late{content: func() []byte { return sum.Sum(nil) }})
	return upload(ctx, c.Store, c.Key, c.Trailer, io.NopCloser(stream), passage{c.Level, c.Progress})
}

// late is content that is not known before all in front of it was read.
type late struct {
	content func() []byte
	rest    []byte
}

func (l *late) Read(p []byte) (int, error) {
	if l.content != nil {
		l.rest, l.content = l.content(), nil
	}
	if len(l.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
