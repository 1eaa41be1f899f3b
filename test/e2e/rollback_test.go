package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// TestOlderVolumeCopyDoesNotVote: a member on an older copy of its volume does not vote.
// A volume that went back in time holds a member that forgot what it had promised. With a second member down it would
// make a quorum that never saw the writes which the third had acknowledged together with them.
func TestOlderVolumeCopyDoesNotVote(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	w := harness.Write(t, etcd)
	w.AwaitWrites(t, 50, time.Minute)
	members := c.MemberNames(t)
	rolledBack, down, up := members[0], members[1], members[2]

	hold := c.HoldDown(t, rolledBack)
	former := c.VolumeOf(t, rolledBack).Copy(t)
	beyond := raftIndex(t, etcd, up) // the copy's log ends before it
	hold.Release(t)
	same(t, view, c.Agree(t, 3, healWithin))

	w.AwaitWrites(t, 100, time.Minute)
	harness.Eventually(t, healWithin, "a newer floor in the Lease of "+rolledBack, func(ctx context.Context) error {
		m, err := c.Member(ctx, rolledBack)
		if err == nil && m.Floor.Committed <= beyond {
			return fmt.Errorf("floor %s, the copy ends before index %d", m.Floor, beyond)
		}
		return err
	})
	holdDown, holdBack := c.HoldDown(t, down), c.HoldDown(t, rolledBack)
	w.AwaitAttempt(t)
	acked := w.Acked()
	c.VolumeOf(t, rolledBack).SetTo(t, former)
	holdBack.Release(t)

	t.Run("it waits, and no quorum comes about", func(t *testing.T) {
		harness.Eventually(t, healWithin, "a word of "+rolledBack, func(ctx context.Context) error {
			m, err := c.Member(ctx, rolledBack)
			if err == nil && m.Data != "stale" {
				return fmt.Errorf("its Lease says data %q, rule %q, reason %q", m.Data, m.Rule, m.Reason)
			}
			return err
		})
		waits(t, c, rolledBack)
		if now := w.Acked(); now != acked {
			harness.Unsafe(t, "%d writes were acknowledged by %s and a member that forgot", now-acked, up)
		}
	})

	t.Run("it joins again when the others are back", func(t *testing.T) {
		holdDown.Release(t)
		after := awaitReplacement(t, c, rolledBack, view)
		replaced(t, view, after, rolledBack)
	})
	w.AwaitWrites(t, 20, time.Minute)
	w.Stop(t, etcd)
}

// raftIndex is how far a member's log reaches.
func raftIndex(t *testing.T, etcd *clientv3.Client, member string) uint64 {
	t.Helper()
	var index uint64
	harness.Eventually(t, healWithin, "the raft index of "+member, func(ctx context.Context) error {
		status, err := etcd.Status(ctx, harness.Endpoint(member))
		if err == nil {
			index = status.RaftIndex
		}
		return err
	})
	return index
}
