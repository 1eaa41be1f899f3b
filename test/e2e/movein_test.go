package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// moveMinor is the minor of the etcds that are joined.
const moveMinor = "3.6"

// partWithin is how long the three that were there before may take to go: a minute each, and what a busy machine adds.
const partWithin = 6 * time.Minute

// A StatefulSet of three etcds becomes an EtcdCluster under a writer, which moves from one Service to the other.
func TestStatefulSetMovesInUnderAWriter(t *testing.T) {
	stories.Begin(t)
	movesIn(t, rig.StartPlain(t, rig.MakeNamespace(t), moveMinor, 3))
}

// TestStatefulSetWithTLSMovesIn: StatefulSet with TLS moves in under a writer.
// The same with mutual TLS of clients and of peers, under names and certificates of both.
func TestStatefulSetWithTLSMovesIn(t *testing.T) {
	stories.Begin(t)
	movesIn(t, rig.StartPlainWithTLS(t, rig.MakeNamespace(t), moveMinor, 3))
}

func movesIn(t *testing.T, old *harness.Plain) {
	t.Helper()
	namespace, etcd := old.Namespace, old.Etcd(t)
	w := harness.Write(t, etcd)
	w.AwaitWrites(t, 50, time.Minute)

	begun := time.Now()
	c := rig.ApplyIn(t, namespace, old.Joins(t, moveMinor, true))
	c.AwaitReady(t, 3, formWithin)
	lap(t, begun, "all members vote", w)
	etcd.SetEndpoints(c.EtcdService(t).Endpoints()...)
	w.AwaitWrites(t, 50, time.Minute)
	lap(t, begun, "the writer has moved", w)
	stories.Resting(t, func() {
		c.AwaitCondition(t, partWithin, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	})
	lap(t, begun, "the others are out", w)
	old.Delete(t)
	view := c.Agree(t, 3, formWithin)
	harness.Eventually(t, time.Minute, "druid holds it no more", func(ctx context.Context) error { return finalizers(ctx, c, 0) })
	lap(t, begun, "its StatefulSet is deleted", w)
	if view.Leader() == "" {
		t.Error("there is no leader")
	}
	w.Stop(t, c.Etcd(t))
}

// An EtcdCluster that joined is deleted again before the others were let go: they keep their quorum, and their clients notice no
// more than a change of leader.
func TestDeletedJoinedClusterLeavesOthers(t *testing.T) {
	stories.Begin(t)
	namespace := rig.MakeNamespace(t)
	old := rig.StartPlain(t, namespace, moveMinor, 3)
	w := harness.Write(t, old.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)

	begun := time.Now()
	c := rig.ApplyIn(t, namespace, old.Joins(t, moveMinor, false))
	c.AwaitReady(t, 3, formWithin)
	c.AwaitCondition(t, time.Minute, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonExternalMembersPresent)
	if err := finalizers(t.Context(), c, 1); err != nil {
		t.Error(err)
	}
	lap(t, begun, "all members vote", w)
	begun = time.Now()
	deleteCluster(t, c, metav1.DeletePropagationBackground)
	awaitEnd(t, c)
	lap(t, begun, "the EtcdCluster is gone", w)
	old.AwaitAlone(t)
	w.AwaitWrites(t, 50, time.Minute)
	lap(t, begun, "its members are out, and the others are alone", w)
	w.Stop(t, old.Etcd(t))
}

// lap prints when something was reached, and the longest time without an acknowledged write since the last one.
func lap(t *testing.T, begun time.Time, what string, w *harness.Writer) {
	t.Helper()
	gap, err := w.StoodStillFor(harness.NoticeableGap)
	t.Logf("%s after %s; longest gap of the writer since before: %s", what, time.Since(begun).Round(100*time.Millisecond), gap.Round(time.Millisecond))
	if err != nil {
		t.Error(err)
	}
}

// finalizers says whether the EtcdCluster bears so many.
func finalizers(ctx context.Context, c *harness.Cluster, want int) error {
	cluster, err := c.Get(ctx)
	if err == nil && len(cluster.Finalizers) != want {
		err = fmt.Errorf("finalizers are %v", cluster.Finalizers)
	}
	return err
}
