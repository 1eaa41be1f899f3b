package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

const (
	// chaosLoss is the bound of the loss in seconds up to which druid recovers the cluster by itself. While the API server is down, druid sees
	// the loss late, and adds that time.
	chaosLoss = 300
	// lossFaultsFor is for how long faults begin while there is no quorum: longer than druid waits before it plans a recovery.
	lossFaultsFor = 45 * time.Second
	// lossOfQuorum is the name of the last fault of a round.
	lossOfQuorum = "the quorum is lost and recovered"
)

// losesTheQuorum wipes the volumes of a majority, while agents, druid, the API server and the backup store fail. druid
// recovers the cluster by itself from a disk that is left.
//
// The history has ended and is valid, because no linearizable history has a loss. All its keys outlast the recovery. A writer counts what
// is acknowledged after the history: before the loss at most so many writes are lost as the plan announces, and after it none.
func (ch *chaos) losesTheQuorum(t *testing.T, seed uint64, before harness.View) {
	t.Helper()
	faults := chosen([]chaosFault{{lossOfQuorum, func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) { ch.loss(t, before, draw) }}})
	ch.history, ch.happened = nil, nil
	for _, f := range faults {
		ch.happen(t, f, "", rand.New(rand.NewPCG(seed, 200)))
		t.Logf("at the end: %s", ch.summary())
	}
}

func (ch *chaos) loss(t *testing.T, before harness.View, draw *rand.Rand) {
	t.Helper()
	c, members := ch.cluster, ch.cluster.MemberNames(t)
	draw.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	gone, left := members[:ch.size/2+1], members[ch.size/2+1:]
	kept := valuesAt(t, c.Etcd(t), c.Revision(t))
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 100, scaleWithin)
	w.Gap()
	w.MayLose()
	ch.learn(t)
	groups := c.WatchGroups(t, members...)
	lost := loseVolumes(t, c, gone...)
	t.Logf("the data of %v is lost, that of %v is left", gone, left)
	plan := ch.awaitSurvivor(t, lost, before, draw)
	if t.Failed() {
		return
	}
	groups.End(t, before.ClusterID, awaitRecovered(t, c, w, lost, before).ClusterID)
	if gap := w.Gap(); gap < recoverAfter*time.Second {
		t.Errorf("the longest time without a write was %s: the quorum was not lost", gap)
	}
	if last := recoveryOf(t, c).Last; last == nil || last.Source != v1alpha1.RecoveryFromSurvivor || !slices.Contains(left, last.Member) {
		t.Errorf("status.recovery.last is %+v, want a recovery from the disk of one of %v", last, left)
	}
	lostAtMost(t, c, w, lost, plan)
	now := valuesAt(t, c.Etcd(t), c.Revision(t))
	for key, value := range kept {
		if now[key] != value {
			harness.Unsafe(t, "key %q of the history is %+v after the recovery, and was %+v", key, now[key], value)
		}
	}
	t.Logf("%d keys of the history outlasted the recovery", len(kept))
	holdTheSame(t, c.Etcd(t), c.AwaitMembers(t, ch.size, healWithin))
	w.Stop(t, c.Etcd(t))
}

// awaitSurvivor lets other faults happen until the cluster is recovered, and returns the plan.
func (ch *chaos) awaitSurvivor(t *testing.T, lost time.Time, before harness.View, draw *rand.Rand) (plan v1alpha1.RecoveryPlan) {
	t.Helper()
	ch.end = lost.Add(lossFaultsFor)
	t.Run("without a quorum", func(t *testing.T) {
		t.Run("recovery", func(t *testing.T) {
			t.Parallel()
			plan = awaitSurvivor(t, ch.cluster, before.ClusterID)
		})
		t.Run("cheap", func(t *testing.T) {
			t.Parallel()
			ch.cheap(t, draw, steadyFaults())
		})
	})
	return plan
}

// awaitSurvivor waits until the cluster has another ID, and returns the last plan that its status showed. If the API
// server was down while a plan was shown, the bounds of the spec take its place.
func awaitSurvivor(t *testing.T, c *harness.Cluster, former string) (plan v1alpha1.RecoveryPlan) {
	t.Helper()
	plan.LostSeconds = new(int64(chaosLoss))
	harness.Eventually(t, 2*healWithin, "the cluster is recovered", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		status := cluster.Status.Recovery
		switch {
		case status == nil:
			return errors.New("no recovery is shown")
		case status.Phase == v1alpha1.RecoveryRecovered && cluster.Status.ClusterID != former:
			return nil
		case status.Plan != nil && status.Plan.LostSeconds != nil && status.Plan.LostRevisions != nil:
			plan = *status.Plan
		}
		return fmt.Errorf("the recovery of %s is %s: %s", cluster.Status.ClusterID, status.Phase, status.Message)
	})
	if plan.LostRevisions == nil {
		t.Logf("no plan was seen; the bound is %d s", chaosLoss)
		return plan
	}
	t.Logf("announced is a loss of %d revisions after %d, and of %d s", *plan.LostRevisions, plan.Revision, *plan.LostSeconds)
	return plan
}
