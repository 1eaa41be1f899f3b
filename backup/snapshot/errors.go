package snapshot

import (
	"errors"
	"fmt"
)

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
