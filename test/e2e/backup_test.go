package e2e

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// saveWithin is how long it may take until what was written is saved: deltas are due every second.
const saveWithin = 2 * time.Minute

// backedUp saves the cluster's changes every second.
func backedUp(store v1alpha1.BackupStore) harness.Option {
	return func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{
			Store: store, Delta: v1alpha1.DeltaBackup{Period: &metav1.Duration{Duration: time.Second}},
		}
	}
}

// restoredFrom lets the cluster begin with what was saved of another one in its own store.
func restoredFrom(name string) harness.Option { return beginsWith(v1alpha1.RestoreSource{Name: name}) }

func beginsWith(from v1alpha1.RestoreSource) harness.Option {
	return func(c *v1alpha1.EtcdCluster) {
		c.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &from}}
	}
}

// TestAllVolumesLostFormFromBackups: a cluster that lost all its volumes is formed again from its backups.
func TestAllVolumesLostFormFromBackups(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	saved, keys := backedUp(s3.Store(bucket)), makeKeys(t, namespace)
	c := rig.ApplyIn(t, namespace, harness.Named("first"), saved, encrypted, claimsGo)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	awaitBackups(t, c)
	c.Kill(t, view.Leader(), harness.Agent)
	w.AwaitWrites(t, 100, time.Minute)
	reportsBackups(t, c)
	c.AwaitSaved(t, saveWithin, c.Revision(t))
	before := s3.Keys(t, bucket, ".zst")
	keys.rotate(t, c)
	keys.awaitRotated(t, s3, before)
	w.Stop(t, c.Etcd(t))
	last := c.Revision(t)
	c.AwaitSaved(t, saveWithin, last)
	deleteCluster(t, c, metav1.DeletePropagationForeground)
	c.AwaitLeft(t, goneWithin)
	awaitEnd(t, c)

	c = rig.ApplyIn(t, namespace, harness.Named("second"), saved, encrypted, restoredFrom("first"))
	if after := c.Agree(t, 3, formWithin); after.ClusterID == view.ClusterID {
		harness.Unsafe(t, "the new cluster has the ID of the old one, %s", after.ClusterID)
	}
	etcd := c.Etcd(t)
	w.Verify(t, etcd)
	isCompacted(t, etcd, last)
	w = harness.Write(t, etcd)
	w.AwaitWrites(t, 20, time.Minute)
	w.Stop(t, etcd)
	c.AwaitSaved(t, saveWithin, c.Revision(t))
	awaitBackups(t, c)
}

func TestClusterBeginsWithASnapshotFile(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.Named("first"))
	c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	w := harness.Write(t, etcd)
	w.AwaitWrites(t, 100, time.Minute)
	w.Stop(t, etcd)
	last := c.Revision(t)
	s3.Put(t, bucket, "moved/snapshot.db", snapshotOf(t, etcd))

	file := v1alpha1.RestoreSource{Store: new(s3.Store(bucket)), File: "moved/snapshot.db"}
	c = rig.ApplyIn(t, namespace, harness.Named("second"), harness.Replicas(1), beginsWith(file))
	c.Agree(t, 1, formWithin)
	etcd = c.Etcd(t)
	w.Verify(t, etcd)
	isCompacted(t, etcd, last)
}

// bucket is where the stories of backups keep them.
const bucket = "backups"

// snapshotOf is what `etcdctl snapshot save` writes.
func snapshotOf(t *testing.T, etcd *clientv3.Client) (content []byte) {
	t.Helper()
	harness.Eventually(t, time.Minute, "a snapshot", func(ctx context.Context) error {
		stream, err := etcd.Snapshot(ctx)
		if err != nil {
			return err
		}
		content, err = io.ReadAll(stream)
		return errors.Join(err, stream.Close())
	})
	return content
}

// awaitBackups waits until the status says that the cluster is backed up.
func awaitBackups(t *testing.T, c *harness.Cluster) {
	t.Helper()
	awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionTrue, saveWithin, "")
}

// reportsBackups: kubectl shows both Leases, and up to which revision all is saved.
func reportsBackups(t *testing.T, c *harness.Cluster) {
	t.Helper()
	table, err := rig.Lab.Kubectl(t.Context(), "get", "leases", "--namespace", c.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{leases.FullSnapshotName(c.Name), leases.DeltaSnapshotName(c.Name)} {
		var holder string
		for line := range strings.Lines(table) {
			if columns := strings.Fields(line); len(columns) > 2 && columns[0] == name {
				holder = columns[1]
			}
		}
		if holder == "" {
			t.Errorf("Lease %s names no revision:\n%s", name, table)
		}
	}
}

// isCompacted: who watches from where the old cluster was is instructed to begin again.
func isCompacted(t *testing.T, etcd *clientv3.Client, revision int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	response, ok := <-etcd.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(revision))
	if !ok || !errors.Is(response.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from revision %d is answered with %v, want %v", revision, response.Err(), rpctypes.ErrCompacted)
	}
}
