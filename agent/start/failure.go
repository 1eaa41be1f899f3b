package start

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// permanentFailure is an order to restore a backup that no later attempt can carry out before a user acts. The claim of the volume
// says so. druid releases an order to restore in place. One after a lost quorum stands, so that the agent tries again: a user can add
// a key, replace an object or enlarge the volume meanwhile.
type permanentFailure struct {
	// order is its name, empty for none.
	order   string
	failure leases.RestoreFailure
	// attempts is how many in a row failed in this way.
	attempts int
	// words are the error for users.
	words string
}

// attemptsAlike in a row that fail in the same way are a permanent failure. One is not enough: a store that answers 404 for a moment,
// an object that changes while it is read, and a Secret that the kubelet replaces look like something that stays.
const attemptsAlike = 2

// releaseInterval is how often the agent looks whether an order that fails permanently was released.
const releaseInterval = 2 * time.Second

// errPlanned: the backups lead to something else than the plan that was approved.
var errPlanned = errors.New("the backups do not lead to what was approved")

// failureOf says why the same attempt fails again, for an error of an attempt to restore a backup. It is empty for an error that can
// pass: the store does not answer, or it denies access.
func failureOf(err error) leases.RestoreFailure {
	switch {
	case errors.Is(err, restore.ErrQuota):
		return leases.FailedQuota
	case errors.Is(err, restore.ErrAuth):
		return leases.FailedAuth
	case errors.Is(err, restore.ErrVersion), errors.Is(err, store.ErrNewer):
		return leases.FailedVersion
	case errors.Is(err, restore.ErrSpace):
		return leases.FailedSpace
	case errors.Is(err, store.ErrNoKey):
		return leases.FailedKey
	case isUnusable(err), isUnplanned(err), errors.Is(err, errPlanned), errors.Is(err, store.ErrAbsent):
		return leases.FailedBackups
	default:
		return ""
	}
}

// fails notes how an attempt to carry out an order failed.
func (b *Bootstrapper) fails(ctx context.Context, order *leases.Recovery, err error) {
	if ctx.Err() != nil {
		return
	}
	was, failure := b.unrestorable, failureOf(err)
	b.unrestorable = permanentFailure{}
	if order.Mode == leases.RecoverSurvivor || failure == "" {
		return
	}
	b.unrestorable = permanentFailure{order: order.Name(), failure: failure, attempts: 1, words: err.Error()}
	if was.order == order.Name() && was.failure == failure {
		b.unrestorable.attempts += was.attempts
	}
	if b.failureIn(order.Name()) == "" {
		return
	}
	b.log.WarnContext(ctx, "restore failed, and another attempt would fail too", "order", order.Name(), "failure", string(failure), "err", err)
}

// failureIn says why the order called name cannot be carried out. It is empty if it can be, and without an order.
func (b *Bootstrapper) failureIn(name string) leases.RestoreFailure {
	if name == "" || name != b.unrestorable.order || b.unrestorable.attempts < attemptsAlike {
		return ""
	}
	return b.unrestorable.failure
}

// awaitsRelease reports why an order to restore in place cannot be carried out, and waits for its release. It returns false for an order that
// can be, and for one that has no other end.
func (b *Bootstrapper) awaitsRelease(ctx context.Context, order *leases.Recovery, inform func(string)) bool {
	if !order.Restores() || b.failureIn(order.Name()) == "" {
		return false
	}
	inform(b.unrestorable.words)
	loop.Sleep(ctx, releaseInterval)
	return true
}
