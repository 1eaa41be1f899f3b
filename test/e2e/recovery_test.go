package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// recoverAfter is the shortest time without a quorum after which druid plans a recovery.
const recoverAfter = 30

// recovers sets spec.recovery.
func recovers(spec v1alpha1.RecoverySpec) harness.Option {
	return func(c *v1alpha1.EtcdCluster) {
		spec.AfterSeconds = recoverAfter
		c.Spec.Recovery = &spec
	}
}

// recoversItself needs no approval for a loss of up to an hour.
func recoversItself(c *v1alpha1.EtcdCluster) {
	recovers(v1alpha1.RecoverySpec{Policy: v1alpha1.RecoveryAutomatic, MaxDataLoss: &v1alpha1.MaxDataLoss{Seconds: new(int64(3600))}})(c)
}

// withTLSAndAuth turns TLS and authentication on.
func withTLSAndAuth(c *v1alpha1.EtcdCluster) {
	harness.TLS(24 * time.Hour)(c)
	authenticated(c)
}

// awaitSecured waits until all members vote, and clients need a user.
func awaitSecured(t *testing.T, c *harness.Cluster, members int) harness.View {
	t.Helper()
	view := c.Agree(t, members, formWithin)
	c.AwaitCondition(t, formWithin, v1alpha1.ConditionAuthReady, "True")
	return view
}

// authenticated admits the clients of the stories by the name in their certificate.
func authenticated(c *v1alpha1.EtcdCluster) {
	c.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, Users: []v1alpha1.AuthUser{{Name: "client", CertificateCN: "client", Roles: []string{"root"}}}}
}

// Two of three volumes are wiped under a writer, the leader's among them. The plan says what is lost, its command
// approves it, and the cluster continues in place from the third disk, with its certificates and its users. Each cache
// gets an error, lists again, and then equals the store.
func TestQuorumIsRecoveredFromOneDiskOfThree(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, withTLSAndAuth, recovers(v1alpha1.RecoverySpec{}))
	view := awaitSecured(t, c, 3)
	w, held := harness.Write(t, c.EtcdService(t)), startCaches(t, c, 0)
	w.AwaitWrites(t, 100, scaleWithin)
	held.equal(t, c, 1)
	w.MayLose()
	survivor := view.Follower()
	groups := c.WatchGroups(t, c.MemberNames(t)...)
	lost := loseVolumes(t, c, allBut(t, c, survivor)...)
	var proposed v1alpha1.RecoveryStatus
	stories.Resting(t, func() { proposed = awaitPlan(t, c, lost) })
	plan := *proposed.Plan
	if plan.Source != v1alpha1.RecoveryFromSurvivor || plan.Member != survivor || len(plan.GiveUp) > 0 || plan.LostRevisions == nil || plan.LostSeconds == nil {
		t.Errorf("the plan is %+v, want one from the disk of %s with its loss", plan, survivor)
	}
	approved := approve(t, proposed)
	groups.End(t, view.ClusterID, awaitRecovered(t, c, w, approved, view).ClusterID)
	if last := recoveryOf(t, c).Last; last == nil || last.Member != survivor || last.Source != plan.Source {
		t.Errorf("status.recovery.last is %+v, want %s of %s", last, plan.Source, survivor)
	}
	lostAtMost(t, c, w, approved, plan)
	isCompacted(t, c.Etcd(t), plan.Revision)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionAuthReady, "True")
	c.AwaitMembers(t, 3, healWithin)
	held.equal(t, c, 2)
	w.Stop(t, c.Etcd(t))
}

// TestRecoveredFromBackupsOnlyOnce: the quorum is recovered from the backups and only once by itself.
// All volumes are wiped under a writer. druid recovers the cluster from its backups by itself, within the bounds of the spec. A second loss
// soon after the first needs an approval.
func TestRecoveredFromBackupsOnlyOnce(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	const bound = 60
	c := rig.ApplyIn(t, namespace, withTLSAndAuth, backedUp(s3.Store(bucket)), recovers(v1alpha1.RecoverySpec{
		Policy: v1alpha1.RecoveryAutomatic, MaxDataLoss: &v1alpha1.MaxDataLoss{Seconds: new(int64(bound))},
	}))
	view := awaitSecured(t, c, 3)
	w := harness.Write(t, c.EtcdService(t))
	awaitBackups(t, c)
	w.AwaitWrites(t, 100, scaleWithin)
	w.MayLose()
	lost := loseVolumes(t, c, c.MemberNames(t)...)
	view = awaitRecovered(t, c, w, lost, view)
	lostAtMost(t, c, w, lost, fromBackup(t, c, bound))
	c.AwaitSaved(t, saveWithin, c.Revision(t))
	awaitBackups(t, c)

	t.Run("a second loss within ten minutes", func(t *testing.T) {
		survivor := view.Follower()
		lost := loseVolumes(t, c, allBut(t, c, survivor)...)
		proposed := awaitPlan(t, c, lost)
		if !strings.Contains(proposed.Message, "ten minutes") {
			t.Errorf("the message is %q, want one that says why an approval is needed", proposed.Message)
		}
		approved := approve(t, proposed)
		awaitRecovered(t, c, w, approved, view)
		lostAtMost(t, c, w, approved, *proposed.Plan)
	})
	w.Stop(t, c.Etcd(t))
}

