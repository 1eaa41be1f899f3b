package store

import "errors"

// Cause is a kind of failure that an operator can remove. It selects the advice that users read, and nothing else
// depends on it.
type Cause string

// The causes.
const (
	// CauseUnauthorized: the credentials are missing or wrong, or they do not permit the call.
	CauseUnauthorized Cause = "Unauthorized"
	// CauseNotFound: there is no such bucket or directory.
	CauseNotFound Cause = "NotFound"
	// CauseUnreachable: the store did not respond, or it responded that it is down.
	CauseUnreachable Cause = "Unreachable"
	// CauseThrottled: the store responded that there are too many requests.
	CauseThrottled Cause = "Throttled"
	// CauseFull: the store has no space left, or its quota is used up.
	CauseFull Cause = "Full"
	// CauseKeyMissing: the key to encrypt or decrypt backups is missing or different.
	CauseKeyMissing Cause = "KeyMissing"
)

// Causes returns all causes.
func Causes() []Cause {
	return []Cause{CauseUnauthorized, CauseNotFound, CauseUnreachable, CauseThrottled, CauseFull, CauseKeyMissing}
}

// causedError is an error with a cause. The text is that of the error.
type causedError struct {
	error
	cause Cause
}

func (e causedError) Unwrap() error { return e.error }

// Caused adds a cause to an error. It returns err if there is no cause.
func Caused(cause Cause, err error) error {
	if cause == "" || err == nil {
		return err
	}
	return causedError{err, cause}
}

// CauseOf returns the cause of an error, or "" if none is known.
func CauseOf(err error) Cause {
	if caused, ok := errors.AsType[causedError](err); ok {
		return caused.cause
	}
	_, stalled := errors.AsType[stalledError](err)
	switch {
	case stalled:
		return CauseUnreachable
	case errors.Is(err, ErrNoKey):
		return CauseKeyMissing
	case errors.Is(err, ErrNoBucket):
		return CauseNotFound
	default:
		return ""
	}
}
