package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/restore"
)

type comparison struct {
	db          *bolt.DB
	plan        chain.Plan
	checkpoints []restore.Checkpoint
	contents    Contents
}

// judge compares with the newest checkpoint that can be compared with: the hash covers all that came before it.
func (c comparison) judge(ctx context.Context) Result {
	r := Result{Verdict: Unknown, Reason: "all was read and restored, and there is no checkpoint to compare with: none of its deltas has one"}
	for i, point := range slices.Backward(c.checkpoints) {
		state, err := StateAt(ctx, c.db, point.Revision, point.CompactRevision)
		switch {
		case errors.Is(err, ErrCompacted), errors.Is(err, ErrEmpty):
			r.Reason = fmt.Sprintf("all was read and restored, and cannot be compared: %v", err)
			continue
		case err != nil:
			r.Reason = fmt.Sprintf("all was read and restored, and not compared: %v", err)
			return r
		}
		r = Result{Verdict: Proven, HashKV: state.HashKV, Keys: state.Keys, Checkpoint: notified(point)}
		if state.HashKV != point.HashKV {
			return c.blame(ctx, r, i)
		}
		if err := c.beside(ctx, &r, point); err != nil && r.Verdict == Proven {
			r.Verdict, r.Reason = Unknown, fmt.Sprintf("all was read and restored, and not compared: %v", err)
		}
		return r
	}
	return r
}

func notified(c restore.Checkpoint) *Checkpoint {
	return &Checkpoint{Object: c.Object, Revision: c.Revision, CompactRevision: c.CompactRevision, HashKV: c.HashKV, MemberID: c.MemberID, Beside: c.Beside}
}

// blame finds the oldest checkpoint that differs: what is wrong came after the one before.
func (c comparison) blame(ctx context.Context, r Result, differs int) Result {
	r.Verdict = Broken
	equal := -1
	for i, point := range c.checkpoints[:differs] {
		state, err := StateAt(ctx, c.db, point.Revision, point.CompactRevision)
		if err != nil {
			continue // it reports nothing
		}
		if state.HashKV != point.HashKV {
			r.Checkpoint, r.HashKV, r.Keys = notified(point), state.HashKV, state.Keys
			break
		}
		equal = i
	}
	r.Suspects = c.between(equal, r.Checkpoint.Object)
	r.Object = r.Suspects[0]
	var keys string
	if theirs := r.Checkpoint.Keys; theirs != nil && *theirs != r.Keys {
		keys = fmt.Sprintf(", with %d keys instead of %d", r.Keys, *theirs)
	}
	r.Reason = fmt.Sprintf("at revision %d the backup has HashKV %d, and member %x had %d%s: wrong is %s",
		r.Checkpoint.Revision, r.HashKV, r.Checkpoint.MemberID, r.Checkpoint.HashKV, keys, r.Object)
	if n := len(r.Suspects); n > 1 {
		r.Reason += fmt.Sprintf(", or one of the %d that follow up to %s", n-1, r.Suspects[n-1])
	}
	return r
}

// between are the objects that follow on the delta of a checkpoint, all of them where equal is below 0, up to another one.
func (c comparison) between(equal int, last string) []string {
	var keys []string
	if equal < 0 {
		keys = append(keys, c.plan.Full.Key)
	}
	begun := equal < 0
	for _, d := range c.plan.Deltas {
		if begun {
			keys = append(keys, d.Key)
		}
		if d.Key == last {
			break
		}
		begun = begun || d.Key == c.checkpoints[equal].Object
	}
	return keys
}
