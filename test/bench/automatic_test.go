package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

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
		w := harness.WriteAt(b, c.EtcdService(b), 5*time.Millisecond, 500*time.Millisecond)
		w.AwaitWrites(b, 20, within)
		w.MayLose()
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
