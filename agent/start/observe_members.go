package start

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// observeListing asks the other members whether a quorum lists this one. It asks no member before the record says
// Formed: until then there is no quorum, and the cluster's DNS would cache as missing a name that is not published
// yet.
func (b *Bootstrapper) observeListing(ctx context.Context, o *observation) {
	record, ok := b.knownRecord(o)
	clusterID := record.ClusterID
	if !ok || record.Phase == leases.PhaseForming {
		o.note("listed", "no member to query is known")
		return
	}
	if clusterID == 0 && o.volume.identityFileErr == nil {
		clusterID = uint64(o.volume.identityFile.ClusterID)
	}
	if clusterID == 0 {
		o.note("listed", "the cluster ID is unknown")
		return
	}
	view, err := b.list(ctx, record, clusterID)
	if err != nil {
		o.note("listed", membership.Brief(err))
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

// errOnlyMember is the error of a cluster of one member whose data is lost.
var errOnlyMember = errors.New("the cluster has no other member, so no member has a copy of this volume's data; " +
	"mount the original volume again, or delete the EtcdCluster and create it again")

// list queries first the certain members, then all desired ones: DNS caches for seconds that a name is missing if it
// is looked up too early.
func (b *Bootstrapper) list(ctx context.Context, record leases.Record, clusterID uint64) (membership.View, error) {
	var likely, others []string
	if record.MemberList != nil {
		for _, m := range record.MemberList.Members {
			if m.Name != "" && m.Name != b.cfg.Member && (!record.Adopted() || record.Lists(m.Name)) {
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
	first, externals, last := b.clientURLs(likely), b.externalURLs(record), b.clientURLs(others)
	if len(first)+len(externals)+len(last) == 0 {
		return membership.View{}, errOnlyMember
	}
	view, err := b.ask(ctx, first, clusterID)
	for _, more := range [][]string{externals, last} {
		if err != nil && len(more) > 0 {
			view, err = b.ask(ctx, more, clusterID)
		}
	}
	return view, err
}

// externalURLs returns the endpoints of the joined cluster while it can still have external members.
func (b *Bootstrapper) externalURLs(record leases.Record) []string {
	others, listed := record.Others()
	if !record.Adopted() || listed && len(others) == 0 {
		return nil
	}
	endpoints, err := b.cfg.JoinEndpoints()
	if err != nil {
		return nil // Config.Validate reported
	}
	return endpoints
}

func (b *Bootstrapper) clientURLs(names []string) []string {
	endpoints := make([]string, len(names))
	for i, name := range names {
		endpoints[i] = b.clientURL(name)
	}
	return endpoints
}

// urlsOf returns the client URLs of a member: for a desired member its own DNS name, for any other what it advertises.
func (b *Bootstrapper) urlsOf(m membership.Member) []string {
	if m.At(b.peerURL(m.Name)) {
		return []string{b.clientURL(m.Name)}
	}
	return m.ClientURLs
}

func (b *Bootstrapper) ask(ctx context.Context, endpoints []string, clusterID uint64) (membership.View, error) {
	return membership.Observe(ctx, b.dial, membership.Query{Endpoints: endpoints, ClusterID: clusterID, Timeout: endpointTimeout})
}

// enter converts the member list to facts.
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

// confirm reads a second list after an election timeout, from another voter if there is one (R5).
func (b *Bootstrapper) confirm(ctx context.Context, o *observation) {
	if !loop.Sleep(ctx, b.electionTimeout()) {
		return
	}
	var endpoints []string
	for _, m := range o.view.Voters() {
		if m.Started() && m.ID != o.view.Answerer {
			endpoints = append(endpoints, b.urlsOf(m)...)
		}
	}
	if len(endpoints) == 0 && len(o.view.Voters()) == 1 {
		endpoints = b.urlsOf(o.view.Voters()[0])
	}
	first := o.view
	view, err := b.ask(ctx, endpoints, first.ClusterID)
	if err != nil {
		o.note("listed", membership.Brief(err))
		return
	}
	if o.view = view; view.RaftTerm < first.RaftTerm {
		return
	}
	if b.enter(o); o.Listed == Unconfirmed {
		o.Listed = Unlisted
	}
}

// observeNeeds checks all requirements of a member add. It runs before a removal too, because a member that is removed
// and cannot come back reduces the cluster by one.
func (b *Bootstrapper) observeNeeds(ctx context.Context, o *observation) {
	if o.Data == Intact && o.Own == OwnID && o.Epoch != Fenced {
		return // it resumes
	}
	for _, need := range []func(context.Context, *observation) error{b.needRoom, b.needSpace, b.needName, b.needQuorum} {
		if err := need(ctx, o); err != nil {
			o.note("needs", membership.Brief(err))
			return
		}
	}
	o.Needs = Met
}

// needRoom checks the limit of learners of the raft group. An old learner entry of this member does not count.
func (b *Bootstrapper) needRoom(_ context.Context, o *observation) error {
	limit := o.record.record.MaxLearners
	if learners, room := RoomOf(o.view, o.entry, o.Listed, limit); !room {
		return fmt.Errorf("the cluster has %d learners and allows %d; this member can join after one of them is promoted", learners, limit)
	}
	return nil
}

// needSpace checks that the volume has space for the database of the cluster and the log.
func (b *Bootstrapper) needSpace(_ context.Context, o *observation) error {
	free, err := volume.Free(b.cfg.VolumePath)
	if err != nil {
		return err
	}
	if want := o.view.DBSizeInUse + o.view.DBSizeInUse/10 + datadir.LogRoom; free < want {
		return fmt.Errorf("the volume has %d MiB free, but %d MiB are required; increase spec.storage.size", free>>20, want>>20)
	}
	return nil
}

// needName checks that the own peer name resolves to an address of this Pod. Otherwise, peers that dial it would cache
// it as missing.
func (b *Bootstrapper) needName(ctx context.Context, _ *observation) error {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	own, err := b.ownAddresses()
	if err != nil {
		return err
	}
	host := b.host(b.cfg.Member)
	found, err := b.lookup(ctx, host)
	if err != nil {
		return fmt.Errorf("look up the peer name of this member: %w", err)
	}
	if !slices.ContainsFunc(found, func(address string) bool { return slices.Contains(own, address) }) {
		return fmt.Errorf("the peer name %s resolves to %v instead of this Pod", host, found)
	}
	return nil
}

// needQuorum checks that enough healthy voters remain after the old entry is removed: as many as etcd requires for a
// member add, where the new member counts as down. The removal of a learner costs no vote.
func (b *Bootstrapper) needQuorum(ctx context.Context, o *observation) error {
	left, want := QuorumForReplacing(o.view, o.entry, o.Listed)
	healthy := 0
	for _, health := range b.health(ctx, left) {
		if health == rules.Yes {
			healthy++
		}
	}
	if healthy < want {
		return fmt.Errorf("%d of the %d other voters are healthy, but %d are required before this member can be removed and added again",
			healthy, len(left), want)
	}
	return nil
}

// health queries each member. A healthy member has a leader. Without a response, the health is unknown.
func (b *Bootstrapper) health(ctx context.Context, members []membership.Member) map[uint64]rules.Answer {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	answers := make([]rules.Answer, len(members))
	var group errgroup.Group
	for i, m := range members {
		answers[i] = rules.Unknown
		if !m.Started() {
			continue
		}
		group.Go(func() error {
			for _, url := range b.urlsOf(m) {
				if status, err := b.status(ctx, url); err == nil && answers[i] != rules.Yes {
					answers[i] = rules.AnswerOf(status.Leader != 0 && status.MemberID == m.ID)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // an error is an unknown answer
	health := make(map[uint64]rules.Answer, len(members))
	for i, m := range members {
		health[m.ID] = answers[i]
	}
	return health
}

func (b *Bootstrapper) status(ctx context.Context, endpoint string) (status membership.Status, err error) {
	client, done, err := b.dial(ctx, endpoint)
	if err != nil {
		return membership.Status{}, err
	}
	defer func() { done(err) }()
	return membership.ReadStatus(ctx, client, endpoint)
}
