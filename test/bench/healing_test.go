package bench

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// electionTimeout is etcd's default, which the measured clusters run with.
const electionTimeout = time.Second

func BenchmarkRepairing(b *testing.B) {
	c := rig.Apply(b)
	c.Agree(b, 3, within)
	for b.Loop() {
		lostData(b, c)
		lostVolume(b, c)
		deletedPod(b, c, "follower", "≤ 4 s", harness.View.Follower)
		deletedPod(b, c, "leader", "≤ 4 s, gap ≤ 0.2 s", harness.View.Leader)
		killedLeader(b, c)
	}
	c.Destroy(b)
}

// lostData empties a member's volume in place.
func lostData(b *testing.B, c *harness.Cluster) {
	b.Helper()
	view := c.Agree(b, 3, within)
	member := view.Follower()
	volume := c.VolumeOf(b, member)
	launch, etcd := c.Process(b, member, harness.Launch), c.Process(b, member, harness.Etcd)
	for pid, s := range map[int]syscall.Signal{launch: syscall.SIGSTOP, etcd: syscall.SIGKILL} {
		if err := syscall.Kill(pid, s); err != nil {
			b.Fatal(err)
		}
	}
	volume.WipeData(b)
	begun, detected := time.Now(), detects(b, c, member)
	if err := syscall.Kill(launch, syscall.SIGCONT); err != nil {
		b.Fatal(err)
	}
	votesAgain(b, c, member, view)
	detected("data wiped")
	report.seconds("data wiped → voting again", "≤ 15 s", time.Since(begun))
}

// lostVolume deletes a member's volume and its Pod.
func lostVolume(b *testing.B, c *harness.Cluster) {
	b.Helper()
	view := c.Agree(b, 3, within)
	member := view.Follower()
	begun, detected := time.Now(), detects(b, c, member)
	c.Delete(b, &corev1.PersistentVolumeClaim{}, member)
	c.Delete(b, &corev1.Pod{}, member)
	votesAgain(b, c, member, view)
	detected("PVC and Pod deleted")
	report.seconds("PVC and Pod deleted → voting again", "≤ 15 s", time.Since(begun))
}

func deletedPod(b *testing.B, c *harness.Cluster, which, want string, choose func(harness.View) string) {
	b.Helper()
	member := choose(c.Agree(b, 3, within))
	w := harness.WriteAt(b, c.Etcd(b), 5*time.Millisecond, 500*time.Millisecond)
	w.AwaitWrites(b, 20, within)
	former := string(c.MustPod(b, member).UID)
	w.Gap()
	begun, detected := time.Now(), detects(b, c, member)
	c.Delete(b, &corev1.Pod{}, member)
	c.AwaitPodReady(b, member, former, within)
	c.AwaitReady(b, 3, within)
	detected(which + "'s Pod deleted")
	report.seconds(which+"'s Pod deleted → full health", want, time.Since(begun))
	report.seconds("· "+which+": longest time without an acknowledged write", "", w.Gap())
	w.Stop(b, c.Etcd(b))
}

func killedLeader(b *testing.B, c *harness.Cluster) {
	b.Helper()
	leader := c.Agree(b, 3, within).Leader()
	w := harness.WriteAt(b, c.Etcd(b), 5*time.Millisecond, 500*time.Millisecond)
	w.AwaitWrites(b, 20, within)
	w.Gap()
	detected := detects(b, c, leader)
	c.Kill(b, leader, harness.Etcd)
	w.AwaitWrites(b, 20, within)
	report.add("leader's etcd killed → writes succeed again", "≤ 2", "election timeouts", w.Gap().Seconds()/electionTimeout.Seconds())
	c.Agree(b, 3, within)
	detected("leader's etcd killed")
	w.Stop(b, c.Etcd(b))
}

// detects measures how long status.members takes to say that a member is not Ready. The returned function adds the figure to the report.
// Without a figure, the member was Ready again before druid or its agent reported otherwise.
func detects(b *testing.B, c *harness.Cluster, member string) (detected func(failure string)) {
	b.Helper()
	begun := time.Now()
	ctx, cancel := context.WithCancel(b.Context())
	var took time.Duration
	var group errgroup.Group
	group.Go(func() error {
		for took == 0 && ctx.Err() == nil {
			cluster, err := c.Get(ctx)
			if err == nil && slices.ContainsFunc(cluster.Status.Members, func(m v1alpha1.MemberStatus) bool {
				return m.Name == member && m.Status != v1alpha1.MemberReady
			}) {
				took = time.Since(begun)
			}
			loop.Sleep(ctx, 50*time.Millisecond)
		}
		return nil
	})
	return func(failure string) {
		cancel()
		_ = group.Wait() // it returns none
		if took > 0 {
			report.seconds("· "+failure+" → in status.members", "", took)
		}
	}
}

// votesAgain waits until the member is a voter under a new ID, as its Lease reports.
func votesAgain(b *testing.B, c *harness.Cluster, member string, before harness.View) {
	b.Helper()
	harness.Eventually(b, within, member+" votes under a new ID", func(ctx context.Context) error {
		m, err := c.Member(ctx, member)
		if err != nil {
			return err
		}
		if m.ID == 0 || leases.FormatID(m.ID) == before.IDs()[member] || m.Role == leases.RoleLearner {
			return fmt.Errorf("its Lease says %q", m.HolderIdentity())
		}
		return nil
	})
}
