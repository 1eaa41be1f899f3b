package start

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
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
	a.fact, a.detail, a.auth = fact, err.Error(), errors.Is(err, restore.ErrAuth)
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

// observeSource queries the cluster to join and this member's entry in it. Its member list does not change the facts
// of the start table, because those describe the quorum of the own cluster.
func (b *Bootstrapper) observeSource(ctx context.Context, o *observation) {
	o.source = AdoptionFacts{Source: SourceSilent, Claimed: claimedBy(o), Entry: NoEntry, Needs: Unmet}
	endpoints, err := b.cfg.JoinEndpoints()
	if err != nil {
		o.note("source", err.Error())
		return
	}
	sight := b.sourceSight(ctx, endpoints, o.record.record.ClusterID)
	peerURL := b.peerURL(b.cfg.Member)
	source, detail := sourceOf(&b.cfg, &sight, peerURL)
	o.source.Source = source
	o.note("source", detail)
	if sight.listErr != nil {
		return
	}
	o.view = sight.view
	for _, status := range sight.statuses {
		// A learner receives the complete file.
		o.view.DBSizeInUse = max(o.view.DBSizeInUse, status.DBSize)
	}
	var listed Listed
	o.entry, listed, _ = ListingOf(o.view, b.cfg.Member, peerURL, 0)
	if listed&isListed != 0 {
		o.Joining = JoiningOf(b.joining.asked, b.joining.id, b.joining.attempts, o.entry.ID)
	}
	o.source.Entry = entryOf(listed, o.entry, o.Joining)
	b.observeAdoptionNeeds(ctx, o)
}

// claimedBy reports whether this Pod has claimed a bootstrap by joining.
func claimedBy(o *observation) Claimed {
	if record := o.record.record; o.Record == FormingByUs && record.Adopted() && record.ClusterID != 0 {
		return Intended
	}
	return Unintended
}

func entryOf(listed Listed, entry membership.Member, joining Joining) Entry {
	switch {
	case listed&isListed == 0:
		return NoEntry
	case !entry.Learner:
		return VoterEntry
	case listed == Unstarted && joining == JoiningNow:
		return NewLearner
	default:
		return OldLearner
	}
}

// observeAdoptionNeeds checks that the database fits on the volume and that the own name resolves, as before any other
// member add.
func (b *Bootstrapper) observeAdoptionNeeds(ctx context.Context, o *observation) {
	for _, need := range []func(context.Context, *observation) error{b.needSpace, b.needName} {
		if err := need(ctx, o); err != nil {
			o.note("source needs", err.Error())
			return
		}
	}
	o.source.Needs = Met
}

// sourceSight asks the cluster for a linearizable list, each endpoint for its cluster ID, and each member for its
// status. clusterID is the cluster whose join has begun, 0 for any.
func (b *Bootstrapper) sourceSight(ctx context.Context, endpoints []string, clusterID uint64) sourceSight {
	var s sourceSight
	s.view, s.listErr = membership.Observe(ctx, b.dial, membership.Query{
		Endpoints: endpoints, ClusterID: clusterID, Timeout: endpointTimeout,
	})
	if s.listErr != nil {
		if err := b.rejection(ctx, endpoints); err != nil && !errors.Is(s.listErr, membership.ErrOtherCluster) {
			s.listErr = err
		}
		return s
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	others, members := make([]bool, len(endpoints)), s.view.Members
	statuses, errs, peerErrs := make([]membership.Status, len(members)), make([]error, len(members)), make([]error, len(members))
	var group errgroup.Group
	group.Go(func() error { s.readErr = b.linearizable(ctx, s.view.Endpoint); return nil })
	for i, endpoint := range endpoints {
		group.Go(func() error {
			status, err := b.status(ctx, endpoint)
			others[i] = err == nil && status.ClusterID != s.view.ClusterID
			return nil
		})
	}
	for i, m := range members {
		group.Go(func() error {
			statuses[i], errs[i] = membership.StatusOf(ctx, b.dial, s.view.ClusterID, m)
			return nil
		})
		group.Go(func() error { peerErrs[i] = b.peerAccepts(ctx, m); return nil })
	}
	_ = group.Wait() // each keeps its error
	for i, endpoint := range endpoints {
		if others[i] {
			s.foreign = append(s.foreign, endpoint)
		}
	}
	s.statuses, s.statusErrs, s.peerErrs = map[uint64]membership.Status{}, map[uint64]error{}, map[uint64]error{}
	for i, m := range members {
		s.peerErrs[m.ID] = peerErrs[i]
		if s.statusErrs[m.ID] = errs[i]; errs[i] == nil {
			s.statuses[m.ID] = statuses[i]
		} else if err := b.rejection(outer, m.ClientURLs); err != nil {
			s.statusErrs[m.ID] = err
		}
	}
	return s
}

// linearizable reads one key through raft of the cluster at endpoint.
func (b *Bootstrapper) linearizable(ctx context.Context, endpoint string) (err error) {
	client, done, err := b.dial(ctx, endpoint)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	if err := membership.Linearizable(ctx, client); err != nil {
		return err
	}
	// The client certificate can name a user who may read. The agents authenticate to their own etcd in another way.
	auth, err := membership.ReadAuthSwitch(ctx, client)
	if err == nil && (auth.Enabled || auth.Denied) {
		err = errAuthEnabled
	}
	return err
}

// externalsIn returns the IDs of the voters that exist before this member joins.
func externalsIn(view membership.View, own membership.Member) []string {
	var externals []string
	for _, m := range view.Voters() {
		if m.ID != own.ID {
			externals = append(externals, leases.FormatID(m.ID))
		}
	}
	return externals
}
