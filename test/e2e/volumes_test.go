package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

func TestMemberHealsWhenItsDataIsLost(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 200, time.Minute) // enough for a log and a database worth damaging

	losses := []struct {
		name string
		// lose destroys the data of a member and lets it come back.
		lose func(t *testing.T, member string)
	}{
		{"its volume is wiped while its Pod is down", func(t *testing.T, member string) {
			hold := c.HoldDown(t, member)
			c.VolumeOf(t, member).Wipe(t)
			hold.Release(t)
		}},
		{"its PersistentVolumeClaim and its Pod are deleted", func(t *testing.T, member string) {
			deleteVolumeAndPod(t, c, member)
		}},
		{"its write-ahead log is cut in half", func(t *testing.T, member string) {
			whileCrashed(t, c, member, func(v harness.Volume) { v.TruncateWAL(t) })
		}},
		{"pages of its database are flipped", func(t *testing.T, member string) {
			whileCrashed(t, c, member, func(v harness.Volume) { v.FlipPages(t) })
		}},
	}
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			member := view.Follower()
			w.Gap()
			loss.lose(t, member)
			after := awaitReplacement(t, c, member, view)
			replaced(t, view, after, member)
			servedOn(t, w)
			view = after
		})
	}

	t.Run("the seed's volume is emptied: it joins again and never forms a second cluster", func(t *testing.T) {
		record, err := c.Record(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hold := c.HoldDown(t, record.Seed)
		c.VolumeOf(t, record.Seed).Wipe(t)
		hold.Release(t)
		after := awaitReplacement(t, c, record.Seed, view)
		replaced(t, view, after, record.Seed)
		view = after
	})

	w.Stop(t, c.Etcd(t))
}

// awaitReplacement waits until the member has another ID than before, and all agree.
func awaitReplacement(t *testing.T, c *harness.Cluster, member string, before harness.View) harness.View {
	t.Helper()
	harness.Eventually(t, healWithin, member+" under a new ID", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		for _, m := range cluster.Status.Members {
			if m.Name == member && m.ID != "" && m.ID != before.IDs()[member] {
				return nil
			}
		}
		return fmt.Errorf("status still has ID %s", before.IDs()[member])
	})
	return c.Agree(t, len(before.Members), healWithin)
}

// whileCrashed kills a member's etcd and damages its volume before launch can look: launch is frozen meanwhile.
func whileCrashed(t *testing.T, c *harness.Cluster, member string, damage func(harness.Volume)) {
	t.Helper()
	volume := c.VolumeOf(t, member)
	launch, etcd := c.Process(t, member, harness.Launch), c.Process(t, member, harness.Etcd)
	signal(t, launch, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(launch, syscall.SIGCONT) })
	signal(t, etcd, syscall.SIGKILL)
	harness.Eventually(t, healWithin, "the end of etcd", func(context.Context) error {
		if usage, err := harness.UsageOf(etcd); err == nil && usage.RSS > 0 {
			return fmt.Errorf("process %d still holds memory", etcd)
		}
		return nil // gone, or a zombie that its frozen parent did not reap
	})
	damage(volume)
	signal(t, launch, syscall.SIGCONT)
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("send %s to process %d: %v", s, pid, err)
	}
}

// deleteVolumeAndPod does what a user does with a broken disk: delete both and wait for neither.
func deleteVolumeAndPod(t *testing.T, c *harness.Cluster, member string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Rig.Client.Get(t.Context(), harness.Key(c.Namespace, member), claim); err != nil {
		t.Fatalf("PersistentVolumeClaim %s: %v", member, err)
	}
	uid := string(claim.UID)
	c.Delete(t, &corev1.PersistentVolumeClaim{}, member)
	c.Delete(t, &corev1.Pod{}, member)
	harness.Eventually(t, healWithin, "the end of the former PersistentVolumeClaim "+member, func(ctx context.Context) error {
		return c.Gone(ctx, &corev1.PersistentVolumeClaim{}, member, uid)
	})
}
