package e2e

import (
	"context"
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

// Two of three volumes are wiped under a writer, and the plan that selects the third one is approved. Then the disk of the selected member
// is lost too: before the new raft group is formed, and right after, before its first full backup. druid proposes what is left. The
// cluster ends healthy, and what is lost is at most what the last plan said.
func TestChosenMemberLostAroundForming(t *testing.T) {
	stories.Begin(t)
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		x := beginsRecovery(t)
		c := x.cluster
		c.Signal(t, x.chosen, harness.Agent, syscall.SIGSTOP)
		if record := recordOf(t, c); record.Order() == nil || record.Order().Stage != leases.StageExecute {
			t.Fatalf("the record is %+v when the agent of %s stopped, want an order that it executes", record, x.chosen)
		}
		lost := time.Now()
		c.VolumeOf(t, x.chosen).Wipe(t)
		c.Kill(t, x.chosen, harness.Agent)
		x.thaw()
		x.recovers(t, lost)
	})
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		x := beginsRecovery(t)
		c := x.cluster
		for _, other := range x.others { // else they vote before the disk is lost
			c.Signal(t, other, harness.Agent, syscall.SIGSTOP)
		}
		x.former = awaitFormed(t, c, x.former)
		x.writer.AwaitWrites(t, 20, healWithin)
		lost := loseVolumes(t, c, x.chosen)
		for _, other := range x.others {
			c.Signal(t, other, harness.Agent, syscall.SIGCONT)
		}
		x.thaw()
		awaitPlan(t, c, lost)
		status := x.recovers(t, lost)
		if words := "Everything that was written since member " + x.chosen + " formed it"; !strings.Contains(status.Message, words) {
			t.Errorf("the message is %q, want one with %q", status.Message, words)
		}
		if status.Plan.LostRevisions != nil || status.Plan.LostSeconds != nil {
			t.Errorf("the plan is %+v, want one whose loss is unknown", *status.Plan)
		}
	})
}

// chosenLost is a cluster that an agent forms again from its disk, the only one that is left.
type chosenLost struct {
	cluster *harness.Cluster
	writer  *harness.Writer
	view    harness.View
	// former is the ID of the last raft group that was formed.
	former string
	chosen string
	others []string
	// approved is the plan that selects the chosen member.
	approved v1alpha1.RecoveryStatus
	// thaw lets the backup store answer again.
	thaw func()
}

// beginsRecovery loses two of three disks, approves the plan, and returns while an agent executes the order. The backup store does not
// answer, so that this lasts and no full backup follows.
func beginsRecovery(t *testing.T) (x chosenLost) {
	t.Helper()
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	x.cluster = rig.ApplyIn(t, namespace, withTLSAndAuth, backedUp(s3.Store(bucket)), recovers(v1alpha1.RecoverySpec{}))
	c := x.cluster
	x.view = awaitSecured(t, c, 3)
	x.writer, x.former, x.chosen = harness.Write(t, c.EtcdService(t)), x.view.ClusterID, x.view.Follower()
	x.others = allBut(t, c, x.chosen)
	x.approved = losesAllBut(t, c, x.writer, x.chosen)
	x.thaw = s3.Freeze(t)
	approve(t, x.approved)
	awaitStage(t, c, leases.StageExecute)
	return x
}

// recovers approves each plan that is proposed after the second loss, until the cluster is recovered. It returns the last one that was
// approved: that of the first loss if druid needs no other.
func (x *chosenLost) recovers(t *testing.T, lost time.Time) (last v1alpha1.RecoveryStatus) {
	t.Helper()
	c, approved, from := x.cluster, map[string]bool{}, lost
	harness.Eventually(t, 2*healWithin, "the cluster is recovered", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		s := cluster.Status.Recovery
		switch {
		case s == nil:
			return fmt.Errorf("no recovery is shown")
		case s.Phase == v1alpha1.RecoveryRecovered && cluster.Status.ClusterID != x.former:
			return nil
		case s.Phase == v1alpha1.RecoveryProposed && s.Plan != nil && s.Approve != "" && !approved[s.Plan.Hash]:
			last, approved[s.Plan.Hash] = *s, true
			from = approve(t, last)
			t.Logf("%s from the second loss until this plan was shown: %s", from.Sub(lost).Round(time.Second), s.Message)
		}
		return fmt.Errorf("the recovery is %s: %s", s.Phase, s.Message)
	})
	switch {
	case last.Plan == nil: // the backup loses no more than the approval of the first plan permits
		last = x.approved
	case last.Plan.Source != v1alpha1.RecoveryFromBackup:
		t.Errorf("the plan is %+v, want one from a backup", *last.Plan)
	}
	cluster, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if done := cluster.Status.Recovery.Last; done == nil || done.Source != v1alpha1.RecoveryFromBackup {
		t.Errorf("the last recovery is %+v, want one from a backup", done)
	}
	awaitRecovered(t, c, x.writer, from, x.view)
	if last.Plan.LostSeconds != nil {
		lostAtMost(t, c, x.writer, from, *last.Plan)
	} else {
		keepsUpTo(t, c, x.writer, from, last.Plan.Revision)
	}
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionAuthReady, "True")
	awaitBackups(t, c)
	x.writer.Stop(t, c.Etcd(t))
	return last
}

// keepsUpTo checks what a plan promises whose loss is unknown: every write up to its revision is there.
func keepsUpTo(t *testing.T, c *harness.Cluster, w *harness.Writer, recovered time.Time, revision int64) {
	t.Helper()
	loss := w.Lost(t, c.Etcd(t), recovered, revision)
	t.Logf("%d acknowledged writes are lost, %d of them up to revision %d, the first %s before the last; %d are kept",
		loss.Writes, loss.Known, revision, loss.Age, loss.Kept)
	if loss.Known > 0 {
		harness.Unsafe(t, "the loss is %+v, and the plan keeps all up to revision %d", loss, revision)
	}
}
