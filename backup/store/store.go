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

// Store keeps objects under keys (see CheckKey). All calls are safe for concurrent use, also by several processes on
// the same store. Errors wrap the sentinels of this package in a sentence that says what to do.
type Store interface {
	// Put streams r into key and returns when the object is complete and durable. It holds at most two parts of
	// PartSize in memory, independent of the length of r. With IfAbsent, it returns ErrExists if the key exists, and
	// changes nothing. If several writers race for a key, exactly one succeeds.
	//
	// If r fails, ctx ends, or any other error occurs, nothing of the object is visible, with one exception: the
	// complete object may exist if the last response of the store was lost or came too long after ctx ended, and
	// another request did not clarify it. An incomplete object is never visible. A response that comes after ctx ended
	// counts.
	Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error)

	// Get streams length bytes of key from offset. A negative length means to the end. A range that starts at or after
	// the end of the object is empty, and one that crosses the end stops there. If a connection breaks, Get continues
	// at the same position of the same version of the object, or reading fails with ErrChanged. If the store has a
	// checksum, it is verified: a mismatch fails the last Read with ErrDamaged.
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)

	// List yields the complete objects whose keys begin with prefix, in ascending byte order of the keys. It ends
	// after an error, and what it yielded before is then incomplete. It reports its progress, see OnProgress.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]

	// Delete removes key. It returns no error for a key that does not exist, and ErrLocked for one that is locked,
	// which it does not remove. In a bucket with versioning, the content remains under a delete marker.
	Delete(ctx context.Context, key string) error

	// Sweep removes the remains of Puts under prefix that will not complete: those that started more than olderThan
	// ago by the clock of the store. It returns how many it removed. A Put that is that old and still running fails.
	Sweep(ctx context.Context, prefix string, olderThan time.Duration) (int, error)
}

// PartSize is how much of an object is held in memory to be sent at once: 8 MiB. An object has at most MaxParts of
// them, 78 GiB, which is S3's limit of 10 000 parts.
const (
	PartSize = 8 << 20
	MaxParts = 10_000
)

// Sized is a reader of content in memory that can be read again, such as a bytes.Reader. Put may send it without a
// copy.
type Sized interface {
	io.ReadSeeker
	// Size is the total size in bytes, independent of the read position.
	Size() int64
}

// PutOptions are the options of a Put.
type PutOptions struct {
	// IfAbsent prevents the replacement of an object.
	IfAbsent bool
}

// Object is what a listing reports about an object.
type Object struct {
	Key string
	// Size in bytes.
	Size int64
	// Modified is when the object became visible, by the clock of the store. Do not order by it: two objects may have
	// the same time.
	Modified time.Time
}

// The errors with a certain meaning. Any other error means that the outcome is unknown.
var (
	// ErrAbsent: the store responded that there is no such object.
	ErrAbsent = errors.New("no such object")
	// ErrExists: the key exists, and IfAbsent was set.
	ErrExists = errors.New("object exists")
	// ErrForbidden: the store denied the call.
	ErrForbidden = errors.New("access denied")
	// ErrNoBucket: there is no such bucket or directory.
	ErrNoBucket = errors.New("no such bucket")
	// ErrLocked: the object cannot be deleted yet.
	ErrLocked = errors.New("object is locked")
	// ErrUnconfirmed: encryption or a lock was requested, and the store did not confirm it. Nothing was stored.
	ErrUnconfirmed = errors.New("not confirmed by the store")
	// ErrDamaged: the bytes do not match the checksum of the store.
	ErrDamaged = errors.New("object is damaged")
	// ErrChanged: the object was replaced while it was read.
	ErrChanged = errors.New("object changed")
	// ErrNoKey: the key to encrypt or decrypt the object is missing or different. That says nothing about the object.
	ErrNoKey = errors.New("no key")
	// ErrNewer: the object has a format that this program does not support yet. That says nothing about the object.
	ErrNewer = errors.New("written by a newer druid; use that version or newer")
	// ErrInvalid: the key, the range or the configuration is invalid. No request was sent.
	ErrInvalid = errors.New("invalid")
)

// Find lists the object of a key. It returns ErrAbsent if there is none.
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

// CheckKey returns ErrInvalid for an invalid key. A key consists of names of letters, digits, '.', '_' and '-' that do
// not begin with a dot, joined by single slashes. It is therefore a path below any directory, never needs escaping,
// and cannot be confused with a temporary file. No key can be the directory of another key: a store has either "a" or
// "a/b".
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: empty key", ErrInvalid)
	}
	if len(key) > maxKey {
		return fmt.Errorf("%w: the key has %d bytes, want at most %d", ErrInvalid, len(key), maxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if err := checkSegment(segment); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrInvalid, key, err)
		}
	}
	return nil
}

// CheckPrefix returns ErrInvalid for a prefix with which no key can begin. The empty prefix is valid.
func CheckPrefix(prefix string) error {
	if whole := strings.TrimSuffix(prefix, "/"); whole != "" || prefix != "" {
		return CheckKey(whole)
	}
	return nil
}

// IsSegment reports whether name can be a part of a key between slashes.
func IsSegment(name string) bool { return checkSegment(name) == nil }

func checkSegment(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("a name between slashes is empty")
	case s[0] == '.':
		return fmt.Errorf("name %q begins with a dot", s)
	case len(s) > maxSegment:
		return fmt.Errorf("a name has %d bytes, want at most %d", len(s), maxSegment)
	}
	for _, c := range []byte(s) {
		if !isKeyByte(c) {
			return fmt.Errorf("name %q has a byte other than letters, digits, '.', '_' and '-'", s)
		}
	}
	return nil
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}
