package bootstrap

import (
	"context"
	"errors"
	"slices"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// observeListing asks the other members whether a quorum lists us. Nobody is asked before the record says Formed: there is
// no quorum, and a lookup of a name that is not published yet is remembered as missing by the cluster's DNS.
func (b *Bootstrapper) observeListing(ctx context.Context, o *observation) {
	record, ok := b.knownRecord(o)
	clusterID := record.ClusterID
	if !ok || record.Phase == leases.PhaseForming {
		o.note("listed", "nobody to ask is known")
		return
	}
	if clusterID == 0 && o.volume.stampErr == nil {
		clusterID = uint64(o.volume.stamp.ClusterID)
	}
	if clusterID == 0 {
		o.note("listed", "the cluster ID is not known")
		return
	}
	view, err := b.list(ctx, record, clusterID)
	if err != nil {
		o.note("listed", err.Error())
		return
	}
	o.view, o.Peers = view, Answering
	if o.record.err == nil {
		o.Slot = SlotIn(view, o.Slot, record.Replacing, b.peerURL)
	}
	if b.enter(o); o.Listed == Unconfirmed && o.Data == Intact {
		b.confirm(ctx, o)
	}
}

// errOnlyMember is what a cluster of one member ends with whose data is gone.
var errOnlyMember = errors.New("no other member is there, so what this volume held is nowhere else; " +
	"bring the volume back, or delete the EtcdCluster and create it anew")

// list asks first those who surely are members, then everybody who is desired: a name that is asked for too early stays
// missing for seconds.
func (b *Bootstrapper) list(ctx context.Context, record leases.Record, clusterID uint64) (membership.View, error) {
	var likely, others []string
	if record.MemberList != nil {
		for _, m := range record.MemberList.Members {
			if m.Name != "" && m.Name != b.cfg.Member {
				likely = append(likely, m.Name)
			}
		}
	}
	for _, name := range record.Members {
		if name == b.cfg.Member || slices.Contains(likely, name) {
			continue
		}
		if name == record.Seed {
			likely = append(likely, name)
		} else {
			others = append(others, name)
		}
	}
	if len(likely)+len(others) == 0 {
		return membership.View{}, errOnlyMember
	}
	view, err := b.ask(ctx, likely, clusterID)
	if err != nil && len(others) > 0 {
		view, err = b.ask(ctx, others, clusterID)
	}
	return view, err
}

func (b *Bootstrapper) ask(ctx context.Context, names []string, clusterID uint64) (membership.View, error) {
	endpoints := make([]string, len(names))
	for i, name := range names {
		endpoints[i] = b.clientURL(name)
	}
	return membership.Observe(ctx, b.dial, membership.Query{Endpoints: endpoints, ClusterID: clusterID, Timeout: endpointTimeout})
}

// enter turns the view into facts.
func (b *Bootstrapper) enter(o *observation) {
	data := o.volume.report.MemberID
	if o.volume.err != nil {
		data = 0
	}
	o.entry, o.Listed, o.Own = ListingOf(o.view, b.cfg.Member, b.peerURL(b.cfg.Member), data)
	if o.Listed&isListed != 0 {
		o.Joining = JoiningOf(b.joining.asked, b.joining.id, b.joining.attempts, o.entry.ID)
	}
}

// confirm reads a second list, an election timeout later and from another voter where there is one (R5).
func (b *Bootstrapper) confirm(ctx context.Context, o *observation) {
	if !pause(ctx, b.electionTimeout()) {
		return
	}
	var names []string
	for _, m := range o.view.Voters() {
		if m.Started() && m.ID != o.view.Answerer {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 && len(o.view.Voters()) == 1 {
		names = []string{o.view.Voters()[0].Name}
	}
	first := o.view
	view, err := b.ask(ctx, names, first.ClusterID)
	if err != nil {
		o.note("listed", err.Error())
		return
	}
	if o.view = view; view.RaftTerm < first.RaftTerm {
		return
	}
	if b.enter(o); o.Listed == Unconfirmed {
		o.Listed = Unlisted
	}
}
