package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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
	trouble string
}

// Run looks until ctx ends. What goes wrong is logged once per change and tried again.
func (t *Takeover) Run(ctx context.Context) error {
	for ticker := time.NewTicker(pollInterval); ; {
		err := t.look(ctx)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != t.trouble && err != nil && ctx.Err() == nil {
			t.Log.WarnContext(ctx, "leadership not taken over", "err", err)
		}
		t.trouble = text
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
		own.PodUID != self.PodUID, own.Retire.State != leases.RetireNone,
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
