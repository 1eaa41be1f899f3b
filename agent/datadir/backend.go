package datadir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/internal/boltdb"
	"github.com/etcd-druid/druid/internal/loop"
)

// errNoBackend is MissingDB for etcd's own backend, and means a missing file for a backend that came with a raft
// snapshot.
var errNoBackend = damaged(MissingDB, "there is a log, but no database file")

// openTimeout bounds the wait for bbolt's lock on the file. No other process holds it while launch holds the lock of
// the volume.
const openTimeout = time.Second

// backend is the content of etcd's meta bucket.
type backend struct {
	size            int64
	consistentIndex uint64
	storageVersion  string
}

func (b backend) fill(r *Report) {
	r.DBSize, r.ConsistentIndex, r.StorageVersion = b.size, b.consistentIndex, b.storageVersion
}

// readBackend reads the meta pages and etcd's metadata. It compares the size with the meta page before bbolt maps the
// file, because reading a mapped page beyond the end of the file raises a signal.
func readBackend(path string) (backend, error) {
	var b backend
	f, size, err := openBackendFile(path)
	if err != nil {
		return b, err
	}
	b.size = size
	_, err = readMeta(f, size)
	if err := errors.Join(err, f.Close()); err != nil {
		return b, err
	}
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: openTimeout, NoStatistics: true})
	if err != nil {
		return b, fmt.Errorf("open backend: %w", err)
	}
	err = guarded(func() error { return db.View(b.read) })
	return b, errors.Join(err, db.Close())
}

// guarded converts a panic or a fault of bbolt on an unexpected page to damage.
func guarded(read func() error) error {
	return loop.RecoverFault(read, func(panicked any) error { return damaged(BadBackend, "read etcd's metadata: %v", panicked) })
}

func (b *backend) read(tx *bolt.Tx) error {
	meta := tx.Bucket(schema.Meta.Name())
	if meta == nil {
		return nil // etcd crashed before its first commit: nothing is applied yet
	}
	switch raw := meta.Get(schema.MetaConsistentIndexKeyName); len(raw) {
	case 0:
	case 8:
		b.consistentIndex = binary.BigEndian.Uint64(raw)
	default:
		return damaged(BadBackend, "the consistent index has %d bytes", len(raw))
	}
	b.storageVersion = string(meta.Get(schema.MetaStorageVersionName))
	if b.consistentIndex > 0 && tx.Bucket(schema.Key.Name()) == nil {
		return damaged(BadBackend, "the backend has applied index %d, but has no bucket %s", b.consistentIndex, schema.Key.Name())
	}
	return nil
}

// checkPages reads the complete backend at path.
func checkPages(ctx context.Context, path string) error {
	f, _, err := openBackendFile(path)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	return asDamage(boltdb.Check(ctx, f))
}

func readMeta(f io.ReaderAt, size int64) (boltdb.Meta, error) {
	meta, err := boltdb.ReadMeta(f, size)
	return meta, asDamage(err)
}

// asDamage converts the damage of a backend to that of a data directory.
func asDamage(err error) error {
	found, ok := errors.AsType[*boltdb.DamagedError](err)
	if !ok {
		return err
	}
	kind := map[boltdb.DamageKind]Kind{boltdb.Truncated: TruncatedDB, boltdb.BadMeta: BadMeta, boltdb.BadPage: BadPage}[found.Kind]
	return damaged(kind, "%s", found.Reason)
}
