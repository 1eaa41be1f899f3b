package start

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// observeListing asks the other members whether a quorum lists us. No one is asked before the record says Formed: there is
// no quorum, and a lookup of a name that is not published yet is remembered as missing by the cluster's DNS.
func (b *Bootstrapper) observeListing(ctx context.Context, o *observation) {
	record, ok := b.knownRecord(o)
	clusterID := record.ClusterID
	if !ok || record.Phase == leases.PhaseForming {
		o.note("listed", "no one to ask is known")
		return
	}
	if clusterID == 0 && o.volume.identityFileErr == nil {
		clusterID = uint64(o.volume.identityFile.ClusterID)
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
	"bring the volume back, or delete the EtcdCluster and create it again")

// list asks first those who surely are members, then everybody who is desired: a name that is asked for too early stays
// missing for seconds.
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

// guestURLs are the endpoints of the cluster that was joined, for as long as members of it may be left.
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

// urlsOf are where a member is asked: one of ours at its own name, any other where it says.
func (b *Bootstrapper) urlsOf(m membership.Member) []string {
	if slices.Contains(m.PeerURLs, b.peerURL(m.Name)) {
		return []string{b.clientURL(m.Name)}
	}
	return m.ClientURLs
}

func (b *Bootstrapper) ask(ctx context.Context, endpoints []string, clusterID uint64) (membership.View, error) {
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

// logRoom is what etcd writes next to its database: two preallocated WAL files of 64 MB and some snapshots.
const logRoom = 160 << 20

// observeNeeds looks whether everything that a member add will need is there. It is asked before a removal too, for a
// member that was removed and cannot come back is a member less.
func (b *Bootstrapper) observeNeeds(ctx context.Context, o *observation) {
	if o.Data == Intact && o.Own == OwnID && o.Epoch != Fenced {
		return // it resumes
	}
	for _, need := range []func(context.Context, *observation) error{b.needRoom, b.needSpace, b.needName, b.needQuorum} {
		if err := need(ctx, o); err != nil {
			o.note("needs", err.Error())
			return
		}
	}
	o.Needs = Met
}

// needRoom: the raft group's limit of learners, which our own old entry frees if it is one.
func (b *Bootstrapper) needRoom(_ context.Context, o *observation) error {
	limit := o.record.record.MaxLearners
	if learners, room := RoomOf(o.view, o.entry, o.Listed, limit); !room {
		return fmt.Errorf("%d learners are in the cluster, its limit is %d; it frees up as they are promoted", learners, limit)
	}
	return nil
}

// needSpace: the database of the cluster, and the log next to it.
func (b *Bootstrapper) needSpace(_ context.Context, o *observation) error {
	free, err := volume.Free(b.cfg.VolumePath)
	if err != nil {
		return err
	}
	if want := o.view.DBSizeInUse + o.view.DBSizeInUse/10 + logRoom; free < want {
		return fmt.Errorf("the volume has %d MiB free and %d MiB are needed; raise spec.storage.size", free>>20, want>>20)
	}
	return nil
}

// needName: our own peer name resolves to our own address, else the peers that dial us would remember it as missing.
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
		return fmt.Errorf("own peer name: %w", err)
	}
	if !slices.ContainsFunc(found, func(address string) bool { return slices.Contains(own, address) }) {
		return fmt.Errorf("own peer name %s resolves to %v and not to this Pod", host, found)
	}
	return nil
}

// needQuorum: the voters that are left when our old entry is gone are as many healthy ones as etcd asks for at an add,
// where the new member counts as down. A learner's removal takes no vote.
func (b *Bootstrapper) needQuorum(ctx context.Context, o *observation) error {
	left, want := QuorumForReplacing(o.view, o.entry, o.Listed)
	healthy := 0
	for _, health := range b.health(ctx, left) {
		if health == rules.Yes {
			healthy++
		}
	}
	if healthy < want {
		return fmt.Errorf("%d of the %d other voters are healthy, %d must be before this member is removed and added again",
			healthy, len(left), want)
	}
	return nil
}

// health asks each member itself: a healthy one knows a leader. No answer is unknown.
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

func (b *Bootstrapper) status(ctx context.Context, endpoint string) (membership.Status, error) {
	client, err := b.dial(ctx, endpoint)
	if err != nil {
		return membership.Status{}, err
	}
	defer func() { _ = client.Close() }()
	return membership.ReadStatus(ctx, client, endpoint)
}
