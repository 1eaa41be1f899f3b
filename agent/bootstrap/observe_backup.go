package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
)

const (
	// storeAge is how long an answer of the stores is taken as read: a start that waits looks more often than a store may
	// be asked, which costs a listing and an object per lineage.
	storeAge = 10 * time.Second
	// storeTimeout of the one object that a bootstrap writes.
	storeTimeout = time.Minute
)

// bootstraps is what the stores report the bootstrap that is due.
type bootstraps struct {
	fact   Backup
	order  Order
	detail string
	// epoch is above that of every lineage in the cluster's own place, 0 where it has none.
	epoch uint32
	// source of an order that can be carried out, and what is restored from it: a plan, or a file where it has a key.
	source store.Store
	plan   chain.Plan
	file   store.Object
	// around are damaged objects that the plan does without.
	around []string
	// read is when the stores were asked.
	read time.Time
}

// observeBackup asks the stores, or remembers what they answered.
func (b *Bootstrapper) observeBackup(ctx context.Context, o *observation) {
	if b.bootstraps.read.IsZero() || time.Since(b.bootstraps.read) > storeAge {
		b.bootstraps = b.askStores(ctx)
		b.bootstraps.read = time.Now()
	}
	o.bootstraps = b.bootstraps
	if o.bootstraps.fact == BackupPresent && o.bootstraps.order == OrderRestore {
		b.restores.recall(&o.bootstraps)
	}
	o.Backup, o.Order = o.bootstraps.fact, o.bootstraps.order
	o.note("backup", o.bootstraps.detail)
}

// askStores asks whether the cluster was formed before, and for a plan of what is to be restored. The flag and the
// configuration file are read here too: an agent that cannot read them must not form an empty cluster. A listing may take as long as it
// gets on: a bootstrap that gives one up would never come, and nothing waits for it but the bootstrap.
func (b *Bootstrapper) askStores(ctx context.Context) bootstraps {
	ctx, cancel := store.Patient(ctx, store.Patience)
	defer cancel()
	answer := bootstraps{fact: NoBackup, order: NoOrder}
	order, err := b.cfg.RestoreOrder()
	if order != nil || err != nil {
		answer.order = OrderRestore
	}
	if err != nil {
		return answer.because(StoreUnreachable, err)
	}
	reloadable, err := config.ReadReloadable(b.cfg.ConfigPath)
	if err != nil {
		return answer.because(StoreUnreachable, err)
	}
	backup := reloadable.Backup
	var own chain.Catalog
	if backup != nil {
		if _, own, err = b.catalog(ctx, backup.Store, backup.Prefix); err != nil {
			return answer.because(StoreUnreachable, err)
		}
		if answer.epoch, err = epochAbove(own); err != nil {
			return answer.because(BackupUnusable, err)
		}
		if err := formedBefore(own, b.cfg.ClusterUID, order != nil); err != nil {
			answer.order = NoOrder // it is of a bootstrap that was
			return answer.because(BackupPresent, err)
		}
	}
	if order == nil {
		return answer
	}
	return b.planRestore(ctx, answer, order, backup)
}

// because says what was found, and in words why.
func (a bootstraps) because(fact Backup, err error) bootstraps {
	a.fact, a.detail = fact, err.Error()
	return a
}

var errNoStore = errors.New("--restore names no store, and the configuration file has none yet")

func (b *Bootstrapper) planRestore(ctx context.Context, answer bootstraps, order *config.Restore, backup *config.Backup) bootstraps {
	raw := order.Store
	switch {
	case order.Unresolved != "":
		return answer.because(StoreUnreachable, errors.New(order.Unresolved))
	case len(raw) > 0:
	case backup != nil:
		raw = backup.Store
	default:
		return answer.because(StoreUnreachable, errNoStore)
	}
	if order.File != "" {
		return b.findFile(ctx, answer, order.File, raw)
	}
	source, catalog, err := b.catalog(ctx, raw, order.Prefix)
	if err != nil {
		return answer.because(StoreUnreachable, err)
	}
	target := chain.Target{
		Revision: order.Revision, Name: order.Name, Lineage: chain.Lineage(order.Lineage), Without: b.restores.others(order.Name),
	}
	if order.Time != nil {
		target.Time = *order.Time
	}
	catalog = withoutLost(catalog, b.cfg.ClusterUID)
	plan, err := catalog.Plan(target)
	if err != nil {
		return answer.because(classifyPlan(err), err)
	}
	if plan, answer.around, err = b.restores.steer(catalog, target, plan, time.Now()); err != nil {
		return answer.because(BackupUnusable, err)
	}
	answer.fact, answer.source, answer.plan = BackupPresent, source, plan
	return answer
}

// catalog is what a store holds below a prefix.
func (b *Bootstrapper) catalog(ctx context.Context, raw json.RawMessage, prefix string) (store.Store, chain.Catalog, error) {
	s, err := b.storeOf(ctx, raw)
	if err != nil {
		return nil, chain.Catalog{}, err
	}
	catalog, err := chain.Read(ctx, s, prefix)
	return s, catalog, err
}

func (b *Bootstrapper) storeOf(ctx context.Context, raw json.RawMessage) (store.Store, error) {
	c, err := store.ParseConfig(raw)
	if err != nil {
		return nil, err
	}
	return b.opened(ctx, c)
}

func (b *Bootstrapper) opened(ctx context.Context, c store.Config) (store.Store, error) {
	s, err := b.openStore(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open the backup store: %w", err)
	}
	return s, nil
}
