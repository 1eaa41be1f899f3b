package bootstrap

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// adopt lets the cluster begin as a member of a raft group that runs. The claim in the record names that group and whom it has
// before it is asked for anything; anyone who comes after a death finds there which group to go on with.
func (b *Bootstrapper) adopt(ctx context.Context, o *observation) (*launch.Order, error) {
	switch o.adoption.step {
	case stepClaim:
		return nil, b.intend(ctx, o)
	case stepDrop:
		return nil, b.dropLearner(ctx, o)
	case stepEnter:
		return b.join(ctx, o)
	default:
		return nil, fmt.Errorf("decision %s: nothing is known to be done", o.adoption.Rule)
	}
}

// intend claims the bootstrap. Someone else's write in between means a new look.
func (b *Bootstrapper) intend(ctx context.Context, o *observation) error {
	record, err := b.attemptOf(o, leases.MaxLearnersAdopted)
	if err != nil {
		return err
	}
	record.ClusterID, record.Externals = o.view.ClusterID, externalsIn(o.view, o.entry)
	claimed, err := b.putClaim(ctx, o, record)
	if claimed {
		b.log.InfoContext(ctx, "joining claimed", "clusterID", leases.FormatID(record.ClusterID), "epoch", record.Epoch, "guests", record.Externals)
	}
	return err
}

// dropLearner removes what an earlier start of ours left in the group.
func (b *Bootstrapper) dropLearner(ctx context.Context, o *observation) error {
	if err := b.moveAside(ctx, o, o.Data.String()); err != nil {
		return err
	}
	return b.removeOwn(ctx, o)
}

// adopted proves that our etcd is the learner of the stamp, and that a quorum of the raft group lists it as started.
func (s *settler) adopted(ctx context.Context, record leases.Record) error {
	status, err := s.self(ctx)
	if err != nil {
		return err
	}
	if status.Leader == 0 {
		return errors.New("form: our etcd knows no leader of the cluster that it joins")
	}
	view, err := s.b.list(ctx, record, uint64(s.stamp.ClusterID))
	if err != nil {
		return fmt.Errorf("form: %w", err)
	}
	entry, listed := view.Member(uint64(s.stamp.MemberID))
	if !listed || !entry.Started() {
		return fmt.Errorf("form: cluster %x does not list member %x as started: %w", view.ClusterID, uint64(s.stamp.MemberID), membership.ErrNotFound)
	}
	return nil
}
