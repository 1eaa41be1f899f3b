package leader

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

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
