package leader

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// Results of a defragmentation, as metrics and Leases report them.
const (
	DefragDone   = "defragmented"
	DefragFailed = "failed"
	// DefragLeft: the agent does not lead any more, and etcd goes on: the stall may be longer than what was seen.
	DefragLeft = "left"
)

// Result of it in one word.
func (d Defragmented) Result() string {
	switch {
	case errors.Is(d.Err, context.Canceled):
		return DefragLeft
	case d.Err != nil:
		return DefragFailed
	}
	return DefragDone
}

// noteTimeout of the note, which is written also when leadership ended while etcd worked.
const noteTimeout = 5 * time.Second

// noteDefrag writes what came of a defragmentation into the member's Lease, once: a note that is lost stands in log and metric.
func (r *round) noteDefrag(ctx context.Context, d Defragmented) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	note := leases.Defragmentation{
		At: time.Now().UTC().Truncate(time.Second), Result: d.Result(), Took: d.Took.Round(time.Millisecond), Before: d.Before.Size, After: d.After.Size,
	}
	crash.Before("note-defragmentation")
	err := r.Store.NoteDefragmentation(ctx, d.Member, note)
	crash.After("note-defragmentation")
	if err != nil {
		r.Log.WarnContext(ctx, "defragmentation not noted", "member", d.Member, "err", err)
	}
}
