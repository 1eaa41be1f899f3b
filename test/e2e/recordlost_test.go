package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// Two of three volumes are wiped under a writer. In each phase of the recovery a user deletes the cluster record, and then writes a copy
// of it back that is older than the order. Each time the member with the data waits, the former approval orders nothing, and druid shows
// the same plan again, also if the copy has an earlier order. When a plan is approved undisturbed, the cluster is recovered with at most
// the loss that each plan said. Then the record is lost in these ways again, and druid makes that of the new raft group again.
func TestRecordLostInEachRecoveryPhase(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, withTLSAndAuth, recovers(v1alpha1.RecoverySpec{}))
	view := awaitSecured(t, c, 3)
	x := recordLost{cluster: c, view: view, survivor: view.Follower(), name: leases.RecordName(c.Name)}
	x.others = allBut(t, c, x.survivor)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 200, scaleWithin)
	x.older = x.copied(t)
	w.MayLose()
	proposed := awaitPlan(t, c, loseVolumes(t, c, x.others...))
	first := *proposed.Plan
	for _, stage := range []leases.Stage{leases.StagePrepare, leases.StageExecute} {
		for _, loss := range x.losses() {
			t.Run(fmt.Sprintf("%s: %s", stage, loss.what), func(t *testing.T) {
				release := x.reaches(t, stage, proposed)
				if x.executed == nil && stage == leases.StageExecute {
					x.executed = x.copied(t)
				}
				lost := time.Now()
				loss.lose(t)
				release()
				orderedNothing(t, c, view)
				waits(t, c, x.survivor)
				proposed = awaitAnotherPlan(t, c, proposed.Plan.Hash)
				t.Logf("%s until this plan was shown: %s", time.Since(lost).Round(100*time.Millisecond), proposed.Message)
				x.sameLoss(t, first, *proposed.Plan)
			})
			if t.Failed() {
				return
			}
		}
	}
	earlier := recordLoss{"a copy with an earlier order is written back", func(t *testing.T) { x.writesBack(t, x.executed) }}
	t.Run("Proposed: "+earlier.what, func(t *testing.T) {
		earlier.lose(t)
		waits(t, c, x.survivor)
		proposed = awaitAnotherPlan(t, c, "")
		x.sameLoss(t, first, *proposed.Plan)
	})
	approved := approve(t, proposed)
	view = awaitRecovered(t, c, w, approved, view)
	lostAtMost(t, c, w, approved, first)
	for _, loss := range append(x.losses(), earlier) {
		t.Run("recovered: "+loss.what, func(t *testing.T) {
			loss.lose(t)
			awaitRecord(t, c, view)
			same(t, view, c.AwaitMembers(t, 3, healWithin))
			w.AwaitWrites(t, 20, scaleWithin)
		})
	}
	w.Stop(t, c.Etcd(t))
}

// recordLost is a cluster that loses its record while druid and the agents recover it from the disk of one member.
type recordLost struct {
	cluster  *harness.Cluster
	view     harness.View
	survivor string
	others   []string
	// name is that of the cluster record. older is a copy of it from before the loss of the quorum, and executed one with an order that an
	// agent was to execute.
	name            string
	older, executed *coordinationv1.Lease
}

// copied reads a copy of the cluster record.
func (x *recordLost) copied(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := x.cluster.Lease(t.Context(), x.name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// writesBack replaces the cluster record by a copy.
func (x *recordLost) writesBack(t *testing.T, older *coordinationv1.Lease) {
	t.Helper()
	edit(t, x.cluster, x.name, func(l *coordinationv1.Lease) {
		l.Labels, l.Annotations, l.Spec = older.Labels, older.Annotations, *older.Spec.DeepCopy()
	})
}

// recordLoss is how a user loses the cluster record.
type recordLoss struct {
	what string
	lose func(*testing.T)
}

func (x *recordLost) losses() []recordLoss {
	return []recordLoss{
		{"the record is deleted", func(t *testing.T) { x.cluster.Delete(t, &coordinationv1.Lease{}, x.name) }},
		{"an older copy is written back", func(t *testing.T) { x.writesBack(t, x.older) }},
	}
}

// reaches approves a plan, and returns when the order is at the stage and stays there until it is released: the agents that have to
// act are stopped. In both stages the member with the data has acknowledged the order.
func (x *recordLost) reaches(t *testing.T, stage leases.Stage, proposed v1alpha1.RecoveryStatus) (release func()) {
	t.Helper()
	c := x.cluster
	signal := func(signal syscall.Signal, members ...string) {
		for _, member := range members {
			c.Signal(t, member, harness.Agent, signal)
		}
	}
	stopped := x.others
	signal(syscall.SIGSTOP, stopped...)
	approve(t, proposed)
	awaitStage(t, c, leases.StagePrepare)
	awaitAcknowledged(t, c, x.survivor, recordOf(t, c).Order().Name())
	if stage == leases.StageExecute {
		stopped = []string{x.survivor}
		signal(syscall.SIGSTOP, stopped...)
		signal(syscall.SIGCONT, x.others...)
	}
	awaitStage(t, c, stage)
	return func() { signal(syscall.SIGCONT, stopped...) }
}

// sameLoss compares a plan that druid made after the record was lost with the first one.
func (x *recordLost) sameLoss(t *testing.T, first, again v1alpha1.RecoveryPlan) {
	t.Helper()
	known := first.LostRevisions != nil && first.LostSeconds != nil && again.LostRevisions != nil && again.LostSeconds != nil
	if again.Source != first.Source || again.Member != x.survivor || len(again.GiveUp) > 0 || !known ||
		*again.LostRevisions > *first.LostRevisions || *again.LostSeconds > *first.LostSeconds {
		t.Errorf("the plan is %+v, want one from the disk of %s that loses no more than the first one: %+v", again, x.survivor, first)
	}
}
