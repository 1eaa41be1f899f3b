package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// departureTable is the name of the departure decisions in the metric of all decisions.
const departureTable = "membership.departures"

// Departure removes the agent's own member from a joined raft group when the EtcdCluster is deleted and none of its
// members leads. Each agent runs one. It does not need the local etcd, because it sends its requests to the members
// that stay.
type Departure struct {
	Store *leases.Store
	Dial  membership.Dial
	// Member and PodUID belong to this agent.
	Member, PodUID string
	// Marked says whether the agent's own Lease had a removal request when it was last read. Until then, Departure
	// sends no requests.
	Marked func() bool
	// Endpoints of the joined cluster.
	Endpoints []string
	// PeerURL of the member called name.
	PeerURL func(name string) string
	Log     *slog.Logger
	// Decisions counts decisions by table and rule.
	Decisions *prometheus.CounterVec

	// externals are the client URLs of the members that stay, as last seen. spec.bootstrap.join might name only some
	// of them.
	externals []string
	reported  loop.Change[string]
	trouble   loop.Change[string]
}

// Run works until ctx ends, if the EtcdCluster joined another cluster. It logs an error once per change and retries.
func (d *Departure) Run(ctx context.Context) error {
	if len(d.Endpoints) == 0 {
		<-ctx.Done()
		return nil
	}
	for pause := drainInterval; loop.Sleep(ctx, pause); {
		pause = drainInterval
		if d.Marked() {
			err := d.look(ctx)
			d.note(ctx, err)
			if err != nil {
				pause = maxDrainPause
			}
		}
	}
	return nil
}

func (d *Departure) note(ctx context.Context, err error) {
	text := ""
	if err != nil && !errors.Is(err, leases.ErrConflict) {
		text = err.Error()
	}
	if d.trouble.To(text) && text != "" && ctx.Err() == nil {
		d.Log.WarnContext(ctx, "leaving the joined cluster failed, retrying", "err", err)
	}
}

// look takes the next step if one is due.
func (d *Departure) look(ctx context.Context) error {
	record, _, err := d.Store.Record(ctx)
	if err != nil {
		return err
	}
	slot := record.PendingRemoval
	if !record.Leaving || record.ClusterID == 0 || slot == nil || slot.Member != d.Member {
		return nil
	}
	own, err := d.Store.Marks(ctx, d.Member)
	if err != nil {
		return err
	}
	if own.Removal.State == leases.RemovalDone {
		return nil
	}
	view, err := membership.Observe(ctx, d.Dial, membership.Query{
		Endpoints: d.whom(), ClusterID: record.ClusterID, Timeout: callTimeout,
	})
	if err != nil {
		return fmt.Errorf("leave the joined cluster: read its member list: %w", err)
	}
	d.remember(view, record)
	claimed, _ := leases.ParseID(own.Removal.MemberID) // a mark that was read has good IDs
	member, entry := membership.EntryOf(view, d.Member, d.PeerURL(d.Member), claimed)
	self := Cluster{ClusterID: record.ClusterID, MemberID: member.ID, Member: d.Member, PodUID: d.PodUID}
	decision := membership.DecideDeparture(d.facts(ctx, record, own, view, self, entry))
	d.inform(ctx, decision)
	return d.step(ctx, decision, own, self, view)
}

// whom returns the endpoints of the members that stay.
func (d *Departure) whom() []string {
	all := slices.Concat(d.Endpoints, d.externals)
	slices.Sort(all)
	return slices.Compact(all)
}

func (d *Departure) remember(view membership.View, record leases.Record) {
	d.externals = nil
	for _, m := range view.Members {
		if membership.Desired(m, record.Members, d.PeerURL) == rules.No {
			d.externals = append(d.externals, m.ClientURLs...)
		}
	}
}

