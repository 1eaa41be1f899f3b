package e2e

import (
	"flag"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

var joinMiB = flag.Int("join.mib", 64, "MiB of data that joining members must catch up with")

// joinWithin is how long members may take to join that must catch up: what a change of scale takes, and a second for each
// 4 MiB on a disk that all members and all stories share.
func joinWithin() time.Duration { return scaleWithin + time.Duration(*joinMiB)*time.Second/4 }

// Two members join at once a cluster whose log does not reach back to its beginning, so each is sent the whole database
// while writes go on. By hand: go test ./test/e2e -run CatchUp -timeout 0 -v -args -join.mib 2048
func TestMembersThatCatchUpDisturbNoQuorum(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Room(*joinMiB))
	c.AwaitMembers(t, 3, formWithin)
	keys := harness.Fill(t, c.EtcdService(t), *joinMiB)
	before := c.AwaitMembers(t, 3, scaleWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 100, time.Minute)

	w.Gap()
	begun := time.Now()
	c.Scale(t, 5)
	harness.Eventually(t, joinWithin(), "five voters", voters(5).of(c))
	t.Logf("all are promoted after %s", time.Since(begun).Round(100*time.Millisecond))
	if err := w.StoodStill(harness.NoticeableGap); err != nil {
		t.Error(err)
	}
	after := c.AwaitMembers(t, 5, joinWithin())
	survived(t, before, after)
	for name := range after.Members {
		if _, old := before.Members[name]; old {
			continue
		}
		if c.SnapshotsReceived(t, name) == 0 {
			t.Errorf("%s was sent no snapshot: the story shows nothing", name)
		}
		if got := c.Filled(t, name); got != keys {
			t.Errorf("%s votes with %d keys, want %d", name, got, keys)
		}
	}
	if before.Leader() != after.Leader() {
		t.Logf("leadership went from %s to %s", before.Leader(), after.Leader())
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}
