package store

import "errors"

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