// All Pods of a cluster in memory are lost at once, and with them its data. druid recovers it from its backups by itself.
func TestMemoryMembersRecovered(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	const bound = 60
	c := rig.ApplyIn(t, namespace, withTLSAndAuth, inMemory, backedUp(s3.Store(bucket)), recovers(v1alpha1.RecoverySpec{
		Policy: v1alpha1.RecoveryAutomatic, MaxDataLoss: &v1alpha1.MaxDataLoss{Seconds: new(int64(bound))},
	}))
	view := awaitSecured(t, c, 3)
	w := harness.Write(t, c.EtcdService(t))
	awaitBackups(t, c)
	w.AwaitWrites(t, 100, scaleWithin)
	w.MayLose()
	lost := time.Now()
	for _, member := range c.MemberNames(t) {
		c.Delete(t, &corev1.Pod{}, member, client.GracePeriodSeconds(0))
	}
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionReady, "False") // a Pod that is deleted by force serves for a moment
	gone := time.Now()
	awaitRecovered(t, c, w, lost, view)
	lostAtMost(t, c, w, gone, fromBackup(t, c, bound))
	w.Stop(t, c.Etcd(t))
}

// Two of three members are away with their data. Only an approval of the present plan gives them up: neither an invented hash
// does, nor the approval of an earlier loss. Members that return later join the new raft group, and their data is kept.
func TestAwayMembersGivenUpByApproval(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, withTLSAndAuth, recoversItself)
	view := awaitSecured(t, c, 3)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 100, scaleWithin)
	survivor := view.Follower()
	away := allBut(t, c, survivor)
	leave := func() (holds []*harness.Hold) {
		for _, member := range away {
			holds = append(holds, c.HoldDown(t, member))
		}
		return holds
	}
	lost, holds := time.Now(), leave()
	first := awaitPlan(t, c, lost)
	if !slices.Equal(first.Plan.GiveUp, away) {
		t.Errorf("the plan gives up %v, want %v", first.Plan.GiveUp, away)
	}
	t.Run("a hash that is no plan's does nothing", func(t *testing.T) {
		forged := first
		forged.Approve = strings.ReplaceAll(first.Approve, first.Plan.Hash, strings.Repeat("0", len(first.Plan.Hash)))
		approve(t, forged)
		orderedNothing(t, c, view)
	})
	for _, h := range holds {
		h.Release(t)
	}
	view = c.Agree(t, 3, healWithin)
	t.Run("an approval while a quorum serves does nothing", func(t *testing.T) {
		approve(t, first)
		orderedNothing(t, c, view)
		w.Stop(t, c.Etcd(t))
	})

	w = harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 100, scaleWithin)
	w.MayLose()
	lost, holds = time.Now(), leave()
	second := awaitPlan(t, c, lost)
	t.Run("the approval of an earlier loss does nothing", func(t *testing.T) { orderedNothing(t, c, view) })
	approved := approve(t, second)
	t.Logf("%s from the approval until the survivor served", w.AwaitWrites(t, 1, scaleWithin).Round(time.Second))
	for _, h := range holds {
		h.Release(t)
	}
	awaitRecovered(t, c, w, approved, view)
	lostAtMost(t, c, w, approved, *second.Plan)
	for _, member := range away {
		if !c.VolumeOf(t, member).Has(t, "data.quarantine-*-superseded") {
			t.Errorf("the volume of %s does not have the data with which it was away", member)
		}
	}
	if !c.VolumeOf(t, survivor).Has(t, "data.quarantine-*-survivor") {
		t.Errorf("the volume of %s does not have the data from which the cluster was formed again", survivor)
	}
	w.Stop(t, c.Etcd(t))
}

// loseVolumes wipes the volumes of members and then ends each etcd, so that none of them has time to return before the others are lost.
func loseVolumes(t *testing.T, c *harness.Cluster, members ...string) (at time.Time) {
	t.Helper()
	volumes := map[string]harness.Volume{}
	for _, member := range members {
		volumes[member] = c.VolumeOf(t, member)
	}
	for _, v := range volumes {
		v.Wipe(t)
	}
	for _, member := range members {
		c.TryKill(t, member, harness.Etcd) // without its files, it can have ended by itself
	}
	return time.Now()
}

// allBut returns the members of the record except one.
func allBut(t *testing.T, c *harness.Cluster, member string) []string {
	t.Helper()
	return slices.DeleteFunc(c.MemberNames(t), func(m string) bool { return m == member })
}

// losesAllBut awaits backups and writes, and then loses the volumes of all members but one. It returns the plan, which
// selects the disk that is left.
func losesAllBut(t *testing.T, c *harness.Cluster, w *harness.Writer, survivor string) (proposed v1alpha1.RecoveryStatus) {
	t.Helper()
	awaitBackups(t, c)
	w.AwaitWrites(t, 200, scaleWithin)
	w.MayLose()
	proposed = awaitPlan(t, c, loseVolumes(t, c, allBut(t, c, survivor)...))
	if plan := *proposed.Plan; plan.Source != v1alpha1.RecoveryFromSurvivor || plan.Member != survivor {
		t.Fatalf("the plan is %+v, want one from the disk of %s", plan, survivor)
	}
	return proposed
}

