package leases

import "time"

// floor keeps the position below which a volume surely went back in time: one that was published at least one renewal
// interval ago, by an etcd that was well until now. The newest position will not do: etcd reports its commit index a moment
// before the entries are on disk, and a crash in that moment is no time travel. What an etcd reported last before it ended
// does not become the floor, however long it stays away.
type floor struct {
	id        uint64
	surely    Raft
	candidate Raft
	since     time.Time
}

// resume goes on from what the Lease says, after a restart of the agent. The position in the Lease is no candidate: the etcd that
// published it may have ended since, and its successor may hold less.
func (f *floor) resume(m Member) {
	*f = floor{id: m.ID, surely: m.Floor}
}

// next is the floor to publish together with a member's newest position. A new raft ID begins at nothing: what its
// predecessor held is no measure for a learner that has not caught up.
func (f *floor) next(id uint64, alive bool, now time.Time, interval time.Duration) Raft {
	if f.id != id {
		*f = floor{id: id}
	}
	if !alive {
		f.candidate = Raft{}
	}
	if !f.candidate.IsZero() && now.Sub(f.since) >= interval {
		if f.candidate.Committed >= f.surely.Committed {
			f.surely = f.candidate
		}
		f.candidate = Raft{}
	}
	return f.surely
}

// published notes that a position stands in the Lease now.
func (f *floor) published(position Raft, alive bool, now time.Time) {
	if alive && f.candidate.IsZero() {
		f.candidate, f.since = position, now
	}
}
