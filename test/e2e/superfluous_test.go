package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

func TestUnexpectedMembersAreRemoved(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	grace := c.AgentTimings(t).SuperfluousGrace

	t.Run("a learner and a voter that never start go after the grace period", func(t *testing.T) {
		begun := time.Now()
		addUnknownMember(t, etcd, "http://learner.invalid:2380", true)
		addUnknownMember(t, etcd, "http://voter.invalid:2380", false)
		stories.Resting(t, func() {
			harness.Eventually(t, 5*time.Minute, "a first removal", func(ctx context.Context) error {
				return fewerMembersThan(ctx, etcd, 5)
			})
			if took := time.Since(begun); took < grace {
				t.Errorf("the first was removed %s after it was added, want a grace of %s", took, grace)
			}
			harness.Eventually(t, 5*time.Minute, "only the ordered members", listed(etcd, view))
		})
		same(t, view, c.Agree(t, 3, healWithin))
	})

	t.Run("without a quorum nothing is removed", func(t *testing.T) {
		addUnknownMember(t, etcd, "http://voter.invalid:2380", false)
		members := c.MemberNames(t)
		holds := []*harness.Hold{c.HoldDown(t, members[0]), c.HoldDown(t, members[1])}
		// One of four voters is up. A removal needs a quorum, so what is shown is that the grace period does not run
		// while the member could not be observed: right after the quorum is back the unknown member is still there.
		harness.Consistently(t, grace+15*time.Second, "no linearizable answer", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if list, err := etcd.MemberList(ctx); err == nil {
				return fmt.Errorf("a quorum lists %d members", len(list.Members))
			}
			return nil
		})
		for _, h := range holds {
			h.Release(t)
		}
		harness.Eventually(t, healWithin, "a quorum", func(ctx context.Context) error {
			list, err := etcd.MemberList(ctx)
			if err == nil && len(list.Members) != 4 {
				harness.Unsafe(t, "right after the quorum is back etcd lists %d members, want the 4 from before", len(list.Members))
			}
			return err
		})
		stories.Resting(t, func() { harness.Eventually(t, 5*time.Minute, "only the ordered members", listed(etcd, view)) })
		same(t, view, c.Agree(t, 3, healWithin))
	})
}

// TestRemovalKeepsQuorum: a removal that would cost the quorum does not happen.
// Two unknown objects run and vote, two members that were ordered are down: of five voters exactly a quorum of three is up.
// Without one of the unknown objects it would be two of four.
func TestRemovalKeepsQuorum(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	w := harness.Write(t, etcd)
	members := c.MemberNames(t)
	c.MoveLeader(t, members[2])
	// While all five voters are up, a removal costs no quorum. So the leader's agent sees the unknown objects only when two are held down.
	if err := syscall.Kill(c.Process(t, members[2], harness.Agent), syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze the agent of %s: %v", members[2], err)
	}
	var unknownMembers []string
	for _, name := range []string{"other-a", "other-b"} {
		c.RunUnknownMember(t, etcd, name)
		unknownMembers = append(unknownMembers, name)
	}
	holds := []*harness.Hold{c.HoldDown(t, members[0]), c.HoldDown(t, members[1])}
	c.MoveLeader(t, members[2])          // an election may have moved it
	c.Kill(t, members[2], harness.Agent) // the next one counts from now on
	w.AwaitWrites(t, 10, time.Minute)

	harness.Consistently(t, c.AgentTimings(t).SuperfluousGrace+20*time.Second, "both unknown objects listed", safely(t, func(ctx context.Context) error {
		list, err := etcd.MemberList(ctx)
		if err != nil {
			return harness.NoAnswer(err)
		}
		var names []string
		for _, m := range list.Members {
			names = append(names, m.Name)
		}
		for _, s := range unknownMembers {
			if !strings.Contains(strings.Join(names, " "), s) {
				return fmt.Errorf("etcd lists %v, without %s", names, s)
			}
		}
		return nil
	}))
	for _, h := range holds {
		h.Release(t)
	}
	stories.Resting(t, func() { harness.Eventually(t, 6*time.Minute, "only the ordered members", listed(etcd, view)) })
	same(t, view, c.Agree(t, 3, healWithin))
	w.Stop(t, etcd)
}

// addUnknownMember adds a member as someone with etcdctl would, who tries again while etcd finds its peers too young.
func addUnknownMember(t *testing.T, etcd *clientv3.Client, peerURL string, learner bool) {
	t.Helper()
	harness.Eventually(t, formWithin, "member add of "+peerURL, func(ctx context.Context) error {
		add := etcd.MemberAdd
		if learner {
			add = etcd.MemberAddAsLearner
		}
		_, err := add(ctx, []string{peerURL})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil // the attempt before this one succeeded, and its answer was lost
		}
		return err
	})
}

func fewerMembersThan(ctx context.Context, etcd *clientv3.Client, n int) error {
	list, err := etcd.MemberList(ctx)
	if err == nil && len(list.Members) >= n {
		return fmt.Errorf("etcd lists %d members", len(list.Members))
	}
	return err
}
