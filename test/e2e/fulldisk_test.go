package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// The disk of a follower is full under a writer, and its etcd ends at a write and at each start. druid replaces neither the member nor its
// volume. The member serves again when there is space: first because files are deleted, and then because the volume grew.
func TestFullDiskMemberServesAgain(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	member := view.Follower()
	node := c.MustPod(t, member).Spec.NodeName
	hold := c.HoldDown(t, member)
	disk := hold.OnSmallDisk(t, node)
	hold.Release(t)
	view = c.Agree(t, 3, healWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 100, scaleWithin)
	for i, heal := range []func(){func() { disk.Free(t) }, func() { disk.Grow(t) }} {
		w.Gap()
		disk.Fill(t)
		endsWithoutSpace(t, c, member, fmt.Sprintf("/large/%d", i))
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionAllMembersReady, "False")
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionReady, "True")
		harness.Consistently(t, c.AgentTimings(t).LeaseDuration+maxWait, "the member and its volume stay", func(ctx context.Context) error {
			kept, err := disk.Quarantined(ctx)
			if err != nil {
				return err
			}
			if len(kept) > 0 {
				return fmt.Errorf("the data of %s was moved to %v", member, kept)
			}
			record, err := c.Record(ctx)
			if err == nil && record.Replacing != nil {
				err = fmt.Errorf("the slot is taken: %+v", *record.Replacing)
			}
			return err
		})
		servedOn(t, w)
		heal()
		same(t, view, c.Agree(t, 3, healWithin))
	}
	disk.Free(t)
	hold = c.HoldDown(t, member)
	disk.Back(t)
	hold.Release(t)
	same(t, view, c.Agree(t, 3, healWithin))
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// endsWithoutSpace writes large values until the database of the member must grow, and its etcd ends.
func endsWithoutSpace(t *testing.T, c *harness.Cluster, member, prefix string) {
	t.Helper()
	pid, etcd, n := c.Process(t, member, harness.Etcd), c.Etcd(t), 0
	began := time.Now()
	harness.Eventually(t, healWithin, "the etcd of "+member+" ends", func(ctx context.Context) error {
		n++
		if _, err := etcd.Put(ctx, fmt.Sprintf("%s/%d", prefix, n), strings.Repeat("x", 256<<10)); err != nil {
			return err
		}
		if harness.Ended(pid) != nil {
			return errors.New("it runs")
		}
		return nil
	})
	t.Logf("the etcd of %s ended %s after the first of %d writes", member, time.Since(began).Round(time.Millisecond), n)
}
