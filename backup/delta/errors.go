package delta

import (
	"errors"
	"fmt"
)

// Why a Recorder ends. Both mean that the deltas cannot be continued, and that only a new full snapshot closes the hole.
var (
	// ErrCompacted: etcd no longer has revisions that were not saved.
	ErrCompacted = errors.New("revisions that were not saved are compacted")
	// ErrGap: etcd's watch left out revisions.
	ErrGap = errors.New("the watch left out revisions")
)

// ErrFork: etcd holds another revision than the one that was saved last. What it holds now does not continue the deltas that there are.
var ErrFork = errors.New("etcd's history is not the one that was saved")

// ErrEnded: what was to be flushed was not, because the Recorder ended. The next one saves it.
var ErrEnded = errors.New("the recorder ended")

// DamagedError reports what is wrong with a delta, and where.
type DamagedError struct {
	// Object is the name that the reader was given.
	Object string
	// Offset in bytes of the frame in which it was found, from the beginning of the object.
	Offset int64
	Reason string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("delta %s is unusable: at byte %d: %s", e.Object, e.Offset, e.Reason)
}
