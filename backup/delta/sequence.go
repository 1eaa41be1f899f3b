package delta

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// sequence puts the events of one watch after the other together: each event once, in order, without a hole. A watch may
// break in the middle of a revision, as large ones arrive in fragments; the next one delivers that revision again.
type sequence struct {
	// main and sub are those of the last event that was taken; whole: nothing more of main will come.
	main, sub int64
	whole     bool
	// again is how many events of main the watch at hand has delivered.
	again int64
}

// startAt is where the next watch must begin. What it delivers of that revision itself is dropped: etcd takes a watch
// from the very revision of its last compaction, of which it may have forgotten a part (before 3.5.16 deletions too).
func (s *sequence) startAt() int64 {
	s.again = 0
	if s.whole {
		return s.main
	}
	return s.main - 1
}

// take reports whether an event is new, and its sub-revision.
func (s *sequence) take(e *mvccpb.Event) (sub int64, isNew bool, err error) {
	revision := e.Kv.ModRevision
	switch {
	case revision < s.main || revision == s.main && s.whole:
		return 0, false, nil
	case revision == s.main:
		sub = s.again
		s.again++
		if sub <= s.sub {
			return 0, false, nil
		}
	case revision == s.main+1 && (s.whole || s.again == s.sub+1):
		s.main, s.whole, s.again = revision, false, 1
	default:
		return 0, false, fmt.Errorf("%w: revision %d came after event %d of revision %d", ErrGap, revision, s.sub, s.main)
	}
	s.sub = sub
	return sub, true, nil
}

// end notes that a response is complete, whose last event has the given revision: etcd never divides a revision.
func (s *sequence) end(revision int64) {
	if revision == s.main {
		s.whole = true
	}
}
