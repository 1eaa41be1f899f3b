package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

// calm is for how long druid watches a Pod that came back before it deletes the next one (finishTimeout in package druid).
const calm = 10 * time.Second

// BenchmarkRollout shows what it takes to replace the Pods of three members one after another under a writer: for an edited
// spec, and for the next minor of etcd. What of it cannot be avoided is a Pod's end and a Pod's start, for each.
func BenchmarkRollout(b *testing.B) {
	from, to := rig.EtcdVersion(b, "3.6"), rig.EtcdVersion(b, "3.7")
	for b.Loop() {
		c := rig.Apply(b, harness.Version(from))
		view := c.AwaitMembers(b, 3, within)
		bare := barePod(b, c, view.Leader())
		w := harness.WriteAt(b, c.EtcdService(b), 5*time.Millisecond, 2*time.Second)
		w.AwaitWrites(b, 20, within)
		view = rolloutStep(b, c, w, view, bare, rollout{"edited spec", `{"spec":{"resources":{"requests":{"cpu":"101m"}}}}`})
		rolloutStep(b, c, w, view, bare, rollout{"upgrade 3.6 → 3.7", fmt.Sprintf(`{"spec":{"version":%q}}`, to)})
		w.Stop(b, c.Etcd(b))
		c.Destroy(b)
	}
}

// rollout is an edit that replaces all Pods.
type rollout struct{ what, patch string }

func rolloutStep(b *testing.B, c *harness.Cluster, w *harness.Writer, before harness.View, bare time.Duration, edit rollout) harness.View {
	b.Helper()
	members := len(before.Members)
	what, failed := fmt.Sprintf("%s of %d members under a writer", edit.what, members), w.Failed()
	former := map[string]string{}
	for name := range before.Members {
		former[name] = string(c.MustPod(b, name).UID)
	}
	w.Gap()
	begun := time.Now()
	c.Edit(b, edit.patch)
	for name, uid := range former {
		c.AwaitPodReady(b, name, uid, rolloutWithin)
	}
	replaced := time.Since(begun)
	c.AwaitCondition(b, rolloutWithin, "Progressing", "False", "Reconciled")
	after := c.AwaitMembers(b, members, within)
	took := time.Since(begun)
	report.seconds(what+": stable", "", took)
	report.seconds("· "+what+": the last Pod is ready", "", replaced)
	report.seconds("· "+what+": per member", "", took/time.Duration(members))
	report.seconds("· "+what+": ends and starts of so many bare Pods", "", time.Duration(members)*bare)
	report.seconds("· "+what+": druid's watch over those that came back", "", time.Duration(members-1)*calm)
	report.seconds("· "+what+": longest time without an acknowledged write", "", w.Gap())
	report.add("· "+what+": failed writes", "0", "", float64(w.Failed()-failed))
	return after
}

// rolloutWithin is the limit for the replacement of all Pods.
const rolloutWithin = 3 * within
