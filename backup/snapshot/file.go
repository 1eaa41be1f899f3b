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

// File is what a file of `etcdctl snapshot save` says of itself. Nothing of it is verified before all of the file was read.
type File struct {
	// Size of the database in bytes: the file is longer by etcd's checksum.
	Size int64
	// StorageVersion of the database, and ClusterVersion of the cluster that it is of, as 3.6.0: either is empty where the database
	// does not report it.
	StorageVersion, ClusterVersion string
	// Auth says whether authentication is on.
	Auth bool
}

// again is what repairs a file that is broken.
const again = "copy it into the store again, or save another one with `etcdctl snapshot save`"

// LookAtFile reads the beginning of an object of size bytes, and the few pages of it that report whose format it has: some 64 KiB each.
// What is no file of etcd's, or not the whole of one, is a FileError.
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

// headSize is as much of a file as strange wants to see.
const headSize = 64

// magics are what files begin with that are mistaken for a snapshot, and what to do about them.
var magics = []struct{ magic, reason string }{
	{"\x1f\x8b", "is compressed by gzip: unpack it in the store"},
	{"\x28\xb5\x2f\xfd", "is compressed by zstd. If druid saved it, leave from.file out, and name the cluster in from.namespace and from.name; else unpack it in the store"},
	{"BZh", "is compressed by bzip2: unpack it in the store"},
	{"\xfd7zXZ\x00", "is compressed by xz: unpack it in the store"},
	{"PK\x03\x04", "is a zip archive: unpack it in the store"},
	{"age-encryption.org/", "is encrypted. If druid saved it, leave from.file out, and name the cluster in from.namespace and from.name; else decrypt it in the store"},
}

// strange says what is wrong with a file of size bytes that begins with head: nothing, if it may be a snapshot of etcd's.
func strange(head []byte, size int64) string {
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.reason
		}
	}
	if !boltdb.IsMeta(head) {
		return "is no database of etcd, or its beginning is damaged: want what `etcdctl snapshot save` writes"
	}
	switch size % sector {
	case sha256.Size:
		return ""
	case 0:
		return "has no checksum at its end, so nothing proves that it is whole: it is a copy of etcd's member/snap/db, or what `etcdctl snapshot " +
			"save` wrote was cut off. Start an etcd on a copy of that data directory, and save a snapshot of it with `etcdctl snapshot save`"
	}
	return fmt.Sprintf("was cut off, or something was added to it: it has %d bytes, and no snapshot of etcd's has; %s", size, again)
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

// FileReader streams the database out of a file of etcd's: all but the checksum at its end.
type FileReader struct {
	stream
	object string
}

// OpenFile reads the file that source delivers from its first byte to its last; object is its key, for errors. Read ends in io.EOF only
// when the checksum holds.
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

// Size of the database, once Read has returned io.EOF.
func (r *FileReader) Size() int64 { return r.check.passed }

// Close is for those that close a Reader too. It does not close the source.
func (r *FileReader) Close() error { return nil }

// remote reads single places of an object, a block of 64 KiB at a time, and keeps the last ones.
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

// block number i. The pages that report a file's versions are in two or three of them.
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
		err = fmt.Errorf("%w: it has %d bytes, and had %d", store.ErrChanged, i*block+int64(n), r.size)
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
	// ErrTorn: etcd's stream ended early, or is not what etcd's checksum says. No object was made of it.
	ErrTorn = errors.New("snapshot stream is torn")
	// ErrEndpoints: the client does not talk to exactly one member. A revision that one member has reached says nothing of
	// what another one sends.
	ErrEndpoints = errors.New("a snapshot is taken of one member")
)

// DamagedError says that an object is not what was stored. A read that failed is none: it says nothing about the object.
type DamagedError struct {
	// Object is its key.
	Object string
	// Reason in words.
	Reason string
	// Err is what was wrong with the bytes, nil where Reason says it all.
	Err error
}

func (e *DamagedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("full %s is damaged: %s: %v", e.Object, e.Reason, e.Err)
	}
	return fmt.Sprintf("full %s is damaged: %s", e.Object, e.Reason)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// FileError says that an object is no file of `etcdctl snapshot save`, or not the whole of one. A read that failed is none: it says
// nothing about the object.
type FileError struct {
	// Object is its key.
	Object string
	// Reason in words that go on after the key, with what to do.
	Reason string
}

func (e *FileError) Error() string { return fmt.Sprintf("file %s %s", e.Object, e.Reason) }