func recoveryOf(t *testing.T, c *harness.Cluster) (status v1alpha1.RecoveryStatus) {
	t.Helper()
	cluster, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cluster.Status.Recovery != nil {
		status = *cluster.Status.Recovery
	}
	return status
}

// awaitPlan waits for a plan that needs an approval.
func awaitPlan(t *testing.T, c *harness.Cluster, lost time.Time) (status v1alpha1.RecoveryStatus) {
	t.Helper()
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionReady, "False", v1alpha1.ReasonQuorumLost)
	t.Logf("%s from the loss until Ready said so", time.Since(lost).Round(time.Second))
	status = awaitAnotherPlan(t, c, "")
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonRecoveryProposed)
	t.Logf("%s from the loss until the plan was shown: %s $ %s", time.Since(lost).Round(time.Second), status.Message, status.Approve)
	return status
}

// awaitAnotherPlan waits for a plan that needs an approval and does not have the former hash.
func awaitAnotherPlan(t *testing.T, c *harness.Cluster, former string) (status v1alpha1.RecoveryStatus) {
	t.Helper()
	harness.Eventually(t, healWithin, "another plan that can be approved", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		s := cluster.Status.Recovery
		if s == nil || s.Phase != v1alpha1.RecoveryProposed || s.Plan == nil || s.Approve == "" || s.Plan.Hash == former {
			return fmt.Errorf("status.recovery is %+v", s)
		}
		status = *s
		return nil
	})
	return status
}

// approve runs the command that the status prints.
func approve(t *testing.T, proposed v1alpha1.RecoveryStatus) (at time.Time) {
	t.Helper()
	return rig.Approve(t, proposed)
}

// orderedNothing watches that druid orders no recovery.
func orderedNothing(t *testing.T, c *harness.Cluster, view harness.View) {
	t.Helper()
	harness.Consistently(t, maxWait, "no recovery is ordered", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err != nil {
			return harness.NoAnswer(err)
		}
		if record.Phase != leases.PhaseFormed || record.Recovery != nil || leases.FormatID(record.ClusterID) != view.ClusterID {
			harness.Unsafe(t, "the record is %+v", record)
			return errors.New("a recovery was ordered")
		}
		return nil
	})
}

// awaitRecovered waits until clients are served again, and until all members vote in one raft group that is not the former one.
func awaitRecovered(t *testing.T, c *harness.Cluster, w *harness.Writer, from time.Time, before harness.View) harness.View {
	t.Helper()
	w.AwaitWrites(t, 1, healWithin)
	t.Logf("%s until clients were served", time.Since(from).Round(100*time.Millisecond))
	after := c.Agree(t, len(before.Members), healWithin)
	t.Logf("%s until %d members voted", time.Since(from).Round(100*time.Millisecond), len(before.Members))
	if after.ClusterID == before.ClusterID {
		harness.Unsafe(t, "the recovered cluster has the ID of the former one, %s", after.ClusterID)
	}
	harness.Eventually(t, healWithin, "the end of the recovery in the status", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err == nil && (cluster.Status.Recovery == nil || cluster.Status.Recovery.Phase != v1alpha1.RecoveryRecovered) {
			err = fmt.Errorf("status.recovery is %+v", cluster.Status.Recovery)
		}
		return err
	})
	w.AwaitWrites(t, 20, scaleWithin)
	return after
}

// fromBackup is the loss that a recovery from a backup permits: writes of the last seconds, and none up to the revision that it restored.
func fromBackup(t *testing.T, c *harness.Cluster, seconds int64) v1alpha1.RecoveryPlan {
	t.Helper()
	last := recoveryOf(t, c).Last
	if last == nil || last.Source != v1alpha1.RecoveryFromBackup || last.Fork == 0 {
		t.Fatalf("status.recovery.last is %+v, want one from a backup with its last revision", last)
	}
	return v1alpha1.RecoveryPlan{Revision: last.Fork, LostSeconds: &seconds}
}

// lostAtMost compares what is lost of the acknowledged writes with what the plan announced.
func lostAtMost(t *testing.T, c *harness.Cluster, w *harness.Writer, recovered time.Time, plan v1alpha1.RecoveryPlan) {
	t.Helper()
	var revisions int64
	if plan.LostRevisions != nil {
		revisions = *plan.LostRevisions
	}
	loss := w.Lost(t, c.Etcd(t), recovered, plan.Revision+revisions)
	t.Logf("%d acknowledged writes are lost, %d of them reported, the first %s before the last; %d are kept", loss.Writes, loss.Known, loss.Age, loss.Kept)
	if int64(loss.Known) > revisions || plan.LostSeconds == nil || loss.Age > time.Duration(*plan.LostSeconds)*time.Second {
		harness.Unsafe(t, "the loss of %+v exceeds the plan %+v", loss, plan)
	}
}
