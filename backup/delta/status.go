package delta

import "time"

// Status is what a Recorder knows of itself.
type Status struct {
	// Saved is the last revision that is in the store, without a gap from the first one on; at the beginning the one
	// before the first.
	Saved int64
	// SavedAt: all that etcd had acknowledged by then is in the store. An idle cluster moves it too. Zero: not known yet.
	SavedAt time.Time
	// Oldest is when the watch delivered the oldest event that is not in the store; zero when there is none. The data at
	// risk are at least as old as this says, and at most as old as SavedAt says.
	Oldest time.Time
	// Received is the last revision that the watch delivered.
	Received int64
	// Buffered is what is in memory and not in the store yet, in bytes.
	Buffered int
	// Object is what was saved last; its Key is empty when there was nothing.
	Object Saved
	// SaveError and WatchError are why saving and watching do not go on; nil when they do.
	SaveError, WatchError error
}

// Saved is a delta in the store.
type Saved struct {
	Key    string
	Header Header
	// Size in bytes, and the sha256 of the object in hexadecimal.
	Size   int64
	SHA256 string
	// Took is how long the store needed, with all attempts.
	Took time.Duration
}

// beat is a linearizable read. Nothing above revision had been acknowledged when it was asked, and all up to revision had been when it was
// answered.
type beat struct {
	at       time.Time
	answered time.Time
	revision int64
}

// maxBeats is how many beats wait for what they saw to be saved. When more do, the latest is replaced, and SavedAt
// lags for a while.
const maxBeats = 64

// beats are in order.
type beats []beat

func (b beats) add(next beat) beats {
	if n := len(b); n > 0 && (b[n-1].revision >= next.revision || n == maxBeats) {
		b[n-1] = next
		return b
	}
	return append(b, next)
}

// saved takes away those that saw nothing above the revision, and returns the time of the last of them.
func (b beats) saved(revision int64) (rest beats, at time.Time) {
	for len(b) > 0 && b[0].revision <= revision {
		at, b = b[0].at, b[1:]
	}
	return b, at
}

// maxBounds is how many bounds wait for the revisions that they are of. Where nothing is read of the watch for longer, every second one is
// dropped: each of those that stay is true.
const maxBounds = 256

// bounds are beats in order that say when revisions were there at the latest, whenever the watch delivers them.
type bounds []beat

func (b bounds) add(next beat) bounds {
	if n := len(b); n > 0 && b[n-1].revision >= next.revision {
		return b // the earlier answer says more
	}
	if len(b) == maxBounds {
		for i := range maxBounds / 2 {
			b[i] = b[2*i+1]
		}
		b = b[:maxBounds/2]
	}
	return append(b, next)
}

// of is the time of a revision that was delivered at a time, and what is left for the revisions after it.
func (b bounds) of(revision int64, delivered time.Time) (time.Time, bounds) {
	for len(b) > 0 && b[0].revision < revision {
		b = b[1:]
	}
	if len(b) > 0 && b[0].answered.Before(delivered) {
		return b[0].answered, b
	}
	return delivered, b
}
