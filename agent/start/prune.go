package start

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// pruneInterval is how often an agent looks for quarantined data whose time ended while etcd runs. The data is kept for days, so that an
// hour more is nothing, and a look that finds none costs no request.
const pruneInterval = time.Hour

// startRoom is the free space in bytes that etcd needs at least to go on after a start: one file of its log, which it allocates in advance.
const startRoom = 64 << 20

// processStart is the zero of a clock that is never set.
var processStart = time.Now()

// PruneQuarantined deletes quarantined data whose time ends while etcd runs. It runs after FinishStart, until ctx ends, which must end when
// etcd does. It never calls stop.
func (b *Bootstrapper) PruneQuarantined(ctx context.Context, _ func(ctx context.Context, reason string) error) error {
	identityFile, err := datadir.ReadIdentityFile(b.cfg.VolumePath)
	if err != nil {
		return fmt.Errorf("delete quarantined data: %w", err)
	}
	s := &finisher{b: b, log: b.log, identityFile: withScheme(&b.cfg, identityFile)}
	var said loop.Change[string]
	for loop.Sleep(ctx, b.pruneInterval) {
		switch _, err := s.pruned(ctx); {
		case err == nil:
			said.To("")
		case said.To(err.Error()) && ctx.Err() == nil:
			s.log.WarnContext(ctx, "quarantined data not deleted, retrying", "err", err)
		}
	}
	return nil
}

// Clocks reads the clock of the node and that of the API server.
func (b *Bootstrapper) Clocks() datadir.Clocks {
	c := datadir.Clocks{Node: time.Now()}
	if b.serverTime != nil {
		c.Server, _ = b.serverTime()
	}
	return c
}

// droppable returns the quarantined data that may go by its content and by the clocks.
func (b *Bootstrapper) droppable(all []datadir.Quarantined, now datadir.Clocks, full bool) []datadir.Quarantined {
	watched := func(a datadir.Quarantined) datadir.Watched { return datadir.WatchedFor(b.watch.Seen(a), b.watchTime) }
	return datadir.Droppable(all, now, datadir.RoomOf(b.cfg.VolumePath), watched, full)
}

// pruned deletes quarantined data when the rules of datadir allow it.
func (s *finisher) pruned(ctx context.Context) (bool, error) {
	all, err := datadir.AllQuarantined(s.b.cfg.VolumePath)
	if err != nil {
		return false, err
	}
	now := time.Now()
	s.b.watch.Look(all, now, now.Sub(processStart))
	left, err := datadir.Leftovers(s.b.cfg.VolumePath)
	// Kubernetes is asked only if something can go as far as this node knows.
	if err != nil || len(s.b.droppable(all, datadir.Clocks{Node: now, Server: now}, false))+len(left) == 0 {
		return err == nil, err
	}
	d, err := s.decidePrune(ctx)
	all = s.b.droppable(all, s.b.Clocks(), false)
	if err == nil && len(all)+len(left) == 0 {
		return true, nil
	}
	if err != nil || d.Verdict != datadir.DeleteQuarantined {
		return false, errors.Join(err, fmt.Errorf("%d quarantined data directories are kept: %s", len(all), d.Rule))
	}
	if err := datadir.DropLeftovers(s.b.cfg.VolumePath); err != nil {
		return false, err
	}
	return true, s.b.prune(ctx, d.Rule, all, s.identityFile)
}

// prune deletes quarantined data by a rule.
func (b *Bootstrapper) prune(ctx context.Context, rule string, all []datadir.Quarantined, own datadir.IdentityFile) error {
	var names []string
	for _, quarantined := range datadir.PruneOrder(all, uint64(own.ClusterID)) {
		names = append(names, quarantined.Name)
	}
	if err := datadir.Prune(b.cfg.VolumePath, names...); err != nil {
		return err
	}
	b.log.InfoContext(ctx, "quarantined data deleted", "rule", rule, "quarantined", names)
	return nil
}

// makeRoom deletes quarantined data whose time is over, if the volume has no room for what follows from the decision. An etcd that cannot
// start never gets to FinishStart.
func (b *Bootstrapper) makeRoom(ctx context.Context, mode Mode, o *observation) error {
	all, err := datadir.AllQuarantined(b.cfg.VolumePath)
	if err != nil || len(all) == 0 || o.record.err != nil {
		return err
	}
	free, err := volume.Free(b.cfg.VolumePath)
	if err != nil || free >= roomFor(mode, datadir.LargestDatabase(b.cfg.VolumePath, all)) && !b.lacksSpace(o.record.record.Order()) {
		return err
	}
	all, rule := b.expired(all, mode, o)
	if len(all) == 0 {
		return nil
	}
	return b.prune(ctx, rule, all, o.volume.identityFile)
}

