package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

var (
	restoreMiB  = flag.Int("restore.mib", 100, "MiB in the cluster that is restored or recovered from backups")
	survivorMiB = flag.Int("survivor.mib", 512, "MiB in the cluster that is recovered from one disk; the rig needs about eight times as much")
)

const (
	// recoverWithin is the limit for a recovery, and with the backups of so much data.
	recoverWithin = 10 * time.Minute
	// recoverAfter is the shortest spec.recovery.afterSeconds.
	recoverAfter = 30
	backups      = "backups"
)

// BenchmarkRestoring restores a cluster in place under a writer that connects through the client Service.
func BenchmarkRestoring(b *testing.B) {
	for b.Loop() {
		c := savedCluster(b, harness.Room(*restoreMiB))
		view := c.AwaitMembers(b, 3, within)
		w := harness.WriteAt(b, c.EtcdService(b), 5*time.Millisecond, 500*time.Millisecond)
		w.MayLose()
		w.AwaitWrites(b, 100, within)
		target := fill(b, c, *restoreMiB)
		c.AwaitSaved(b, recoverWithin, target)
		c.AwaitCondition(b, recoverWithin, v1alpha1.ConditionBackupReady, "True")
		c.RequestRestore(b, fmt.Sprintf(`{"revision":%d}`, target))
		proposed := c.AwaitRecovery(b, recoverWithin, v1alpha1.RecoveryProposed)
		w.Gap()
		approved := rig.Approve(b, proposed)
		c.AwaitRecovery(b, recoverWithin, v1alpha1.RecoverySaving)
		saving := time.Now()
		c.AwaitRecovery(b, recoverWithin, v1alpha1.RecoveryPreparing)
		preparing := time.Now()
		what := fmt.Sprintf("restore in place, %d MiB", *restoreMiB)
		c.AwaitRecovery(b, recoverWithin, v1alpha1.RecoveryRecovered)
		w.AwaitWrites(b, 20, recoverWithin)
		report.seconds(what+": longest time without an acknowledged write", "≤ 45 s", w.Gap())
		report.seconds("· "+what+": no new connection, from the final backup on", "", time.Since(saving))
		report.seconds("· "+what+": of this, the final backup", "", preparing.Sub(saving))
		report.seconds("· "+what+": approval → writes succeed", "", time.Since(approved))
		c.AwaitMembers(b, len(view.Members), recoverWithin)
		report.seconds("· "+what+": approval → three voters", "", time.Since(approved))
		end(b, c, w)
	}
}

// BenchmarkRecoveringInMemory deletes all Pods of a cluster in memory. druid restores the newest backup by itself.
func BenchmarkRecoveringInMemory(b *testing.B) {
	for b.Loop() {
		c := savedCluster(b, func(c *v1alpha1.EtcdCluster) {
			size := *resource.NewQuantity(int64(*restoreMiB*3+320)<<20, resource.BinarySI)
			limit := *resource.NewQuantity(size.Value()+int64(*restoreMiB*4+512)<<20, resource.BinarySI)
			c.Spec.Storage = v1alpha1.StorageSpec{Size: size, Medium: v1alpha1.StorageMemory}
			c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: limit}
			c.Spec.Recovery = &v1alpha1.RecoverySpec{
				Policy: v1alpha1.RecoveryAutomatic, AfterSeconds: recoverAfter, MaxDataLoss: &v1alpha1.MaxDataLoss{Seconds: new(int64(60))},
			}
		})
		view := c.Agree(b, 3, within)
		c.AwaitSaved(b, recoverWithin, fill(b, c, *restoreMiB))
		c.AwaitCondition(b, recoverWithin, v1alpha1.ConditionBackupReady, "True")
		w := writeAndLose(b, c)
		lost := time.Now()
		for _, member := range c.MemberNames(b) {
			c.Delete(b, &corev1.Pod{}, member, client.GracePeriodSeconds(0))
		}
		c.AwaitCondition(b, recoverWithin, v1alpha1.ConditionReady, "False")
		ordered := awaitOrder(b, c)
		w.AwaitWrites(b, 1, recoverWithin)
		what := fmt.Sprintf("three of three in memory, Automatic, %d MiB", *restoreMiB)
		report.seconds(what+": order → writes succeed", "≤ 45 s", time.Since(ordered))
		report.seconds("· "+what+": loss → writes succeed", "", time.Since(lost))
		c.Agree(b, len(view.Members), recoverWithin)
		report.seconds("· "+what+": order → three voters", "", time.Since(ordered))
		report.add("· "+what+": acknowledged writes lost", "", "", float64(end(b, c, w)))
	}
}

