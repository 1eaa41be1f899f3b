package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/boltdb"
)

// File is what a file of `etcdctl snapshot save` says about itself. It is verified only after the complete file was
// read.
type File struct {
	// Size of the database in bytes. The file is longer by the checksum of etcd.
	Size int64
	// StorageVersion of the database and ClusterVersion of its cluster, such as 3.6.0. Either is empty if the database
	// does not have it.
	StorageVersion, ClusterVersion string
	// Auth reports whether authentication is enabled.
	Auth bool
}

// again says how to repair a broken file.
const again = "copy it to the store again, or save a new snapshot with `etcdctl snapshot save`"

// LookAtFile reads the beginning of an object of size bytes, and the few pages with the versions of its format: some
// 64 KiB each. It returns a FileError for an object that is not a complete file of etcd.
func LookAtFile(ctx context.Context, s store.Store, key string, size int64) (File, error) {
	r := &remote{ctx: ctx, store: s, key: key, size: size}
	if size == 0 {
		return File{}, &FileError{key, "is empty: " + again}
	}
	head := make([]byte, min(size, headSize))
	if _, err := r.ReadAt(head, 0); err != nil {
		return File{}, fmt.Errorf("read file %s: %w", key, err)
	}
	if reason := strange(head, size); reason != "" {
		return File{}, &FileError{key, reason}
	}
	f := File{Size: size - sha256.Size}
	err := f.read(io.NewSectionReader(r, 0, f.Size))
	if damage, ok := errors.AsType[*boltdb.DamagedError](err); ok {
		return File{}, &FileError{key, fmt.Sprintf("is damaged: %v; %s", damage, again)}
	}
	if err != nil {
		return File{}, fmt.Errorf("read file %s: %w", key, err)
	}
	return f, nil
}

// headSize is how much of a file strange needs.
const headSize = 64

// magics are the first bytes of files that users mistake for a snapshot, each with what to do.
var magics = []struct{ magic, reason string }{
	{"\x1f\x8b", "is compressed with gzip: store it uncompressed"},
	{"\x28\xb5\x2f\xfd", "is compressed with zstd. If druid saved it, omit from.file and set from.namespace and from.name; otherwise store it uncompressed"},
	{"BZh", "is compressed with bzip2: store it uncompressed"},
	{"\xfd7zXZ\x00", "is compressed with xz: store it uncompressed"},
	{"PK\x03\x04", "is a zip archive: store the file in it"},
	{"age-encryption.org/", "is encrypted. If druid saved it, omit from.file and set from.namespace and from.name; otherwise store it decrypted"},
}

// strange describes what is wrong with a file of size bytes that begins with head. The result is empty if it may be a
// snapshot of etcd.
func strange(head []byte, size int64) string {
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.reason
		}
	}
	if !boltdb.IsMeta(head) {
		return "is not a database of etcd, or its beginning is damaged: provide a file of `etcdctl snapshot save`"
	}
	switch size % sector {
	case sha256.Size:
		return ""
	case 0:
		return "has no checksum at its end, so it cannot be verified: it is a copy of member/snap/db, or an incomplete file of `etcdctl snapshot " +
			"save`. Start an etcd on a copy of the data directory, and save a snapshot of it with `etcdctl snapshot save`"
	}
	return fmt.Sprintf("is incomplete or has additional data: a snapshot of etcd cannot have %d bytes; %s", size, again)
}

// read finds the versions in the database, and whether authentication is enabled.
func (f *File) read(database io.ReaderAt) error {
	pages, err := boltdb.NewLookup(database, f.Size)
	if err != nil {
		return err
	}
	for _, fact := range []struct {
		bucket, key string
		take        func([]byte)
	}{
		{"meta", "storageVersion", func(v []byte) { f.StorageVersion = string(v) }},
		{"cluster", "clusterVersion", func(v []byte) { f.ClusterVersion = string(v) }},
		{"auth", "authEnabled", func(v []byte) { f.Auth = bytes.Equal(v, []byte{1}) }},
	} {
		value, err := pages.Find([]byte(fact.bucket), []byte(fact.key))
		if err != nil {
			return err
		}
		fact.take(value)
	}
	return nil
}

// FileReader streams the database from a file of etcd, without the checksum at its end.
type FileReader struct {
	stream
	object string
}

// OpenFile reads a file from source, which must deliver it from the first to the last byte. object is its key, for
// errors. Read returns io.EOF only if the checksum matches.
func OpenFile(object string, source io.Reader) *FileReader {
	r := &FileReader{object: object, stream: newStream()}
	r.raw, r.finish, r.failed = source, r.compare, r.broken
	return r
}

func (r *FileReader) compare() error {
	if _, err := r.check.verify(); err != nil {
		return &FileError{r.object, fmt.Sprintf("is damaged: %v; %s", err, again)}
	}
	return io.EOF
}

func (r *FileReader) broken(err error) error { return fmt.Errorf("read file %s: %w", r.object, err) }

// Size of the database, after Read has returned io.EOF.
func (r *FileReader) Size() int64 { return r.check.passed }

// Close does nothing. FileReader has it so that it can be used like a Reader. It does not close the source.
func (r *FileReader) Close() error { return nil }

// remote reads parts of an object in blocks of 64 KiB, and caches the last ones.
type remote struct {
	ctx    context.Context //nolint:containedctx // a ReadAt has none
	store  store.Store
	key    string
	size   int64
	blocks map[int64][]byte
}

const block = 64 << 10

func (r *remote) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		at := offset + int64(n)
		if at >= r.size {
			return n, io.EOF
		}
		content, err := r.block(at / block)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], content[at%block:])
	}
	return n, nil
}

// block returns block number i. The pages with the versions of a file are in two or three blocks.
func (r *remote) block(i int64) ([]byte, error) {
	if content, read := r.blocks[i]; read {
		return content, nil
	}
	length := min(block, r.size-i*block)
	body, err := r.store.Get(r.ctx, r.key, i*block, length)
	if err != nil {
		return nil, err
	}
	content := make([]byte, length)
	n, err := io.ReadFull(body, content)
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // what a broken connection says may wrap them
		err = fmt.Errorf("%w: it has %d bytes now and had %d before", store.ErrChanged, i*block+int64(n), r.size)
	}
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if r.blocks == nil {
		r.blocks = map[int64][]byte{}
	}
	r.blocks[i] = content
	return content, nil
}

var (
	// ErrTorn: the stream of etcd ended early or does not match the checksum of etcd. No object was made of it.
	ErrTorn = errors.New("the snapshot stream is incomplete or damaged")
	// ErrEndpoints: the client must have exactly one endpoint. A revision that one member has reached says nothing
	// about what another one sends.
	ErrEndpoints = errors.New("a snapshot needs exactly one endpoint")
)

// DamagedError means that an object is not what was stored. A read that failed is not a DamagedError, because it says
// nothing about the object.
type DamagedError struct {
	// Object is its key.
	Object string
	// Reason in words.
	Reason string
	// Err is what is wrong with the bytes. It is nil if Reason is complete.
	Err error
}

func (e *DamagedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("full backup %s is damaged: %s: %v", e.Object, e.Reason, e.Err)
	}
	return fmt.Sprintf("full backup %s is damaged: %s", e.Object, e.Reason)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// FileError means that an object is not a complete file of `etcdctl snapshot save`. A read that failed is not a
// FileError, because it says nothing about the object.
type FileError struct {
	// Object is its key.
	Object string
	// Reason in words that go on after the key, with what to do.
	Reason string
}

func (e *FileError) Error() string { return fmt.Sprintf("file %s %s", e.Object, e.Reason) }