// expired returns the quarantined data that may go before the next start of etcd, and the rule.
func (b *Bootstrapper) expired(all []datadir.Quarantined, mode Mode, o *observation) ([]datadir.Quarantined, string) {
	d := datadir.DecidePrune(roomFacts(mode, o))
	if d.Verdict != datadir.DeleteExpired {
		return nil, d.Rule
	}
	return b.droppable(all, b.Clocks(), true), d.Rule
}

// reclaimable is the space in bytes that the agent frees before it forms the raft group again on this volume: that of expired copies, and of
// what an attempt left. druid need not ask for a larger volume then. What cannot be read does not count.
func (b *Bootstrapper) reclaimable(o *observation) int64 {
	if o.record.err != nil {
		return 0
	}
	var names []string
	if o.record.record.Order() != nil || !placeable(b.cfg, o.volume, o.own, o.record.record) {
		names, _ = datadir.Leftovers(b.cfg.VolumePath)
	}
	if all, err := datadir.AllQuarantined(b.cfg.VolumePath); err == nil && o.Data&(Intact|Stale|Corrupt) != 0 {
		all, _ = b.expired(all, ModeRecover, o)
		for _, a := range all {
			names = append(names, a.Name)
		}
	}
	return datadir.SpaceOf(b.cfg.VolumePath, names...)
}

// roomFor is the free space in bytes that what follows from a decision needs at least. Data that is made on the volume, or received from the
// leader, takes as much as the largest database that is there.
func roomFor(mode Mode, database int64) int64 {
	switch mode {
	case ModeJoin, ModeRecover, ModeRestore:
		return database + datadir.LogRoom
	default:
		return startRoom
	}
}

// lacksSpace says whether the last attempt to carry out the order failed because the volume is too small.
func (b *Bootstrapper) lacksSpace(order *leases.Recovery) bool {
	return order != nil && b.unrestorable.order == order.Name() && b.unrestorable.failure == leases.FailedSpace
}

// roomFacts are what is known before etcd runs. The data of the record's raft group is somewhere if a quorum of it answers, or if this
// volume has it: as intact data, as data that a recovery built next to it, or as the source of a recovery. While an order stands, the
// record names the raft group from before it. Before an order, the disk of each member can become the source.
func roomFacts(mode Mode, o *observation) datadir.PruneFacts {
	record, own := o.record.record, o.volume.identityFile
	if mode == ModePlace {
		own = o.volume.built
	}
	source := (mode == ModePrepare || mode == ModeRecover) && (record.Order() == nil || record.Order().Mode == leases.RecoverSurvivor)
	f := pruneFactsOf(record, own)
	f.Full, f.Current = rules.Yes, answer(
		o.Listed != NoQuorum && record.Phase == leases.PhaseFormed && o.view.ClusterID == record.ClusterID && record.ClusterID != 0 ||
			(o.Data == Intact || mode == ModePlace || source) && own.ClusterID != 0 && record.ClusterID == uint64(own.ClusterID) && record.FormedEpoch == own.Epoch)
	return f
}

func (s *finisher) decidePrune(ctx context.Context) (rules.Decision[datadir.PruneVerdict], error) {
	r := s.record(ctx)
	if r.err != nil {
		return datadir.DecidePrune(unknownPruneFacts), r.err
	}
	f := pruneFactsOf(r.record, s.identityFile)
	view, err := membership.Observe(ctx, s.b.dial, membership.Query{
		Endpoints: []string{s.b.local()}, ClusterID: uint64(s.identityFile.ClusterID), Timeout: endpointTimeout,
	})
	if err != nil {
		return datadir.DecidePrune(f), err
	}
	entry, ok := view.Member(uint64(s.identityFile.MemberID))
	f.Voter = answer(ok && entry.Started() && !entry.Learner)
	f.Quorum = answer(membership.QuorumWithout(view, 0, s.b.health(ctx, view.Voters())) == rules.Yes)
	return datadir.DecidePrune(f), nil
}

// unknownPruneFacts are those of an agent that has read nothing. They keep the data.
var unknownPruneFacts = datadir.PruneFacts{Voter: rules.Unknown, Quorum: rules.Unknown, Current: rules.Unknown, Full: rules.No, Undecided: rules.Unknown}

// pruneFactsOf is what the record says about the data in quarantine of a member. What the raft group says is not known yet.
func pruneFactsOf(record leases.Record, own datadir.IdentityFile) datadir.PruneFacts {
	f := unknownPruneFacts
	f.Current = answer(record.Phase == leases.PhaseFormed && record.ClusterID == uint64(own.ClusterID) && record.FormedEpoch == own.Epoch)
	f.Undecided = answer(record.Undecided != leases.Undecided{})
	return f
}
