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
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// chaosChanges are changes that replace all Pods and take minutes. A round begins with one of them at most, in a lane of costly faults, and
// the faults of the other lanes happen meanwhile.
var chaosChanges = []chaosFault{
	{"the minor version of etcd is raised", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		ch.minor = "3.7"
		version := rig.EtcdVersion(t, ch.minor)
		ch.withAPI(func() { ch.cluster.Edit(t, fmt.Sprintf(`{"spec":{"version":%q}}`, version)) })
		harness.Eventually(t, upgradeWithin, "all members run etcd "+version, func(ctx context.Context) error {
			cluster, err := ch.cluster.Get(ctx)
			if err != nil {
				return err
			}
			if len(cluster.Status.Members) != ch.size {
				return fmt.Errorf("there are %d members", len(cluster.Status.Members))
			}
			for _, m := range cluster.Status.Members {
				if m.Version != version {
					return fmt.Errorf("%s runs %q", m.Name, m.Version)
				}
			}
			return nil
		})
	}},
	{"both certificate authorities are replaced", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		var before [2]string
		ch.withAPI(func() {
			before = authoritiesOf(t, ch.cluster)
			annotate(t, ch.cluster, v1alpha1.RotateCAAnnotation, "in chaos")
		})
		t.Logf("the phases of the clients' authority: %v", awaitReplaced(t, ch.cluster, before))
	}},
}

// changeOf is the change that a seed gives: each with the same one of three seeds, and none with the others. A brief round has none.
func changeOf(seed uint64, scope chaosScope) []chaosFault {
	which := int(seed % 3)
	if scope.brief || which >= len(chaosChanges) {
		return nil
	}
	return chosen(chaosChanges[which : which+1])
}

// change lets the changes happen, and the faults of the other lanes go on until they are done.
func (ch *chaos) change(t *testing.T, faults []chaosFault) {
	t.Helper()
	began := time.Now()
	ch.changes(true, 0)
	defer func() { ch.changes(false, time.Since(began)) }() // a cluster of three has no other lane of costly faults
	for _, f := range faults {
		ch.happen(t, f, "", nil)
		ch.cluster.Agree(t, ch.size, scaleWithin)
	}
}

// changes says whether a change is under way, and makes the round longer.
func (ch *chaos) changes(underWay bool, longer time.Duration) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.changing, ch.end = underWay, ch.end.Add(longer)
}

// renewed waits until the members that are still there have other certificates than at the start of a long round.
func (ch *chaos) renewed(t *testing.T, before map[string]leases.TLS) {
	t.Helper()
	if ch.brief {
		return
	}
	names := ch.cluster.MemberNames(t)
	for member := range before {
		if !slices.Contains(names, member) {
			delete(before, member)
		}
	}
	awaitRenewed(t, ch.cluster, healWithin, before)
}

const (
	// chaosLoss is the bound of the loss in seconds up to which druid recovers the cluster by itself.
	chaosLoss = 60
	// lossFaultsFor is for how long faults begin while there is no quorum: longer than druid waits before it plans a recovery.
	lossFaultsFor = 45 * time.Second
)

// lossOfQuorum is the name of the last fault of a round.
const lossOfQuorum = "the quorum is lost and recovered"

// losesTheQuorum wipes the volumes of a majority, while agents, druid, the API server and the backup store fail. druid recovers the cluster by
// itself from a disk that is left. The writes that are lost are within what its plan announces. The history has ended: no linearizable
// history has a loss.
func (ch *chaos) losesTheQuorum(t *testing.T, seed uint64, before harness.View) {
	t.Helper()
	if len(chosen([]chaosFault{{name: lossOfQuorum}})) == 0 {
		return
	}
	c, draw := ch.cluster, rand.New(rand.NewPCG(seed, 200))
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 100, scaleWithin)
	w.MayLose()
	members := c.MemberNames(t)
	draw.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	gone, left := members[:ch.size/2+1], members[ch.size/2+1:]
	t.Logf("%s: %s: %v", time.Now().Format("15:04:05.000"), lossOfQuorum, gone)
	ch.learn(t)
	lost := loseVolumes(t, c, gone...)
	ch.history, ch.happened, ch.end = nil, nil, lost.Add(lossFaultsFor)
	var plan v1alpha1.RecoveryPlan
	t.Run("without a quorum", func(t *testing.T) {
		t.Run("recovery", func(t *testing.T) {
			t.Parallel()
			plan = awaitSurvivor(t, c, before.ClusterID)
		})
		t.Run("cheap", func(t *testing.T) {
			t.Parallel()
			ch.cheap(t, rand.New(rand.NewPCG(seed, 201)), steadyFaults())
		})
	})
	if t.Failed() {
		return
	}
	awaitRecovered(t, c, w, lost, before)
	if last := recoveryOf(t, c).Last; last == nil || last.Source != v1alpha1.RecoveryFromSurvivor || !slices.Contains(left, last.Member) {
		t.Errorf("status.recovery.last is %+v, want a recovery from the disk of one of %v", last, left)
	}
	lostAtMost(t, c, w, lost, plan)
	c.AwaitMembers(t, ch.size, healWithin)
	t.Logf("meanwhile: %s", ch.summary())
	w.Stop(t, c.Etcd(t))
}

// awaitSurvivor waits until the cluster has another ID, and returns the last plan that its status showed. If the API server was down while a
// plan was shown, the bounds of the spec take its place.
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
