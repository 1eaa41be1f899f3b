package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Takeover brings leadership of a raft group that was joined to one of our members. The duties, and the backups, are those of the
// leader's agent, and anyone who was in the group before has none. Each agent runs one; the first that votes is the one that takes it.
type Takeover struct {
	Store *leases.Store
	Dial  membership.Dial
	// Local is the client endpoint of our own member.
	Local string
	// Self reports our own place, as in Options.
	Self func() (Cluster, bool)
	// Adopted says whether the raft group was joined.
	Adopted func() bool
	// PeerURL of the member called name.
	PeerURL func(name string) string
	Log     *slog.Logger

	// desired is the leader that was last seen to be one of our members.
	desired uint64
	trouble loop.Change[string]
}

// Run looks until ctx ends. What goes wrong is logged once per change and tried again.
func (t *Takeover) Run(ctx context.Context) error {
	for ticker := time.NewTicker(pollInterval); ; {
		err := t.look(ctx)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if t.trouble.To(text) && err != nil && ctx.Err() == nil {
			t.Log.WarnContext(ctx, "leadership not taken over", "err", err)
		}
		select {
		case <-ctx.Done():
			ticker.Stop()
			return nil
		case <-ticker.C:
		}
	}
}

// look asks no one but our own etcd as long as one of our members leads.
func (t *Takeover) look(ctx context.Context) error {
	self, ok := t.Self()
	if !ok || !t.Adopted() {
		return nil
	}
	leader, err := t.unknownObject(ctx, self)
	if err != nil || leader.ID == 0 {
		return err
	}
	// Leadership is asked for by a member that is desired, by what was read just now.
	record, _, err := t.Store.Record(ctx)
	if err != nil {
		return err
	}
	own, err := t.Store.Marks(ctx, self.Member)
	if err != nil {
		return err
	}
	switch {
	case record.Phase != leases.PhaseFormed, record.ClusterID != self.ClusterID, !record.Lists(self.Member),
		own.PodUID != self.PodUID, own.Removal.State != leases.RemovalNone,
		record.Leaving && len(record.Members) == 1: // the last one leaves, and anyone who stays leads
		return nil
	case membership.Desired(leader, record.Members, t.PeerURL) == rules.Yes:
		t.desired = leader.ID
		return nil
	}
	return t.take(ctx, self, leader)
}

// unknown member is the leader of our group if our own member votes and the leader is not known to be one of ours, else the zero Member.
func (t *Takeover) unknownObject(ctx context.Context, self Cluster) (membership.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := membership.StatusOf(ctx, t.Dial, self.ClusterID, membership.Member{ID: self.MemberID, ClientURLs: []string{t.Local}})
	switch {
	case err != nil:
		return membership.Member{}, err
	case status.Role != membership.RoleMember || !status.Serves() || status.Leader == t.desired:
		return membership.Member{}, nil
	}
	view, err := membership.Observe(ctx, t.Dial, membership.Query{Endpoints: []string{t.Local}, ClusterID: self.ClusterID, Timeout: callTimeout})
	if err != nil {
		return membership.Member{}, err
	}
	leader, _ := view.Member(status.Leader)
	return leader, nil
}

