package start

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
)

const (
	// storeAge is how long a response of the stores stays valid. A waiting start checks more often than it may query a
	// store: each query costs a listing and one object per lineage.
	storeAge = 10 * time.Second
	// storeTimeout bounds the write of the one object of a bootstrap.
	storeTimeout = time.Minute
)

// storeAnswer is what the stores answered to the requests before a bootstrap.
type storeAnswer struct {
	fact   Backup
	order  Order
	detail string
	// auth says that the backup is unusable because authentication is on in it.
	auth bool
	// epoch is above that of every lineage in the cluster's own place, 0 if it has no place.
	epoch uint32
	// source is the store of a request that can be carried out. plan or, if it has a key, file is what is restored
	// from it.
	source store.Store
	plan   catalog.Plan
	file   store.Object
	// around are the damaged objects that the plan skips.
	around []string
	// read is when the stores were queried.
	read time.Time
}

// observeBackup queries the stores, or uses their last response.
func (b *Bootstrapper) observeBackup(ctx context.Context, o *observation) {
	if b.storeAnswer.read.IsZero() || time.Since(b.storeAnswer.read) > storeAge {
		b.storeAnswer = b.askStores(ctx)
		b.storeAnswer.read = time.Now()
	}
	o.storeAnswer = b.storeAnswer
	if o.storeAnswer.fact == BackupPresent && o.storeAnswer.order == OrderRestore {
		b.restores.recall(&o.storeAnswer, b.authData())
	}
	o.Backup, o.Order = o.storeAnswer.fact, o.storeAnswer.order
	o.note("backup", o.storeAnswer.detail)
}

// askStores finds out whether the cluster was formed before, and plans the restore. It also reads the flag and the
// configuration file, because an agent that cannot read them must not form an empty cluster. A listing has no time
// limit while it makes progress: only the bootstrap waits for it, and without the listing there is no bootstrap.
func (b *Bootstrapper) askStores(ctx context.Context) storeAnswer {
	ctx, cancel := store.Patient(ctx, store.MaxWait)
	defer cancel()
	answer := storeAnswer{fact: NoBackup, order: NoOrder}
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
	var own catalog.Catalog
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

// because returns a with a fact and the reason for it.
func (a storeAnswer) because(fact Backup, err error) storeAnswer {
	a.fact, a.detail, a.auth = fact, store.Brief(err), errors.Is(err, restore.ErrAuth)
	return a
}

var errNoStore = errors.New("--restore names no store, and the configuration file does not contain one yet")

func (b *Bootstrapper) planRestore(ctx context.Context, answer storeAnswer, order *config.Restore, backup *config.Backup) storeAnswer {
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
	source, listed, err := b.catalog(ctx, raw, order.Prefix)
	if err != nil {
		return answer.because(StoreUnreachable, err)
	}
	target := catalog.Target{
		Revision: order.Revision, Name: order.Name, Lineage: catalog.Lineage(order.Lineage), Without: b.restores.others(order.Name),
	}
	if order.Time != nil {
		target.Time = *order.Time
	}
	listed = withoutLost(listed, b.cfg.ClusterUID)
	plan, err := listed.Plan(target)
	if err != nil {
		return answer.because(classifyPlan(err), err)
	}
	if plan, answer.around, err = b.restores.choosePlan(listed, target, plan, time.Now()); err != nil {
		return answer.because(BackupUnusable, err)
	}
	answer.fact, answer.source, answer.plan = BackupPresent, source, plan
	return answer
}

// catalog lists the content of a store below a prefix.
func (b *Bootstrapper) catalog(ctx context.Context, raw json.RawMessage, prefix string) (store.Store, catalog.Catalog, error) {
	s, err := b.storeOf(ctx, raw)
	if err != nil {
		return nil, catalog.Catalog{}, err
	}
	listed, err := catalog.Read(ctx, s, prefix)
	return s, listed, err
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

// findFile finds the file to restore and checks a few of its pages for whether it can be restored.
func (b *Bootstrapper) findFile(ctx context.Context, answer storeAnswer, key string, raw json.RawMessage) storeAnswer {
	c, err := store.ParseConfig(raw)
	if err != nil {
		return answer.because(StoreUnreachable, err)
	}
	c.ClientEncryption = nil // it is as etcd wrote it, whatever becomes of the cluster's own backups
	if answer.source, err = b.opened(ctx, c); err != nil {
		return answer.because(StoreUnreachable, err)
	}
	file, err := store.Find(ctx, answer.source, key)
	switch {
	case errors.Is(err, store.ErrAbsent):
		return answer.because(NoBackup, fmt.Errorf("%w; upload the file to start the restore", err))
	case errors.Is(err, store.ErrInvalid):
		return answer.because(BackupUnusable, err)
	case err != nil:
		return answer.because(StoreUnreachable, err)
	}
	_, err = restore.CheckFile(ctx, restore.Config{
		Store: answer.source, File: file, EtcdVersion: b.cfg.EtcdVersion, Quota: b.cfg.Quota(), Auth: b.authData(),
	})
	switch {
	case err != nil && isUnusable(err):
		return answer.because(BackupUnusable, err)
	case err != nil:
		return answer.because(StoreUnreachable, err)
	}
	answer.fact, answer.file = BackupPresent, file
	return answer
}

// decide returns the decision of Decide. If that lets this member bootstrap, and spec.bootstrap.join names a cluster
// to join, it returns the decision of the adoptions table.
func (b *Bootstrapper) decide(o *observation) Decision {
	d := Decide(o.Facts)
	if d.Mode == ModeRefuse && d.Detail == "backup" && o.storeAnswer.auth {
		d.Rule = RuleAuthRequired
	}
	if d.Mode != ModeNew || b.cfg.Join == "" {
		return d
	}
	o.adoption = decideAdoption(o.source)
	return o.adoption.Decision
}