func (d *Departure) facts(
	ctx context.Context, record leases.Record, own leases.Member, view membership.View, self Cluster, entry membership.Entry,
) membership.DepartureFacts {
	f := membership.DepartureFacts{
		Authoritative: rules.AnswerOf(record.Phase == leases.PhaseFormed && record.Leaving && record.Lists(d.Member) && own.PodUID == d.PodUID),
		Mark:          MarkOf(record.PendingRemoval, d.Member, own.Removal, self, self.MemberID), Entry: entry,
		Ruler: membership.RulerUnknown, Quorum: rules.Unknown,
	}
	if entry == membership.EntryUnknown {
		return f // no other facts are needed
	}
	if entry != membership.NotListed {
		f.Quorum = membership.QuorumWithout(view, self.MemberID, healthOf(ctx, d.Dial, view))
	}
	// A member that is not listed any more needs a leader too: if another member of the EtcdCluster leads, druid believes the
	// acknowledgement of the agent of that member only.
	if leader, err := d.leader(ctx, view); err == nil {
		f.Ruler = d.ruler(leader, record, self)
	}
	return f
}

// leader returns the leader that the queried member knows, if the term is still that of the view.
func (d *Departure) leader(ctx context.Context, view membership.View) (leader membership.Member, err error) {
	client, done, err := d.Dial(ctx, view.Endpoint)
	if err != nil {
		return leader, err
	}
	defer func() { done(err) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := membership.ReadStatus(ctx, client, view.Endpoint)
	if err != nil {
		return leader, err
	}
	if status.ClusterID != view.ClusterID || status.RaftTerm != view.RaftTerm {
		return leader, errLeadershipMoved
	}
	leader, listed := view.Member(status.Leader)
	if !listed {
		return leader, errLeadershipMoved
	}
	return leader, nil
}

func (d *Departure) ruler(leader membership.Member, record leases.Record, self Cluster) membership.Ruler {
	switch desired := membership.Desired(leader, record.Members, d.PeerURL); {
	case leader.ID == self.MemberID:
		return membership.RulerSelf
	case desired == rules.Yes:
		return membership.RulerOurs
	case desired == rules.No:
		return membership.RulerExternal
	default:
		return membership.RulerUnknown
	}
}

func (d *Departure) inform(ctx context.Context, decision membership.DrainDecision) {
	if !d.reported.To(decision.Rule) {
		return
	}
	d.Decisions.WithLabelValues(departureTable, decision.Rule).Inc()
	d.Log.InfoContext(ctx, "departure decided", "member", d.Member, "mode", decision.Verdict, "rule", decision.Rule, "reason", decision.Why)
}

// step takes one step. If its answer is lost, the next look finds the result.
func (d *Departure) step(ctx context.Context, decision membership.DrainDecision, own leases.Member, self Cluster, view membership.View) error {
	marked := Marked(decision.Verdict, own.Removal, self, view, self.MemberID)
	switch decision.Verdict {
	case membership.Claim:
		defer crash.Around("claim-departure")()
		return d.mark(ctx, own, marked)
	case membership.DrainRemove:
		defer crash.Around("depart")()
		return d.remove(ctx, view, self.MemberID)
	case membership.Acknowledge:
		defer crash.Around("acknowledge-departure")()
		return d.mark(ctx, own, marked)
	default:
		return nil
	}
}

func (d *Departure) mark(ctx context.Context, own leases.Member, mark leases.RemovalRequest) error {
	if _, err := d.Store.RequestRemoval(ctx, d.Member, own.LeaseVersion, mark); err != nil {
		return err
	}
	d.Log.InfoContext(ctx, "removal request written", "member", d.Member, "memberID", mark.MemberID, "mode", mark.State)
	return nil
}

// remove is the only irreversible call. It goes to a member that stays, in the term of the decision. It succeeds if
// the member was removed already.
func (d *Departure) remove(ctx context.Context, view membership.View, id uint64) (err error) {
	if _, err := d.leader(ctx, view); err != nil {
		return fmt.Errorf("remove member %s: %w", leases.FormatID(id), err)
	}
	client, done, err := d.Dial(ctx, view.Endpoint)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d.Log.WarnContext(ctx, "member removal started", "member", d.Member, "memberID", leases.FormatID(id), "rule", d.reported.Last())
	if err := membership.Remove(ctx, client, id); err != nil && !errors.Is(err, membership.ErrNotFound) {
		return err
	}
	d.Log.WarnContext(ctx, "member removed", "member", d.Member, "memberID", leases.FormatID(id), "rule", d.reported.Last())
	return nil
}
