package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// MoveLeader makes a member the raft leader, if it is not.
func (c *Cluster) MoveLeader(t testing.TB, member string) {
	t.Helper()
	Eventually(t, maxWait, member+" leads", func(ctx context.Context) error {
		return c.moveLeader(ctx, t, member)
	})
}

// TryMoveLeader asks once for a member to become the raft leader: anyone who is no voter, or not there any more, does not.
func (c *Cluster) TryMoveLeader(t testing.TB, member string) {
	t.Helper()
	if err := attempt(t.Context(), func(ctx context.Context) error { return c.moveLeader(ctx, t, member) }); err != nil {
		t.Logf("leadership does not move to %s: %v", member, err)
	}
}

// TakeLeadership makes a member the raft leader in one attempt. It is an error if the member leads already.
func (c *Cluster) TakeLeadership(ctx context.Context, t testing.TB, member string) error {
	t.Helper()
	etcd := c.Etcd(t, member)
	defer etcd.Close()
	status, err := statusOf(ctx, etcd, member)
	if err == nil && status.Leader == status.Header.MemberId {
		err = fmt.Errorf("%s leads already", member)
	}
	if err != nil {
		return err
	}
	return c.moveLeader(ctx, t, member)
}

// Answers asks a member for its status. A member that is cut off, frozen or down returns an error after three seconds at most.
func (c *Cluster) Answers(ctx context.Context, etcd *clientv3.Client, member string) error {
	_, err := statusOf(ctx, etcd, member)
	return err
}

func (c *Cluster) moveLeader(ctx context.Context, t testing.TB, member string) error {
	t.Helper()
	etcd := c.Etcd(t, member)
	defer etcd.Close()
	target, err := statusOf(ctx, etcd, member)
	if err != nil {
		return err
	}
	id := target.Header.MemberId
	switch target.Leader {
	case id:
		return nil
	case 0:
		return errors.New("there is no leader")
	}
	for _, name := range c.MemberNames(t) {
		if err := leaderMoves(ctx, c.Etcd(t, name), name, id); !errors.Is(err, errNotLeader) {
			return err
		}
	}
	return fmt.Errorf("the leader %x is none of the cluster's own members that answer", target.Leader)
}

var errNotLeader = errors.New("not the leader, or no answer")

// leaderMoves asks one member: etcd takes the order from its leader only.
func leaderMoves(ctx context.Context, etcd *clientv3.Client, name string, to uint64) error {
	defer etcd.Close()
	status, err := statusOf(ctx, etcd, name)
	if err != nil || status.Leader != status.Header.MemberId {
		return errors.Join(errNotLeader, err)
	}
	if _, err := etcd.MoveLeader(ctx, to); err != nil {
		return fmt.Errorf("move leader to %x: %w", to, err)
	}
	return nil
}

// statusOf asks one member, and not for the whole attempt: it may be down on purpose.
func statusOf(ctx context.Context, etcd *clientv3.Client, member string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return etcd.Status(ctx, Endpoint(member))
}
