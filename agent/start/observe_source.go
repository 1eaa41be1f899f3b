package start

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// observeSource queries the cluster to join and this member's entry in it. Its member list does not change the facts
// of the start table, because those describe the quorum of the own cluster.
func (b *Bootstrapper) observeSource(ctx context.Context, o *observation) {
	o.source = AdoptionFacts{Source: SourceSilent, Claimed: claimedBy(o), Entry: NoEntry, Needs: Unmet}
	endpoints, err := b.cfg.JoinEndpoints()
	if err != nil {
		o.note("source", membership.Brief(err))
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
			o.note("source needs", membership.Brief(err))
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
