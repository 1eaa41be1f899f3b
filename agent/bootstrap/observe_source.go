package bootstrap

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// decide is Decide, and where that gives a bootstrap to us although a running cluster is to be joined, what the table of the adoptions
// makes of it.
func (b *Bootstrapper) decide(o *observation) Decision {
	if d := Decide(o.Facts); d.Mode != ModeNew || b.cfg.Join == "" {
		return d
	}
	o.adoption = decideAdoption(o.source)
	return o.adoption.Decision
}

// observeSource looks at the cluster that is to be joined, and at our place in it. What it lists is kept from the facts of the
// start: those are about the quorum of a cluster that is ours.
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
		// A learner is sent the whole file.
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

// claimedBy says whether this Pod has claimed the bootstrap as one by joining.
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

// observeAdoptionNeeds looks whether the volume holds the database and our name resolves, as before any other add.
func (b *Bootstrapper) observeAdoptionNeeds(ctx context.Context, o *observation) {
	for _, need := range []func(context.Context, *observation) error{b.needSpace, b.needName} {
		if err := need(ctx, o); err != nil {
			o.note("source needs", err.Error())
			return
		}
	}
	o.source.Needs = Met
}

// sourceSight asks the endpoints for a linearizable list, each of them for its cluster, and each member for itself. clusterID is the
// one that was begun to be joined, 0 for any.
func (b *Bootstrapper) sourceSight(ctx context.Context, endpoints []string, clusterID uint64) sourceSight {
	var s sourceSight
	s.view, s.listErr = membership.Observe(ctx, b.dial, membership.Query{
		Endpoints: endpoints, ClusterID: clusterID, Timeout: endpointTimeout,
	})
	if s.listErr != nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	others, members := make([]bool, len(endpoints)), s.view.Members
	statuses, errs := make([]membership.Status, len(members)), make([]error, len(members))
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
	}
	_ = group.Wait() // each keeps its error
	for i, endpoint := range endpoints {
		if others[i] {
			s.stray = append(s.stray, endpoint)
		}
	}
	s.statuses, s.statusErrs = map[uint64]membership.Status{}, map[uint64]error{}
	for i, m := range members {
		if s.statusErrs[m.ID] = errs[i]; errs[i] == nil {
			s.statuses[m.ID] = statuses[i]
		}
	}
	return s
}

// linearizable reads one key through the raft of the cluster at endpoint.
func (b *Bootstrapper) linearizable(ctx context.Context, endpoint string) error {
	client, err := b.dial(ctx, endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return membership.Linearizable(ctx, client)
}

// guestsIn are the IDs of the voters that are there before we join.
func externalsIn(view membership.View, own membership.Member) []string {
	var externals []string
	for _, m := range view.Voters() {
		if m.ID != own.ID {
			externals = append(externals, leases.FormatID(m.ID))
		}
	}
	return externals
}
