package bootstrap

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// spoiledFor is how long a plan is not tried again whose objects turned out to be unusable: a person may put a good copy in
// a broken one's place, under its name.
const spoiledFor = 5 * time.Minute

// restores is what became of the attempts to restore that this process made.
type restores struct {
	// failures in a row.
	failures int
	// spoiled is why plan, or file, cannot be carried out, at that time.
	spoiled error
	plan    chain.Plan
	file    store.Object
	at      time.Time
	// without are fulls that hold more than the target.
	without []string
	// damaged are the objects that an attempt found damaged, by their keys, and what it said of them. Until all of them are looked at
	// again it only grows, so each is a reason for one attempt at another plan.
	damaged map[string]error
}

// failed remembers an attempt.
func (r *restores) failed(plan chain.Plan, file store.Object, err error, now time.Time) {
	r.failures++
	switch {
	case errors.Is(err, restore.ErrTooNew):
		r.without = append(r.without, plan.Full.Key)
	case isUnusable(err):
		r.spoiled, r.plan, r.file, r.at = err, plan, file, now
		if key, damaged := damagedIn(plan, err); damaged {
			if r.damaged == nil {
				r.damaged = map[string]error{}
			}
			r.damaged[key] = err
		}
	}
}

// recall takes an answer back whose plan was tried in vain.
func (r *restores) recall(answer *bootstraps) {
	if r.spoiled != nil && time.Since(r.at) < spoiledFor && reflect.DeepEqual(r.plan, answer.plan) && r.file == answer.file {
		*answer = answer.because(BackupUnusable, r.spoiled)
	}
}

// others are the fulls to plan without, but for one that is asked for by its name.
func (r *restores) others(name string) []string {
	return slices.DeleteFunc(slices.Clone(r.without), func(key string) bool { return name != "" && strings.HasSuffix(key, name) })
}

// isUnusable says whether the same attempt would end in the same way: the objects are to blame, and not the way to them; or the disk, and that only
// shows when all of them are read. What a newer druid wrote is unusable here.
func isUnusable(err error) bool {
	for _, known := range []error{
		restore.ErrSwapped, restore.ErrShort, restore.ErrFork, restore.ErrVersion, restore.ErrQuota, restore.ErrAuth, restore.ErrSpaceBeside, store.ErrDamaged, store.ErrNewer,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, full := errors.AsType[*snapshot.DamagedError](err)
	_, file := errors.AsType[*snapshot.FileError](err)
	_, changes := errors.AsType[*delta.DamagedError](err)
	_, gap := errors.AsType[*restore.GapError](err)
	return full || file || changes || gap
}

// progressEvery is how often progress is reported: each time costs a patch of the member's Lease.
const progressEvery = 5 * time.Second

// progress reports a restore, in the Lease and in the log.
func (b *Bootstrapper) progress(ctx context.Context, inform func(string)) func(restore.Progress) {
	notified, pace := time.Now(), restore.Pace{}
	return func(at restore.Progress) {
		now := time.Now()
		speed := pace.Observe(at, now)
		if now.Sub(notified) < progressEvery {
			return
		}
		notified = now
		inform("restoring " + speed.Words(at))
		b.log.InfoContext(ctx, "restoring", "phase", string(at.Phase), "bytes", at.Bytes, "totalBytes", at.TotalBytes, "deltas", at.Deltas,
			"totalDeltas", at.TotalDeltas, "events", at.Events, "revision", at.Revision, "perSecond", int64(speed.PerSecond), "left", leftOf(speed))
	}
}

func leftOf(s restore.Speed) string {
	if !s.Known {
		return "unknown"
	}
	return s.Left.String()
}
