package harness

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Loss is what etcd does not have any more of the writes that it acknowledged.
type Loss struct {
	// Writes are how many are lost. Known are those of them whose revision was reported before the loss. Kept are those that
	// etcd still has.
	Writes, Known, Kept int
	// Age is the time from when the first of them was acknowledged to the last acknowledged write before the loss.
	Age time.Duration
}

// MayLose says that a recovery follows that may cost acknowledged writes, as many as its plan announces. Lost counts them.
func (w *Writer) MayLose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked = true
}

// Lost counts the writes that etcd acknowledged before the time of the recovery and that it does not have. Those up to the revision
// known were reported. From now on they do not count as acknowledged, so that Stop demands all others. It is unsafe if all of
// them are lost: that is an empty cluster.
func (w *Writer) Lost(t testing.TB, etcd *clientv3.Client, before time.Time, known int64) (loss Loss) {
	t.Helper()
	var found map[string]int64
	Eventually(t, maxWait, "a linearizable read of all writes", func(ctx context.Context) (err error) {
		found, err = w.held(ctx, etcd)
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	var first, last time.Time
	for key, revision := range w.acked {
		at := w.at[key]
		if at.After(before) {
			continue
		}
		if at.After(last) {
			last = at
		}
		if found[key] == revision {
			loss.Kept++
			continue
		}
		loss.Writes++
		if revision <= known {
			loss.Known++
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		delete(w.acked, key)
	}
	if loss.Writes > 0 {
		loss.Age = last.Sub(first)
	}
	if loss.Kept == 0 {
		Unsafe(t, "none of %d writes is left that etcd acknowledged before the recovery", loss.Writes)
	}
	return loss
}
