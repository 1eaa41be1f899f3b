package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
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

// What a store can be sure of. Every other error means that the outcome is unknown.
var (
	// ErrAbsent: the store answered that there is no such object.
	ErrAbsent = errors.New("no such object")
	// ErrExists: the key is taken, and IfAbsent was asked for.
	ErrExists = errors.New("object exists")
	// ErrForbidden: the store knows us, or refuses to, and denies the call.
	ErrForbidden = errors.New("access denied")
	// ErrNoBucket: there is no such bucket or directory.
	ErrNoBucket = errors.New("no such bucket")
	// ErrLocked: the object may not be deleted yet.
	ErrLocked = errors.New("object is locked")
	// ErrUnconfirmed: encryption or a lock was asked for, and the store did not confirm that it does so; nothing was stored.
	ErrUnconfirmed = errors.New("not confirmed by the store")
	// ErrDamaged: the bytes are not those that the store has the checksum of.
	ErrDamaged = errors.New("object is damaged")
	// ErrChanged: the object was replaced while it was read.
	ErrChanged = errors.New("object changed")
	// ErrNoKey: the key that seals or opens the object is missing, or is another one. It says nothing of the object.
	ErrNoKey = errors.New("no key")
	// ErrNewer: the object has a format that this program does not know yet. It says nothing of the object.
	ErrNewer = errors.New("written by a newer druid; use that version or newer")
	// ErrInvalid: the key, the range or the configuration is not one; no one was asked.
	ErrInvalid = errors.New("invalid")
)

// Find lists the one object of a key. ErrAbsent: there is none.
func Find(ctx context.Context, s Store, key string) (Object, error) {
	if err := CheckKey(key); err != nil {
		return Object{}, err
	}
	for o, err := range s.List(ctx, key) {
		switch {
		case err != nil:
			return Object{}, Because(ctx, err)
		case o.Key == key:
			return o, nil
		case o.Key > key:
			return Object{}, absent(s, key)
		}
	}
	return Object{}, absent(s, key)
}

func absent(s Store, key string) error { return fmt.Errorf("%w called %s in %v", ErrAbsent, key, s) }

// Longest key, longest prefix of a bucket, and longest part of a key between slashes, in bytes: S3 takes 1024 for key and
// prefix, file systems 255 for a name, of which a temporary name needs some.
const (
	maxKey     = 768
	maxPrefix  = 255
	maxSegment = 200
)

// CheckKey refuses with ErrInvalid what is no key: names of letters, digits, '.', '_' and '-' that do not begin with a
// dot, joined by single slashes. So a key is a path below any directory, needs no escaping anywhere, and can never be
// taken for a temporary file. No key may be another key's directory: of "a" and "a/b" a store holds one.
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: empty key", ErrInvalid)
	}
	if len(key) > maxKey {
		return fmt.Errorf("%w: key of %d bytes, want at most %d", ErrInvalid, len(key), maxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if err := checkSegment(segment); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrInvalid, key, err)
		}
	}
	return nil
}

// CheckPrefix refuses with ErrInvalid what no key can begin with. The empty prefix is the beginning of all.
func CheckPrefix(prefix string) error {
	if whole := strings.TrimSuffix(prefix, "/"); whole != "" || prefix != "" {
		return CheckKey(whole)
	}
	return nil
}

// IsSegment reports whether name can stand between the slashes of a key.
func IsSegment(name string) bool { return checkSegment(name) == nil }

func checkSegment(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("empty name between slashes")
	case s[0] == '.':
		return fmt.Errorf("name %q begins with a dot", s)
	case len(s) > maxSegment:
		return fmt.Errorf("name of %d bytes, want at most %d", len(s), maxSegment)
	}
	for _, c := range []byte(s) {
		if !isKeyByte(c) {
			return fmt.Errorf("name %q has a byte that is no letter, digit, '.', '_' or '-'", s)
		}
	}
	return nil
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}
