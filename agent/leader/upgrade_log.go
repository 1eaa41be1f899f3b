package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// lastOldLog is the minor whose log, as etcd 3.5 wrote parts of it, the next minor cannot apply: it panics with "unmarshal should never
	// fail" (etcdserver/apply: 3.7 knows no requests of the v2 API, by which 3.5 published its members).
	lastOldLog, firstNewLog = "3.6", "3.7"
	// defaultSnapshotCount of etcd 3.6: entries after which it writes a raft snapshot, from which a later start goes on.
	defaultSnapshotCount = 10_000
	// longestLog is how many entries are worth waiting for: a minute of small writes.
	longestLog = 100_000
	// logSlack is for entries that a member has applied and of which it has not taken notice yet.
	logSlack = 100
	// lengthenTimeout bounds one attempt. The next one goes on from where the members are then.
	lengthenTimeout = 2 * time.Minute
)

// logState says what the members' logs hold for the version that is asked for. A group with another max-learners than 1 was born on 3.6 or
// later, so that 3.5 never wrote for it. For others the first look of this leadership at members that all run 3.6 counts: when each
// has applied as many entries since as etcd takes a snapshot after, none applies again what was written before.
func (r *round) logState(order leases.UpgradeOrder, all []membership.Status) membership.LogState {
	if lineOf(order.Version) != firstNewLog || r.record.MaxLearners > leases.MaxLearners35 {
		return membership.LogReadable
	}
	applied, index := ^uint64(0), uint64(0)
	for _, s := range all {
		if lineOf(s.Version) != lastOldLog {
			return membership.LogReadable // it went on already, or its step to 3.6 is the one that is asked for
		}
		applied, index = min(applied, s.AppliedIndex), max(index, s.RaftIndex)
	}
	count := r.SnapshotCount
	if count == 0 {
		count = defaultSnapshotCount
	}
	if r.upgrading.readableFrom == 0 {
		r.upgrading.readableFrom = index + count + logSlack
	}
	switch {
	case applied >= r.upgrading.readableFrom:
		return membership.LogReadable
	case count > longestLog:
		return membership.LogTooLong
	default:
		r.upgrading.missing = r.upgrading.readableFrom - applied
		return membership.LogOld
	}
}

// passLog leaves the old part of the log behind.
func (r *round) passLog(ctx context.Context) (err error) {
	client, err := r.Dial(ctx, r.Local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	r.Log.InfoContext(ctx, "raft log made longer, for a snapshot before the next minor", "entries", r.upgrading.missing)
	ctx, cancel := context.WithTimeout(ctx, lengthenTimeout)
	defer cancel()
	return membership.LengthenLog(ctx, client, r.upgrading.missing)
}

func passedWords(entries uint64) string {
	return fmt.Sprintf("the raft log was made longer by %d entries, so that each member leaves behind what etcd 3.5 wrote", entries)
}
