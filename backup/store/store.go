package store

import (
	"context"
	"io"
	"iter"
	"time"
)

// Store keeps objects under keys (see CheckKey). All calls may be made at the same time, by any number of processes on
// the same store, and return the sentinels of this package wrapped in a sentence that says what to do.
type Store interface {
	// Put streams r into key and returns when the object is whole and durable. It holds at most two parts of PartSize
	// in memory, however long r is. With IfAbsent it fails with ErrExists when the key exists, and changes nothing;
	// of many that race for a key exactly one succeeds.
	//
	// When r fails, when ctx ends, or on any other error nothing of the object is visible. One exception: when the
	// store's last answer was lost, or did not come in time after ctx ended, and asking again could not report, the whole
	// object may be there. Never a part of it. An answer that came after ctx ended counts.
	Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error)

	// Get streams length bytes of key from offset; a negative length means all that follows. Bytes after the object's
	// end do not exist: a range that starts there is empty, one that crosses the end stops at it. A connection that
	// breaks is taken up where it broke, on the same version of the object, else reading fails with ErrChanged. What
	// the store has a checksum of is verified: a mismatch fails the last Read with ErrDamaged.
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)

	// List yields the whole objects whose keys begin with prefix, in ascending order of the keys' bytes. After an error
	// it ends: what was yielded until then is not the whole answer. It reports its progress, see OnProgress.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]

	// Delete removes key. A key that is not there is no error; one that is locked stays, with ErrLocked. In a bucket
	// with versioning the content outlives it, under a delete marker.
	Delete(ctx context.Context, key string) error

	// Sweep removes what Puts under prefix left behind that no one will complete: started more than olderThan ago by
	// the store's own clock. It returns how many. A Put that is still running and that old fails.
	Sweep(ctx context.Context, prefix string, olderThan time.Duration) (int, error)
}

// PartSize is how much of an object is held in memory to be sent at once: 8 MiB. An object has at most MaxParts of
// them, 78 GiB, which is S3's limit of 10 000 parts.
const (
	PartSize = 8 << 20
	MaxParts = 10_000
)

// Sized is what lies in memory whole, as a bytes.Reader does, and can be read again. A Put of one may send it from there instead
// of a copy.
type Sized interface {
	io.ReadSeeker
	// Size of all of it, in bytes, wherever reading is.
	Size() int64
}

// PutOptions say how an object is put.
type PutOptions struct {
	// IfAbsent refuses to replace an object.
	IfAbsent bool
}

// Object is what a listing reports an object.
type Object struct {
	Key string
	// Size in bytes.
	Size int64
	// Modified is when the object became visible, by the store's clock. It orders nothing: two objects may share it.
	Modified time.Time
}
