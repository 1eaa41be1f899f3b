package e2e

import (
	"context"
	"fmt"
	"path"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// A leader whose database has a damaged page takes no more than two full backups before another member leads, whose full backup is whole.
func TestDamagedPageMovesLeadership(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, backedUp(s3.Store(bucket)), verifiedEachMinute)
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	fillQuietKeys(t, c)
	w := harness.Write(t, etcd)
	awaitBackups(t, c)
	// Leadership moves only for full backups that follow one that was verified.
	stories.Resting(t, func() {
		awaitCondition(t, c, v1alpha1.ConditionBackupVerified, metav1.ConditionTrue, verificationWithin, "")
	})
	before := s3.Keys(t, bucket, "/full/")

	c.VolumeOf(t, view.Leader()).DamageValue(t, quietKey(quietKeys/2))
	snapshot := &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "damaged"},
		Spec:       v1alpha1.EtcdSnapshotSpec{ClusterRef: v1alpha1.ClusterReference{Name: c.Name}},
	}
	if err := rig.Client.Create(t.Context(), snapshot); err != nil {
		t.Fatalf("create EtcdSnapshot: %v", err)
	}
	var taken int
	stories.Resting(t, func() {
		took := harness.Eventually(t, 2*verificationWithin, "a move of leadership from "+view.Leader(), func(ctx context.Context) error {
			taken = len(s3.Keys(t, bucket, "/full/")) - len(before)
			cluster, err := c.Get(ctx)
			if err != nil {
				return err
			}
			for _, m := range cluster.Status.Members {
				if m.Role == string(leases.RoleLeader) && m.Name != view.Leader() {
					return nil
				}
			}
			return fmt.Errorf("no other member leads after %d full backups", taken)
		})
		t.Logf("%s led no more %s after a page of its database was damaged, and %d full backups", view.Leader(), took.Round(time.Second), taken)
	})
	if taken > 3 { // the successor's first may be there already
		t.Errorf("%d full backups were taken before leadership moved, want 2", taken)
	}
	stories.Resting(t, func() {
		awaitCondition(t, c, v1alpha1.ConditionBackupVerified, metav1.ConditionTrue, verificationWithin, "")
	})
	w.AwaitWrites(t, 20, time.Minute)
	w.Stop(t, etcd)
}

// TestBackupsDespiteUnreadableRecord: backups go on alongside a record that cannot be read.
// A record of another lineage that cannot be read stops neither full backups nor deltas, also not those of a leader that has just begun.
func TestBackupsDespiteUnreadableRecord(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, backedUp(s3.Store(bucket)))
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	awaitBackups(t, c)
	full, _ := fullOf(t, c)
	place := path.Dir(path.Dir(path.Dir(full.Object)))
	s3.Put(t, bucket, path.Join(place, "00000009-foreign", "lineage.json"), []byte("{"))
	c.Kill(t, view.Leader(), harness.Agent)
	w.AwaitWrites(t, 50, time.Minute)
	c.AwaitSaved(t, saveWithin, c.Revision(t))
	awaitBackups(t, c)
	w.Stop(t, c.Etcd(t))
	c.AwaitSaved(t, saveWithin, c.Revision(t))
}

// quietKeys are keys that are written once, and read by none.
const quietKeys = 200

func quietKey(i int) string { return fmt.Sprintf("/quiet/%04d", i) }

func fillQuietKeys(t *testing.T, c *harness.Cluster) {
	t.Helper()
	etcd := c.Etcd(t)
	for i := range quietKeys {
		harness.Eventually(t, time.Minute, quietKey(i), func(ctx context.Context) error {
			_, err := etcd.Put(ctx, quietKey(i), "written once")
			return err
		})
	}
}
