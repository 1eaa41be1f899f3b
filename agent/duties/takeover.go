package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Takeover moves leadership of a joined raft group to a member of the EtcdCluster. The leader's agent performs the
// duties and the backups, and external members have no agent. Each agent runs a Takeover. The first one whose member
// is a voter takes leadership.
type Takeover struct {
	Store *leases.Store
	Dial  membership.Dial
	// Local is the client endpoint of the agent's own member.
	Local string
	// Self returns the agent's own member and Pod, as in Options.
	Self func() (Cluster, bool)
	// Adopted says whether the raft group was joined.
	Adopted func() bool
	// PeerURL of the member called name.
	PeerURL func(name string) string
	Log     *slog.Logger

	// desired is the last leader that was seen to be a member of the EtcdCluster.
	desired uint64
	trouble loop.Change[string]
}

// Run works until ctx ends. It logs an error once per change and retries.
func (t *Takeover) Run(ctx context.Context) error {
	for ticker := time.NewTicker(pollInterval); ; {
		err := t.look(ctx)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if t.trouble.To(text) && err != nil && ctx.Err() == nil {
			t.Log.WarnContext(ctx, "leadership transfer from an external member failed, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
			ticker.Stop()
			return nil
		case <-ticker.C:
		}
	}
}

// look queries only the local etcd while a member of the EtcdCluster leads.
func (t *Takeover) look(ctx context.Context) error {
	self, ok := t.Self()
	if !ok || !t.Adopted() {
		return nil
	}
	leader, err := t.externalLeader(ctx, self)
	if err != nil || leader.ID == 0 {
		return err
	}
	// Only a desired member takes leadership, according to a record that was read just before.
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
		record.Leaving && len(record.Members) == 1: // the last member leaves, so an external member leads
		return nil
	case membership.Desired(leader, record.Members, t.PeerURL) == rules.Yes:
		t.desired = leader.ID
		return nil
	}
	return t.take(ctx, self, leader)
}

// externalLeader returns the leader if the agent's own member votes and the leader is not known to be a member of the
// EtcdCluster, or else the zero Member.
func (t *Takeover) externalLeader(ctx context.Context, self Cluster) (membership.Member, error) {
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

// take asks the leader to transfer leadership to the agent's own member. Only the leader can do that.
func (t *Takeover) take(ctx context.Context, self Cluster, leader membership.Member) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	var errs []error
	for _, url := range leader.ClientURLs {
		err := t.ask(ctx, url, self, leader)
		if err == nil {
			t.Log.InfoContext(ctx, "leadership transferred from an external member", "from", leader.Name, "memberID", leases.FormatID(self.MemberID))
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("take leadership from the external member %s (%s): %w",
		leader.Name, leases.FormatID(leader.ID), errors.Join(errs...))
}

func (t *Takeover) ask(ctx context.Context, url string, self Cluster, leader membership.Member) (err error) {
	client, done, err := t.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	status, err := membership.ReadStatus(ctx, client, url)
	switch {
	case err != nil:
		return err
	case status.MemberID != leader.ID || status.ClusterID != self.ClusterID:
		return fmt.Errorf("%s: %w", url, membership.ErrOtherMember)
	}
	return membership.MoveLeader(ctx, client, self.MemberID)
}

// statuses returns the status of the started voters that answer.
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

// statusOf calls membership.StatusOf with a timeout.
func statusOf(ctx context.Context, dial membership.Dial, clusterID uint64, m membership.Member) (membership.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return membership.StatusOf(ctx, dial, clusterID, m)
}

// ErrNotLeader is the cause with which a leader's context ends.
var ErrNotLeader = leases.ErrNotLeader

// Gate blocks until the raft leadership of this member is as wanted. It returns an error only when ctx ended.
type Gate func(ctx context.Context, leading bool) error

// Campaign calls lead whenever this agent holds the leader's Lease, until ctx ends (leases.Election.Run).
type Campaign func(ctx context.Context, lead func(ctx context.Context)) error

// WhileLeader runs fn whenever this member is the raft leader and its agent holds the leader's Lease, until ctx ends.
// When either is lost, fn's context ends with cause ErrNotLeader. The Lease is released after fn has returned. An
// agent campaigns only while its member leads, so the Lease follows raft.
func WhileLeader(ctx context.Context, gate Gate, campaign Campaign, fn func(ctx context.Context)) error {
	// A gate fails only when ctx ends. An open gate does not check ctx.
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
