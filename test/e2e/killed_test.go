package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// Both druids are killed at once in each phase of one recovery: when the plan is shown, when the members acknowledge the order, when one of
// them executes it, and when the new raft group is formed. The agent that executes the order is stopped before, so that this phase lasts
// until the druids are killed. The backup store does not answer. The plan is approved while no druid runs. The cluster ends healthy, and
// what is lost is at most what the plan said.
func TestDruidKilledInEachRecoveryPhase(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, withTLSAndAuth, backedUp(s3.Store(bucket)), recovers(v1alpha1.RecoverySpec{}))
	view := awaitSecured(t, c, 3)
	w, survivor := harness.Write(t, c.EtcdService(t)), view.Follower()
	proposed := losesAllBut(t, c, w, survivor)
	thaw := s3.Freeze(t)
	begun := time.Now()
	killed := func(phase string) {
		t.Helper()
		rig.KillDruids(t)
		t.Logf("%s after the plan was shown, the druids were killed: %s", time.Since(begun).Round(100*time.Millisecond), phase)
	}
	killed("Proposed")
	approved := approve(t, proposed)
	for _, stage := range []leases.Stage{leases.StagePrepare, leases.StageExecute} {
		awaitStage(t, c, stage)
		killed(string(stage))
		order := recordOf(t, c).Order()
		if order == nil || order.Stage != stage {
			t.Fatalf("the order is %+v after the druids were killed, want stage %s", order, stage)
		}
		if stage == leases.StagePrepare {
			awaitAcknowledged(t, c, survivor, order.Name())
			c.Signal(t, survivor, harness.Agent, syscall.SIGSTOP)
		}
	}
	c.Signal(t, survivor, harness.Agent, syscall.SIGCONT)
	awaitFormed(t, c, view.ClusterID)
	killed("Formed")
	thaw()
	awaitRecovered(t, c, w, approved, view)
	if last := recoveryOf(t, c).Last; last == nil || last.Member != survivor || last.Source != v1alpha1.RecoveryFromSurvivor {
		t.Errorf("status.recovery.last is %+v, want a recovery from the disk of %s", last, survivor)
	}
	lostAtMost(t, c, w, approved, *proposed.Plan)
	c.AwaitMembers(t, 3, healWithin)
	awaitBackups(t, c)
	w.Stop(t, c.Etcd(t))
}

func recordOf(t *testing.T, c *harness.Cluster) (record leases.Record) {
	t.Helper()
	harness.Eventually(t, scaleWithin, "the cluster record", func(ctx context.Context) (err error) {
		record, err = c.Record(ctx)
		return err
	})
	return record
}

// awaitStage waits until the order of a recovery is at a stage.
func awaitStage(t *testing.T, c *harness.Cluster, stage leases.Stage) {
	t.Helper()
	harness.Eventually(t, healWithin, "an order at stage "+string(stage), func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err == nil && (record.Order() == nil || record.Order().Stage != stage) {
			err = fmt.Errorf("the record is %+v", record)
		}
		return err
	})
}

// awaitAcknowledged waits until the agent of a member acknowledged an order.
func awaitAcknowledged(t *testing.T, c *harness.Cluster, member, order string) {
	t.Helper()
	harness.Eventually(t, healWithin, member+" acknowledges the order "+order, func(ctx context.Context) error {
		m, err := c.Member(ctx, member)
		if err == nil && (m.Disk == nil || m.Disk.Order != order) {
			err = fmt.Errorf("the disk of its Lease is %+v", m.Disk)
		}
		return err
	})
}

// awaitFormed waits until another raft group than the former one is formed, and returns its ID.
func awaitFormed(t *testing.T, c *harness.Cluster, former string) (id string) {
	t.Helper()
	harness.Eventually(t, healWithin, "a new raft group", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if id = leases.FormatID(record.ClusterID); err == nil && (record.Phase != leases.PhaseFormed || id == former) {
			err = fmt.Errorf("the record is %+v", record)
		}
		return err
	})
	return id
}
