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

// Reasons for which etcd refuses a change. Callers can branch on them. After any other error, it is unknown whether
// the change took effect; read the member list to find out.
var (
	// ErrUnhealthy: the queried member was not connected to a quorum of voters for the last 5 s (etcd's
	// HealthInterval). Healthy clusters return it for 5 s after a peer reconnects, so callers retry for at least 10 s.
	ErrUnhealthy = errors.New("not connected to a quorum for 5 s")
	// ErrNotEnoughStarted: the change would leave fewer started members than a quorum.
	ErrNotEnoughStarted = errors.New("too few started members")
	// ErrLearnerNotReady: the learner has less than 90 % of the leader's log. Retry.
	ErrLearnerNotReady = errors.New("learner is not in sync with the leader")
	// ErrTooManyLearners: the raft group's fixed limit is reached.
	ErrTooManyLearners = errors.New("too many learners")
	// ErrNotLearner: the member is a voter already.
	ErrNotLearner = errors.New("member is not a learner")
	// ErrNotFound: no member has the ID.
	ErrNotFound = errors.New("member not found")
	// ErrExists: a member with the peer URL is listed already.
	ErrExists = errors.New("peer URL is listed already")
	// ErrCompacted: the revision was compacted already.
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

// classify joins a sentinel of this package to etcd's error, whose text has more detail for users.
func classify(err error) error {
	for _, c := range classes {
		if errors.Is(err, c.etcd) {
			return fmt.Errorf("%w: %w", c.ours, err)
		}
	}
	return err
}

// AddLearner adds a learner with peerURL. The queried server chooses the ID.
func AddLearner(ctx context.Context, client *clientv3.Client, peerURL string) (Member, error) {
	resp, err := client.MemberAddAsLearner(ctx, []string{peerURL})
	if err != nil {
		return Member{}, fmt.Errorf("member add %s as learner: %w", peerURL, classify(err))
	}
	return members(append(resp.Members[:0:0], resp.Member))[0], nil
}

// Promote makes the learner with id a voter. etcd refuses until the learner has caught up.
func Promote(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.MemberPromote(ctx, id); err != nil {
		return fmt.Errorf("member promote %x: %w", id, classify(err))
	}
	return nil
}

// UpdatePeerURL changes the peer URL of the voter with id. Never call it for a learner: etcd would make it a voter (etcd-io/etcd#21694).
func UpdatePeerURL(ctx context.Context, client *clientv3.Client, id uint64, peerURL string) error {
	if _, err := client.MemberUpdate(ctx, id, []string{peerURL}); err != nil {
		return fmt.Errorf("member update %x to %s: %w", id, peerURL, classify(err))
	}
	return nil
}

// Remove removes the member with exactly this ID. This cannot be undone: etcd never accepts the ID again.
func Remove(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.MemberRemove(ctx, id); err != nil {
		return fmt.Errorf("member remove %x: %w", id, classify(err))
	}
	return nil
}

// MoveLeader transfers leadership to the voter with id. Send it to the leader.
func MoveLeader(ctx context.Context, client *clientv3.Client, id uint64) error {
	if _, err := client.MoveLeader(ctx, id); err != nil {
		return fmt.Errorf("move leader to %x: %w", id, classify(err))
	}
	return nil
}

// Compact discards the revisions older than revision on all members. Afterwards, revision is the oldest one that can
// be read. The answer does not wait until the pages are freed. ErrCompacted means that it was done before.
func Compact(ctx context.Context, client *clientv3.Client, revision int64) error {
	if _, err := client.Compact(ctx, revision); err != nil {
		return fmt.Errorf("compact at revision %d: %w", revision, classify(err))
	}
	return nil
}

// CompactedAt says whether the history before revision is compacted, that is, whether the revision before it cannot be
// read.
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

// Disarm clears an alarm of a member, and no other alarm.
func Disarm(ctx context.Context, client *clientv3.Client, a Alarm) error {
	kind := etcdserverpb.AlarmType(etcdserverpb.AlarmType_value[a.Type])
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.MemberID, Alarm: kind}); err != nil {
		return fmt.Errorf("disarm %s of %x: %w", a.Type, a.MemberID, err)
	}
	return nil
}

// Defragment rewrites the database of the member at endpoint without unused pages. Until it returns, the member serves
// neither reads nor writes. If ctx ends, etcd continues.
func Defragment(ctx context.Context, client *clientv3.Client, endpoint string) error {
	if _, err := client.Defragment(ctx, endpoint); err != nil {
		return fmt.Errorf("defragment %s: %w", endpoint, err)
	}
	return nil
}
