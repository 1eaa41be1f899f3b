package membership

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/rules"
)

// Why etcd refused a change: the answers to branch on. Whether a change took effect whose error is none of these is
// unknown; a fresh member list reports.
var (
	// ErrUnhealthy: the member that was asked was not connected to a quorum of voters for the last 5 s (etcd's
	// HealthInterval). Healthy clusters answer so for 5 s after a peer reconnects, so callers retry for at least 10 s.
	ErrUnhealthy = errors.New("not connected to a quorum for 5 s")
	// ErrNotEnoughStarted: the change would leave fewer started members than a quorum.
	ErrNotEnoughStarted = errors.New("too few started members")
	// ErrLearnerNotReady: the learner holds less than 90 % of the leader's log. Retry.
	ErrLearnerNotReady = errors.New("learner is not in sync with the leader")
	// ErrTooManyLearners: the raft group's fixed limit is reached.
	ErrTooManyLearners = errors.New("too many learners")
	// ErrNotLearner: the member votes already.
	ErrNotLearner = errors.New("member is no learner")
	// ErrNotFound: no member has the ID.
	ErrNotFound = errors.New("member not found")
	// ErrExists: a member with the peer URL is listed already.
	ErrExists = errors.New("peer URL is listed already")
	// ErrCompacted: the revision was compacted before.
	ErrCompacted = errors.New("compacted already")
)

var classes = []struct {
	etcd, ours error
}{
	{rpctypes.ErrUnhealthy, ErrUnhealthy},
	{rpctypes.ErrMemberNotEnoughStarted, ErrNotEnoughStarted},
	{rpctypes.ErrMemberLearnerNotReady, ErrLearnerNotReady},
	{rpctypes.ErrTooManyLearners, ErrTooManyLearners},
	{rpctypes.ErrMemberNotLearner, ErrNotLearner},
	{rpctypes.ErrMemberNotFound, ErrNotFound},
	{rpctypes.ErrPeerURLExist, ErrExists},
	{rpctypes.ErrMemberExist, ErrExists},
	{rpctypes.ErrCompacted, ErrCompacted},
}

// classify joins our sentinel to etcd's error, whose own words report a person more.
func classify(err error) error {
	for _, c := range classes {
		if errors.Is(err, c.etcd) {
			return fmt.Errorf("%w: %w", c.ours, err)
		}
	}
	return err
}

// AddLearner adds a member that does not vote and is reached at peerURL. The server that is asked draws the ID.
func AddLearner(ctx context.Context, client *clientv3.Client, peerURL string) (Member, error) {
	resp, err := client.MemberAddAsLearner(ctx, []string{peerURL})
	if err != nil {
		return Member{}, fmt.Errorf("member add %s as learner: %w", peerURL, classify(err))
	}
	return members(append(resp.Members[:0:0], resp.Member))[0], nil
}

// Promote makes the learner with id a voter. etcd refuses until the learner caught up.
func Promote(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.MemberPromote(ctx, id); err != nil {
		return fmt.Errorf("member promote %x: %w", id, classify(err))
	}
	return nil
}

// Remove removes the member with exactly this ID. It cannot be undone: etcd never takes the ID back.
func Remove(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.MemberRemove(ctx, id); err != nil {
		return fmt.Errorf("member remove %x: %w", id, classify(err))
	}
	return nil
}

// MoveLeader hands leadership to the voter with id. It must be asked of the leader.
func MoveLeader(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.MoveLeader(ctx, id); err != nil {
		return fmt.Errorf("move leader to %x: %w", id, classify(err))
	}
	return nil
}

// Compact discards what is older than revision, of all members: afterwards revision is the oldest that can be read. The answer does not
// wait for the pages to be freed. ErrCompacted says that it was done before.
func Compact(ctx context.Context, client *clientv3.Client, revision int64) error {
	if _, err := client.Compact(ctx, revision); err != nil {
		return fmt.Errorf("compact at revision %d: %w", revision, classify(err))
	}
	return nil
}

// CompactedAt says whether the history before revision is gone: whether the revision before it cannot be read.
func CompactedAt(ctx context.Context, client *clientv3.Client, revision int64) (rules.Answer, error) {
	if revision <= 1 {
		return rules.Yes, nil // there is nothing before it
	}
	_, err := client.Get(ctx, "\x00", clientv3.WithRev(revision-1), clientv3.WithCountOnly())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return rules.Yes, nil
	}
	if err != nil {
		return rules.Unknown, fmt.Errorf("read at revision %d: %w", revision-1, err)
	}
	return rules.No, nil
}

// DisarmNoSpace takes back the alarm NOSPACE that stands for the member with id, and no other one.
func DisarmNoSpace(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: id, Alarm: etcdserverpb.AlarmType_NOSPACE}); err != nil {
		return fmt.Errorf("disarm NOSPACE of %x: %w", id, err)
	}
	return nil
}

// Defragment rewrites the database of the member at endpoint without the pages that are not in use. Until it answers the member
// serves neither reads nor writes; etcd goes on with it when ctx ends.
func Defragment(ctx context.Context, client *clientv3.Client, endpoint string) error {
	if _, err := client.Defragment(ctx, endpoint); err != nil {
		return fmt.Errorf("defragment %s: %w", endpoint, err)
	}
	return nil
}
