package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

// connectedFor is for how long all peers must have been connected before etcd adds or removes a member (server/etcdserver,
// HealthInterval).
const connectedFor = 5 * time.Second

// BenchmarkScale shows what each change of scale takes under a writer, and what of that cannot be avoided.
func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		c := rig.Apply(b, harness.Replicas(1))
		view := c.AwaitMembers(b, 1, within)
		barePod(b, c, view.Leader())
		w := harness.WriteAt(b, c.EtcdService(b), 5*time.Millisecond, 2*time.Second)
		w.AwaitWrites(b, 20, within)
		for _, step := range []struct {
			to   int
			want string
		}{{3, ""}, {5, "≤ 12 s"}, {7, ""}, {5, ""}, {3, "≤ 5 s"}, {1, ""}} {
			view = scaleStep(b, c, w, view, step.to, step.want)
		}
		w.Stop(b, c.Etcd(b))
		c.Destroy(b)
	}
}

// scaleStep begins as soon as the step before it is stable: that is when etcd's guard hinders most.
func scaleStep(b *testing.B, c *harness.Cluster, w *harness.Writer, before harness.View, to int, want string) harness.View {
	b.Helper()
	what := fmt.Sprintf("%d → %d under a writer", len(before.Members), to)
	etcd := c.EtcdService(b)
	defer etcd.Close()
	guarded, failed := finalizerOf(b, c, before), w.Failed()
	w.Gap()
	begun := time.Now()
	c.Scale(b, int32(to))
	harness.Eventually(b, within, what, func(ctx context.Context) error {
		list, err := etcd.MemberList(ctx)
		if err != nil {
			return err
		}
		voters := 0
		for _, m := range list.Members {
			if !m.IsLearner {
				voters++
			}
		}
		if voters != to || len(list.Members) != to {
			return fmt.Errorf("%d members, %d voters", len(list.Members), voters)
		}
		return nil
	})
	listed := time.Since(begun)
	after := c.AwaitMembers(b, to, within)
	report.seconds(what+": stable", want, time.Since(begun))
	report.seconds("· "+what+": etcd lists so many voters", "", listed)
	report.seconds("· "+what+": etcd's guard was closed for", "", guarded)
	report.seconds("· "+what+": longest time without an acknowledged write", "", w.Gap())
	report.add("· "+what+": failed writes", "0", "", float64(w.Failed()-failed))
	moved := 0.
	if before.Leader() != after.Leader() {
		moved = 1
	}
	report.add("· "+what+": leadership moved", "", "", moved)
	return after
}

// finalizerOf is for how long etcd will yet refuse changes: the youngest of its processes has the youngest connections. One
// member has no peers to be connected with.
func finalizerOf(b *testing.B, c *harness.Cluster, view harness.View) time.Duration {
	b.Helper()
	if len(view.Members) == 1 {
		return 0
	}
	left := time.Duration(0)
	for name := range view.Members {
		age, err := harness.AgeOf(c.Process(b, name, harness.Etcd))
		if err != nil {
			b.Fatal(err)
		}
		left = max(left, connectedFor-age)
	}
	return left
}
