package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// longCertificates are valid for so long that they begin more than an hour before they are issued.
const longCertificates = 90 * 24 * time.Hour

// The clock steps by an hour for the druid that works, and for the member on its node, which leads: forward and then back, to an hour
// before the other nodes. No Lease is judged by it: no member counts as away, and both leaders stay. While the clock is wrong, a member
// that loses its disk is replaced, and backups go on.
func TestLeaderClockSteps(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.TLS(longCertificates), backedUp(s3.Store(bucket)))
	view := c.AwaitMembers(t, 3, formWithin)
	leader, others, _ := nearDruid(t, c)
	awaitBackups(t, c)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	c.MoveLeader(t, leader)
	holder := awaitHolder(t, c, leader)
	druid := rig.DruidLeader(t).Name
	w.AwaitWrites(t, 100, scaleWithin)
	defer stepClocks(t, c, leader, 0) // a cleanup has no context to find the druid that works
	for i, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprintf("a step to %s", by), func(t *testing.T) {
			w.Gap()
			stepClocks(t, c, leader, by)
			awaitRenewal(t, c, leader, leader, by)
			awaitRenewal(t, c, leader, leases.LeaderName(c.Name), by)
			lost := others[i]
			c.VolumeOf(t, lost).Wipe(t)
			c.Kill(t, lost, harness.Etcd)
			view = awaitReplacement(t, c, lost, view)
			c.AwaitCondition(t, healWithin, v1alpha1.ConditionAllMembersReady, "True")
			harness.Consistently(t, c.AgentTimings(t).LeaseDuration+maxWait, "all Leases count, and both leaders stay", func(ctx context.Context) error {
				return allCount(ctx, c, holder, druid)
			})
			same(t, view, c.Agree(t, 3, healWithin))
			c.AwaitSaved(t, saveWithin, c.Revision(t))
			c.AwaitCondition(t, saveWithin, v1alpha1.ConditionBackupReady, "True")
			servedOn(t, w)
		})
		if t.Failed() {
			return
		}
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// stepClocks steps the clocks of the druid that works and of a member's programs.
func stepClocks(t *testing.T, c *harness.Cluster, member string, by time.Duration) {
	t.Helper()
	if err := errors.Join(rig.StepDruid(t.Context(), t, by), c.StepClock(t.Context(), t, member, by)); err != nil {
		t.Errorf("step the clocks by %s: %v", by, err)
	}
}

// awaitHolder waits until the agent of a member has the Lease of the leader, and returns that holder.
func awaitHolder(t *testing.T, c *harness.Cluster, member string) (holder string) {
	t.Helper()
	harness.Eventually(t, healWithin, "the agent of "+member+" has the duties of the leader", func(ctx context.Context) error {
		lease, err := c.Lease(ctx, leases.LeaderName(c.Name))
		if err != nil {
			return err
		}
		if holder = holderOf(lease); holder != member {
			return fmt.Errorf("%q has them", holder)
		}
		return nil
	})
	return holder
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// awaitRenewal waits until a Lease is renewed with a clock that is off by so much.
func awaitRenewal(t *testing.T, c *harness.Cluster, member, lease string, by time.Duration) {
	t.Helper()
	harness.Eventually(t, healWithin, fmt.Sprintf("Lease %s has the clock of %s", lease, member), func(ctx context.Context) error {
		l, err := c.Lease(ctx, lease)
		if err != nil {
			return err
		}
		if l.Spec.RenewTime == nil || (time.Until(l.Spec.RenewTime.Time)-by).Abs() > 2*time.Minute {
			return fmt.Errorf("renewed at %v, want a time that is off by %s", l.Spec.RenewTime, by)
		}
		return nil
	})
}

// allCount returns an error unless druid counts all members, and both leaders are who they were.
func allCount(ctx context.Context, c *harness.Cluster, holder, druid string) error {
	cluster, err := c.Get(ctx)
	if err != nil {
		return harness.NoAnswer(err)
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionAllMembersReady} {
		if !meta.IsStatusConditionTrue(cluster.Status.Conditions, kind) {
			return fmt.Errorf("the conditions are %+v, want %s=True", cluster.Status.Conditions, kind)
		}
	}
	lease, err := c.Lease(ctx, leases.LeaderName(c.Name))
	if err != nil {
		return harness.NoAnswer(err)
	}
	if now := holderOf(lease); now != holder {
		return fmt.Errorf("the leader is %q, and was %q", now, holder)
	}
	if now, err := rig.DruidHolder(ctx); err != nil || now != druid {
		return errors.Join(harness.NoAnswer(err), fmt.Errorf("druid %q works, and %q did", now, druid))
	}
	return nil
}
