package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// The logs of all three members are damaged under a writer, and their etcds are killed. One member stopped earlier: its database has less,
// but its log can be read the furthest. The plan selects a database that has more, says that the loss is unknown, and is approved. The
// cluster ends healthy, and has every write up to the revision in the plan.
func TestMostDataUsedWhenAllLogsDamaged(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, withTLSAndAuth, recoversItself)
	view := awaitSecured(t, c, 3)
	w, behind := harness.Write(t, c.Etcd(t)), view.Follower()
	w.AwaitWrites(t, 200, scaleWithin)
	c.Signal(t, behind, harness.Etcd, syscall.SIGSTOP)
	w.AwaitWrites(t, 200, scaleWithin)
	w.MayLose()
	for _, member := range allBut(t, c, behind) {
		c.Signal(t, member, harness.Etcd, syscall.SIGSTOP)
	}
	for member := range view.Members {
		part := 0.2
		if member == behind {
			part = 0.8
		}
		c.VolumeOf(t, member).FlipLogAt(t, part, "/steady/")
	}
	lost := time.Now()
	for member := range view.Members {
		c.Kill(t, member, harness.Etcd)
	}

	proposed := awaitPlan(t, c, lost)
	plan := *proposed.Plan
	if plan.Source != v1alpha1.RecoveryFromSurvivor || plan.Member == behind || len(plan.GiveUp) > 0 {
		t.Errorf("the plan is %+v, want one from a disk of %v that gives up no member", plan, allBut(t, c, behind))
	}
	if plan.LostRevisions != nil || plan.LostSeconds != nil || !strings.Contains(proposed.Message, "the loss is unknown") {
		t.Errorf("the plan is %+v, with the message %q, want one whose loss is unknown", plan, proposed.Message)
	}
	for member, disk := range disksOf(t, c) {
		if disk.State != leases.DiskCorrupt || !disk.WholeDB {
			t.Errorf("the agent of %s reports the disk %+v, want a damaged log and a whole database", member, disk)
		}
		if disk.Revision > plan.Revision {
			harness.Unsafe(t, "the plan keeps all up to revision %d, and the database of %s has revision %d", plan.Revision, member, disk.Revision)
		}
	}
	orderedNothing(t, c, view)
	approved := approve(t, proposed)
	awaitRecovered(t, c, w, approved, view)
	keepsUpTo(t, c, w, approved, plan.Revision)
	c.AwaitMembers(t, 3, healWithin)
	w.Stop(t, c.Etcd(t))
}

// disksOf is what the agents of all members report about their disks.
func disksOf(t *testing.T, c *harness.Cluster) (disks map[string]leases.DiskReport) {
	t.Helper()
	harness.Eventually(t, healWithin, "each agent reports its disk", func(ctx context.Context) error {
		disks = map[string]leases.DiskReport{}
		for _, name := range c.MemberNames(t) {
			m, err := c.Member(ctx, name)
			if err == nil && m.Disk == nil {
				err = errors.New("it reports none")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			disks[name] = *m.Disk
		}
		return nil
	})
	return disks
}

// One member is away while the others serve a writer, and their backups go on. Then the volumes of the others are lost, and the member
// returns with an intact disk, which is behind the backup. The plan restores the backup, and is approved. The cluster ends healthy, and no
// more is lost than the plan said.
func TestSurvivorBehindBackup(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, withTLSAndAuth, backedUp(s3.Store(bucket)), recovers(v1alpha1.RecoverySpec{}))
	view := awaitSecured(t, c, 3)
	w, survivor := harness.Write(t, c.EtcdService(t)), view.Follower()
	awaitBackups(t, c)
	w.AwaitWrites(t, 100, scaleWithin)
	hold := c.HoldDown(t, survivor)
	w.AwaitWrites(t, 200, scaleWithin)
	saved := c.Revision(t)
	c.AwaitSaved(t, saveWithin, saved)
	w.MayLose()
	lost := loseVolumes(t, c, allBut(t, c, survivor)...)
	hold.Release(t)

	proposed := awaitPlanFrom(t, c, lost, v1alpha1.RecoveryFromBackup)
	plan := *proposed.Plan
	if plan.Revision < saved || plan.LostRevisions == nil || plan.LostSeconds == nil || len(plan.GiveUp) > 0 {
		t.Errorf("the plan is %+v, want one from a backup up to revision %d at least, with its loss", plan, saved)
	}
	if m, err := c.Member(t.Context(), survivor); err != nil || m.Revision == 0 || m.Revision >= saved {
		t.Errorf("the agent of %s reports revision %d, want one before %d (%v)", survivor, m.Revision, saved, err)
	}
	approved := approve(t, proposed)
	awaitRecovered(t, c, w, approved, view)
	if last := recoveryOf(t, c).Last; last == nil || last.Source != v1alpha1.RecoveryFromBackup || last.Fork < saved {
		t.Errorf("status.recovery.last is %+v, want a recovery from the backup up to revision %d at least", last, saved)
	}
	lostAtMost(t, c, w, approved, plan)
	if len(c.VolumeOf(t, survivor).Quarantined(t)) == 0 {
		t.Errorf("the volume of %s does not have the data with which it returned", survivor)
	}
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionAuthReady, "True")
	awaitBackups(t, c)
	w.Stop(t, c.Etcd(t))
}

// awaitPlanFrom waits for a plan from a source that needs an approval. As long as a member has not returned, the plan can be another one.
func awaitPlanFrom(t *testing.T, c *harness.Cluster, lost time.Time, source v1alpha1.RecoverySource) (status v1alpha1.RecoveryStatus) {
	t.Helper()
	status = awaitPlan(t, c, lost)
	harness.Eventually(t, healWithin, "a plan from a "+string(source)+" that gives up no member", func(context.Context) error {
		if status = recoveryOf(t, c); status.Plan == nil || status.Plan.Source != source || len(status.Plan.GiveUp) > 0 || status.Approve == "" {
			return fmt.Errorf("status.recovery is %+v, with the plan %+v", status, status.Plan)
		}
		return nil
	})
	return status
}
