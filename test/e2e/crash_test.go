package e2e

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// TestDruidCrashDuringScaleChange: druid ends at a point and another finishes the change of scale.
// test/crash and package druid end a druid at every point, next to a real etcd and a real API server. Here is a sample of the
// points in the middle of a change of scale, where two replicas, members and writers run. Each is the last such passage of
// its change, so that anyone who takes over does not end there again. It changes druid's Deployment, so it runs alone.
func TestDruidCrashDuringScaleChange(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	t.Cleanup(func() { rig.CrashDruidAt(t, "") })
	for _, change := range []struct {
		name  string
		to    int
		point string
	}{
		{"3 to 5, when the last Pod was made", 5, "after-create-pod:2"},
		{"5 to 3, when the last member was asked to go", 3, "after-request-removal:2"},
	} {
		t.Run(change.name, func(t *testing.T) {
			rig.CrashDruidAt(t, change.point)
			begun := time.Now()
			c.Scale(t, int32(change.to))
			harness.Eventually(t, scaleWithin, "the end of druid "+change.point, rig.DruidCrashed)
			t.Logf("druid ended %s, %s after the change", change.point, time.Since(begun).Round(100*time.Millisecond))
			after := c.AwaitMembers(t, change.to, scaleWithin)
			t.Logf("stable at %d after %s", change.to, time.Since(begun).Round(100*time.Millisecond))
			survived(t, view, after)
			view = after
		})
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}
