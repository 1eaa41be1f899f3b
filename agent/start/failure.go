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

// hopeless is an order to restore in place that no later attempt can carry out. The claim of the volume says so, and druid releases
// the order.
type hopeless struct {
	// order is its name, empty for none.
	order   string
	failure leases.RestoreFailure
	// words are the error for users.
	words string
}

// releaseInterval is how often the agent looks whether a hopeless order was released.
const releaseInterval = 2 * time.Second

// errPlanned: the backups lead to something else than the plan that was approved.
var errPlanned = errors.New("the backups do not lead to what was approved")

// failureOf says why the same attempt fails again, for an error of an attempt to restore in place. It is empty for an error that can
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

// fails notes that an order cannot be carried out.
func (b *Bootstrapper) fails(ctx context.Context, order *leases.Recovery, err error) {
	failure := failureOf(err)
	if !order.Restores() || failure == "" || ctx.Err() != nil {
		return
	}
	b.hopeless = hopeless{order: order.Name(), failure: failure, words: err.Error()}
	b.log.WarnContext(ctx, "restore failed, druid releases the order", "order", order.Name(), "failure", string(failure), "err", err)
}

// failureIn says why the order called name cannot be carried out. It is empty if it can be, and without an order.
func (b *Bootstrapper) failureIn(name string) leases.RestoreFailure {
	if name == "" || name != b.hopeless.order {
		return ""
	}
	return b.hopeless.failure
}

// despairs reports why an order cannot be carried out, and waits for its release. It returns false for an order that can be.
func (b *Bootstrapper) despairs(ctx context.Context, order *leases.Recovery, inform func(string)) bool {
	if b.failureIn(order.Name()) == "" {
		return false
	}
	inform(b.hopeless.words)
	loop.Sleep(ctx, releaseInterval)
	return true
}
