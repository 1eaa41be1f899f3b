package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

func TestClusterOutlivesItsProcesses(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 20, time.Minute)

	t.Run("a follower's etcd is killed and comes back in the same container", func(t *testing.T) {
		member := view.Follower()
		w.Gap()
		killEtcd(t, c, member)
		after := c.Agree(t, 3, healWithin)
		same(t, view, after)
		servedOn(t, w)
		if n := c.Restarts(t, member, harness.ContainerEtcd); n != 0 {
			t.Errorf("the kubelet restarted etcd's container %d times, want 0: launch does it", n)
		}
		view = after
	})

	t.Run("the leader's etcd is killed and writes go on after an election", func(t *testing.T) {
		w.Gap()
		killEtcd(t, c, view.Leader())
		w.AwaitWrites(t, 20, time.Minute)
		if err := w.StoodStill(harness.ElectionGap); err != nil {
			t.Error(err)
		}
		after := c.Agree(t, 3, healWithin)
		same(t, view, after)
		view = after
	})

	t.Run("an agent is killed and its etcd serves on", func(t *testing.T) {
		member := view.Leader()
		etcd := c.Process(t, member, harness.Etcd)
		w.Gap()
		c.Kill(t, member, harness.Agent)
		agentRestarted(t, c, member)
		after := c.Agree(t, 3, healWithin)
		same(t, view, after)
		servedOn(t, w)
		if now := c.Process(t, member, harness.Etcd); now != etcd {
			t.Errorf("etcd is process %d now, want %d still", now, etcd)
		}
		view = after
	})

	t.Run("a Pod is deleted and comes back with its data", func(t *testing.T) {
		w.Gap()
		deletePod(t, c, view.Follower())
		after := c.Agree(t, 3, healWithin)
		same(t, view, after)
		servedOn(t, w)
		view = after
	})

	t.Run("the leader's Pod is deleted and leadership moves before etcd stops", func(t *testing.T) {
		w.Gap()
		deletePod(t, c, view.Leader())
		after := c.Agree(t, 3, healWithin)
		same(t, view, after)
		servedOn(t, w)
		view = after
	})

	w.Stop(t, c.Etcd(t))
}

// TestClientsServedWithBrokenAgents: clients are served while all agents are broken.
func TestClientsServedWithBrokenAgents(t *testing.T) {
	stories.Begin(t)
	const badImage = "registry.invalid/agent:gone"
	c := rig.Apply(t)
	before := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.EtcdService(t))
	var good string
	for _, member := range c.MemberNames(t) {
		good = c.SetImage(t, member, harness.ContainerAgent, badImage)
	}
	for _, member := range c.MemberNames(t) {
		harness.Eventually(t, healWithin, "the agent of "+member+" is down", func(ctx context.Context) error {
			pod, err := c.Pod(ctx, member)
			if err != nil {
				return err
			}
			pids, err := harness.Processes(string(pod.UID), harness.Agent)
			if err != nil || len(pids) > 0 {
				return fmt.Errorf("agent runs as %v (%w)", pids, err)
			}
			return nil
		})
	}
	w.Gap()
	// All Leases go stale meanwhile.
	stories.Resting(t, func() {
		harness.Consistently(t, c.AgentTimings(t).LeaseDuration+35*time.Second, "writes through the client Service", func(context.Context) error {
			return w.StoodStill(harness.NoticeableGap)
		})
	})
	for _, member := range c.MemberNames(t) {
		if n := c.Restarts(t, member, harness.ContainerEtcd); n != 0 {
			t.Errorf("etcd of %s was restarted %d times, want 0", member, n)
		}
		c.SetImage(t, member, harness.ContainerAgent, good)
	}
	same(t, before, c.Agree(t, 3, healWithin))
	w.Stop(t, c.Etcd(t))
}

// killEtcd kills a member's etcd and waits for its successor.
func killEtcd(t *testing.T, c *harness.Cluster, member string) {
	t.Helper()
	before := c.Process(t, member, harness.Etcd)
	c.Kill(t, member, harness.Etcd)
	harness.Eventually(t, healWithin, "a new etcd of "+member, func(context.Context) error {
		if now := c.Process(t, member, harness.Etcd); now == before {
			return fmt.Errorf("process %d still runs", now)
		}
		return nil
	})
}

func agentRestarted(t *testing.T, c *harness.Cluster, member string) {
	t.Helper()
	harness.Eventually(t, healWithin, "a restart of the agent of "+member, func(context.Context) error {
		if c.Restarts(t, member, harness.ContainerAgent) == 0 {
			return fmt.Errorf("no restart yet")
		}
		return nil
	})
}

// deletePod deletes a member's Pod and waits for its successor's object.
func deletePod(t *testing.T, c *harness.Cluster, member string) {
	t.Helper()
	uid := string(c.MustPod(t, member).UID)
	c.Delete(t, &corev1.Pod{}, member)
	awaitSuccessor(t, c, member, uid)
}

func awaitSuccessor(t *testing.T, c *harness.Cluster, member, uid string) {
	t.Helper()
	harness.Eventually(t, healWithin, "a successor of Pod "+member, func(ctx context.Context) error {
		pod, err := c.Pod(ctx, member)
		if err == nil && string(pod.UID) == uid {
			return fmt.Errorf("the former Pod still exists")
		}
		return err
	})
}

// servedOn fails the test if writes stood still for longer than anybody would notice.
func servedOn(t *testing.T, w *harness.Writer) {
	t.Helper()
	if err := w.StoodStill(harness.NoticeableGap); err != nil {
		t.Error(err)
	}
}