// BenchmarkRecoveringFromASurvivor wipes two of three volumes, and approves the plan to continue from the third.
func BenchmarkRecoveringFromASurvivor(b *testing.B) {
	for b.Loop() {
		c := rig.Apply(b, harness.Room(*survivorMiB), func(c *v1alpha1.EtcdCluster) {
			c.Spec.Recovery = &v1alpha1.RecoverySpec{AfterSeconds: recoverAfter}
		})
		view := c.AwaitMembers(b, 3, within)
		fill(b, c, *survivorMiB)
		w := writeAndLose(b, c)
		lost := loseVolumes(b, c, view.Follower())
		proposed := c.AwaitRecovery(b, recoverWithin, v1alpha1.RecoveryProposed)
		planned := time.Now()
		approved := rig.Approve(b, proposed)
		w.AwaitWrites(b, 1, recoverWithin)
		what := fmt.Sprintf("two of three disks lost, %d MiB", *survivorMiB)
		report.seconds(what+": approval → writes succeed", "≤ 90 s", time.Since(approved))
		report.seconds("· "+what+": loss → plan", "", planned.Sub(lost))
		c.AwaitMembers(b, len(view.Members), recoverWithin)
		report.seconds("· "+what+": approval → three voters", "", time.Since(approved))
		report.add("· "+what+": acknowledged writes lost", "", "", float64(end(b, c, w)))
	}
}

// BenchmarkRecoveringAutomatically wipes two of three volumes. With the policy Automatic, druid continues from the third one by itself.
func BenchmarkRecoveringAutomatically(b *testing.B) {
	for b.Loop() {
		c := rig.Apply(b, harness.Room(*restoreMiB), func(c *v1alpha1.EtcdCluster) {
			c.Spec.Recovery = &v1alpha1.RecoverySpec{
				Policy: v1alpha1.RecoveryAutomatic, AfterSeconds: recoverAfter, MaxDataLoss: &v1alpha1.MaxDataLoss{Seconds: new(int64(60))},
			}
		})
		view := c.AwaitMembers(b, 3, within)
		fill(b, c, *restoreMiB)
		w := writeAndLose(b, c)
		lost := loseVolumes(b, c, view.Follower())
		ordered := awaitOrder(b, c)
		w.AwaitWrites(b, 1, recoverWithin)
		what := fmt.Sprintf("two of three disks lost, Automatic, %d MiB", *restoreMiB)
		report.seconds(what+": order → writes succeed", "≤ 30 s", time.Since(ordered))
		c.AwaitMembers(b, len(view.Members), recoverWithin)
		report.seconds("· "+what+": order → three voters", "≤ 60 s", time.Since(ordered))
		report.seconds("· "+what+": loss → order", "", ordered.Sub(lost))
		report.add("· "+what+": acknowledged writes lost", "", "", float64(end(b, c, w)))
	}
}

// writeAndLose writes until the benchmark ends. The cluster may lose acknowledged writes from now on.
func writeAndLose(b *testing.B, c *harness.Cluster) *harness.Writer {
	b.Helper()
	w := harness.WriteAt(b, c.EtcdService(b), 5*time.Millisecond, 500*time.Millisecond)
	w.AwaitWrites(b, 20, within)
	w.MayLose()
	return w
}

// end ends the writer and the cluster, and returns how many acknowledged writes are lost.
func end(b *testing.B, c *harness.Cluster, w *harness.Writer) (lost int) {
	b.Helper()
	etcd := c.Etcd(b)
	lost = w.Lost(b, etcd, time.Now(), 0).Writes
	w.Stop(b, etcd)
	c.Destroy(b)
	return lost
}

// loseVolumes wipes the volumes of all members but one, and then ends their etcds.
func loseVolumes(b *testing.B, c *harness.Cluster, survivor string) (at time.Time) {
	b.Helper()
	lost := slices.DeleteFunc(c.MemberNames(b), func(m string) bool { return m == survivor })
	for _, member := range lost {
		c.VolumeOf(b, member).Wipe(b)
	}
	for _, member := range lost {
		c.Kill(b, member, harness.Etcd)
	}
	return time.Now()
}

// savedCluster is a cluster whose changes are saved every second in a bucket.
func savedCluster(b *testing.B, option harness.Option) *harness.Cluster {
	b.Helper()
	s3, namespace := rig.MakeSavedNamespace(b, backups)
	return rig.ApplyIn(b, namespace, option, func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: s3.Store(backups), Delta: v1alpha1.DeltaBackup{Period: &metav1.Duration{Duration: time.Second}}}
	})
}

// fill writes so many MiB, and returns the revision.
func fill(b *testing.B, c *harness.Cluster, mib int) (revision int64) {
	b.Helper()
	harness.Fill(b, c.Etcd(b), mib)
	return c.Revision(b)
}

// awaitOrder waits until druid ordered a recovery.
func awaitOrder(b *testing.B, c *harness.Cluster) time.Time {
	b.Helper()
	harness.Eventually(b, recoverWithin, "a recovery is ordered", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err == nil && record.Recovery == nil {
			err = errors.New("the record has no order")
		}
		return err
	})
	return time.Now()
}
