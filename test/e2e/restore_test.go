package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// A cluster that serves is restored in place to an earlier time, under a writer, with its certificates and its users. What was written
// before that time is there, and nothing else. A restore to a revision that the user withdraws loses nothing, and caches notice nothing. A
// restore of the lineage that was replaced undoes the first one. After each of both, the caches get an error, list again, and then
// equal the store.
func TestRestoreInPlaceAndUndo(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, withTLSAndAuth, backedUp(s3.Store(bucket)))
	view := awaitSecured(t, c, 3)
	w, held := harness.Write(t, c.EtcdService(t)), startCaches(t, c, 0)
	awaitBackups(t, c)
	w.AwaitWrites(t, 100, scaleWithin)
	target := c.Revision(t)
	want := keysAt(t, c, target)
	c.AwaitSaved(t, saveWithin, target)
	moment := awaitNextSecond(t)
	later := c.Revision(t)
	most := keysAt(t, c, later)
	w.AwaitWrites(t, 100, scaleWithin)
	c.AwaitSaved(t, saveWithin, c.Revision(t))

	t.Run("withdrawn", func(t *testing.T) {
		requestRestore(t, c, fmt.Sprintf(`{"revision":%d}`, target))
		approve(t, awaitRestorePlan(t, c))
		awaitPhase(t, c, v1alpha1.RecoveryPreparing)
		requestRestore(t, c, "null")
		w.AwaitWrites(t, 50, healWithin)
		if after := c.AwaitMembers(t, 3, healWithin); after.ClusterID != view.ClusterID {
			harness.Unsafe(t, "the cluster has ID %s after the restore was withdrawn, and had %s", after.ClusterID, view.ClusterID)
		}
		w.Verify(t, c.Etcd(t))
		held.equal(t, c, 1)
	})

	w.MayLose()
	requestRestore(t, c, fmt.Sprintf(`{"time":%q}`, moment.Format(time.RFC3339)))
	proposed := awaitRestorePlan(t, c)
	w.Gap()
	approved := approve(t, proposed)
	first := awaitRestored(t, c, w, approved, view, 0)
	t.Logf("clients were cut off for %s", w.Gap().Round(100*time.Millisecond))
	if first.Source != v1alpha1.RecoveryFromRestore || first.Fork < target || first.Fork > later {
		t.Errorf("status.recovery.last is %+v, want a restore up to one of revisions %d to %d", first, target, later)
	}
	got := keysAt(t, c, 0)
	for key, revision := range got {
		if _, before := most[key]; revision <= first.Revision && !before {
			t.Errorf("key %s was written after %s, and is there with revision %d", key, moment, revision)
		}
	}
	holds(t, "after the restore", got, want)
	held.equal(t, c, 2)
	written := w.Written()
	for key, revision := range written {
		if revision >= first.Revision {
			delete(written, key)
		}
	}

	requestRestore(t, c, fmt.Sprintf(`{"time":null,"latest":true,"lineage":%q}`, first.Replaced))
	awaitBackups(t, c) // of the new lineage: the final backup comes first
	proposed = awaitRestorePlan(t, c)
	awaitRestored(t, c, w, approve(t, proposed), view, first.Epoch)
	// Connections that were open wrote on for a moment after the final backup. The quarantined data of the members has these writes.
	for key, revision := range written {
		if revision > proposed.Plan.Revision {
			delete(written, key)
		}
	}
	holds(t, "after the undo", keysAt(t, c, 0), written)
	held.equal(t, c, 3)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionAuthReady, "True")
}

// awaitNextSecond returns the next time that has no fraction of a second, after that time.
func awaitNextSecond(t *testing.T) time.Time {
	t.Helper()
	at := time.Now().Truncate(time.Second).Add(time.Second).UTC()
	harness.Eventually(t, time.Minute, "the next second", func(context.Context) error {
		if left := time.Until(at); left >= 0 {
			return fmt.Errorf("%s is left", left)
		}
		return nil
	})
	return at
}

// requestRestore sets spec.recovery.restore to a JSON object, or removes it with null.
func requestRestore(t *testing.T, c *harness.Cluster, restore string) {
	t.Helper()
	c.RequestRestore(t, restore)
}

// awaitRestorePlan waits for the plan of a restore that needs an approval.
func awaitRestorePlan(t *testing.T, c *harness.Cluster) v1alpha1.RecoveryStatus {
	t.Helper()
	status := awaitPhase(t, c, v1alpha1.RecoveryProposed)
	if status.Plan == nil || status.Plan.Source != v1alpha1.RecoveryFromRestore || status.Approve == "" {
		t.Fatalf("status.recovery is %+v, want the plan of a restore", status)
	}
	t.Logf("%s $ %s", status.Message, status.Approve)
	return status
}

// awaitRestored waits until the cluster was formed again with a later epoch, all members vote in it, and clients are served.
func awaitRestored(t *testing.T, c *harness.Cluster, w *harness.Writer, approved time.Time, before harness.View, epoch int64) (last v1alpha1.LastRecovery) {
	t.Helper()
	harness.Eventually(t, healWithin, "the end of the restore", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		s := cluster.Status.Recovery
		if s == nil || s.Phase != v1alpha1.RecoveryRecovered || s.Last == nil || s.Last.Epoch <= epoch {
			return fmt.Errorf("status.recovery is %+v", s)
		}
		last = *s.Last
		return nil
	})
	t.Logf("%s from the approval until the cluster was formed", time.Since(approved).Round(100*time.Millisecond))
	w.AwaitWrites(t, 20, scaleWithin)
	t.Logf("%s until clients were served", time.Since(approved).Round(100*time.Millisecond))
	after := c.AwaitMembers(t, len(before.Members), healWithin)
	t.Logf("%s until all members voted", time.Since(approved).Round(100*time.Millisecond))
	if after.ClusterID == before.ClusterID {
		harness.Unsafe(t, "the restored cluster has the ID of the former one, %s", after.ClusterID)
	}
	return last
}

// awaitPhase waits until status.recovery has a phase.
func awaitPhase(t *testing.T, c *harness.Cluster, phase v1alpha1.RecoveryPhase) (status v1alpha1.RecoveryStatus) {
	t.Helper()
	return c.AwaitRecovery(t, healWithin, phase)
}

// keysAt are all keys at a revision, 0 for the newest one, with the revisions of their last writes.
func keysAt(t *testing.T, c *harness.Cluster, revision int64) map[string]int64 {
	t.Helper()
	etcd, keys := c.Etcd(t), map[string]int64{}
	harness.Eventually(t, time.Minute, "all keys", func(ctx context.Context) error {
		response, err := etcd.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(revision), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range response.Kvs {
			keys[string(kv.Key)] = kv.ModRevision
		}
		return nil
	})
	return keys
}

// holds checks that every key of want is there, as it was written last.
func holds(t *testing.T, when string, got, want map[string]int64) {
	t.Helper()
	missing := 0
	for key, revision := range want {
		if got[key] < revision {
			missing++
		}
	}
	if missing > 0 || len(want) == 0 {
		harness.Unsafe(t, "%s, %d of %d keys are missing or old", when, missing, len(want))
	}
	t.Logf("%s, all of %d keys are there", when, len(want))
}