// take asks the leader to hand leadership to our member: no one else can.
func (t *Takeover) take(ctx context.Context, self Cluster, leader membership.Member) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	var errs []error
	for _, url := range leader.ClientURLs {
		err := t.ask(ctx, url, self, leader)
		if err == nil {
			t.Log.InfoContext(ctx, "leadership taken over", "from", leader.Name, "memberID", leases.FormatID(self.MemberID))
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("take leadership over from %s (%s), which is no member of this EtcdCluster: %w",
		leader.Name, leases.FormatID(leader.ID), errors.Join(errs...))
}

func (t *Takeover) ask(ctx context.Context, url string, self Cluster, leader membership.Member) (err error) {
	client, err := t.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	status, err := membership.ReadStatus(ctx, client, url)
	switch {
	case err != nil:
		return err
	case status.MemberID != leader.ID || status.ClusterID != self.ClusterID:
		return fmt.Errorf("%s: %w", url, membership.ErrOtherMember)
	}
	return membership.MoveLeader(ctx, client, self.MemberID)
}

// ErrNoSuccessor says that no other voter could take leadership over.
var ErrNoSuccessor = errors.New("no other healthy voter")

// Transfer moves raft leadership away from the member at endpoint local to the started voter whose log is the longest.
// It does nothing when the member does not lead. The caller bounds it by ctx: etcd ends all the same.
func Transfer(ctx context.Context, dial membership.Dial, local string) (to uint64, err error) {
	client, err := dial(ctx, local)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	status, err := membership.ReadStatus(ctx, client, local)
	if err != nil || status.Role != membership.RoleLeader {
		return 0, err
	}
	view, err := membership.Observe(ctx, dial, membership.Query{
		Endpoints: []string{local}, ClusterID: status.ClusterID, Timeout: callTimeout,
	})
	if err != nil {
		return 0, err
	}
	to, ok := successor(status.MemberID, statuses(ctx, dial, view))
	if !ok {
		return 0, fmt.Errorf("move leader away from %s: %w", leases.FormatID(status.MemberID), ErrNoSuccessor)
	}
	defer crash.Around("move-leader")()
	return to, membership.MoveLeader(ctx, client, to)
}

// successor is the voter that serves and has the highest raft index; of equals the lowest ID, so that the choice is settled. The alarm
// NOSPACE hinders no one: it stands for all members alike, anyone who leads.
func successor(self uint64, voters []membership.Status) (uint64, bool) {
	var best membership.Status
	for _, s := range voters {
		if s.MemberID == self || !s.Serves() || s.Role == membership.RoleLearner {
			continue
		}
		if best.MemberID == 0 || s.RaftIndex > best.RaftIndex || s.RaftIndex == best.RaftIndex && s.MemberID < best.MemberID {
			best = s
		}
	}
	return best.MemberID, best.MemberID != 0
}

// statuses of the started voters that answer.
func statuses(ctx context.Context, dial membership.Dial, view membership.View) []membership.Status {
	voters := view.Voters()
	answers := make([]membership.Status, len(voters))
	var group errgroup.Group
	for i, m := range voters {
		group.Go(func() error {
			if status, err := statusOf(ctx, dial, view.ClusterID, m); err == nil {
				answers[i] = status
			}
			return nil
		})
	}
	_ = group.Wait() // a voter without an answer is no successor: its status is the zero one
	return answers
}

// statusOf bounds membership.StatusOf.
func statusOf(ctx context.Context, dial membership.Dial, clusterID uint64, m membership.Member) (membership.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return membership.StatusOf(ctx, dial, clusterID, m)
}

// ErrNotLeader is the cause with which a leader's context ends.
var ErrNotLeader = leases.ErrNotLeader

// Gate blocks until the raft leadership of this member is as wanted, and returns an error only when ctx ended.
type Gate func(ctx context.Context, leading bool) error

// Campaign calls lead whenever the leader's Lease is ours, until ctx ends (leases.Election.Run).
type Campaign func(ctx context.Context, lead func(ctx context.Context)) error

// WhileLeader runs fn whenever this member is the raft leader and its agent holds the leader's Lease, until ctx ends.
// fn's context ends with cause ErrNotLeader when either is lost; the Lease is released after fn has returned. An agent
// campaigns only while its member leads, so the Lease follows raft.
func WhileLeader(ctx context.Context, gate Gate, campaign Campaign, fn func(ctx context.Context)) error {
	// A gate fails only when ctx ends; one that is open does not look at ctx.
	for gate(ctx, true) == nil && ctx.Err() == nil {
		if err := whileRaftLeader(ctx, gate, campaign, fn); err != nil {
			return fmt.Errorf("lead: %w", err)
		}
	}
	return nil
}

func whileRaftLeader(ctx context.Context, gate Gate, campaign Campaign, fn func(ctx context.Context)) error {
	term, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group errgroup.Group
	group.Go(func() error {
		if gate(term, false) == nil {
			end(ErrNotLeader)
		}
		return nil
	})
	group.Go(func() error {
		defer end(nil) // a campaign that ended by an error is begun again by the caller
		return campaign(term, fn)
	})
	return group.Wait()
}
