package e2e

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// The members mount one volume for backups on all nodes. Each of them leads and saves once. A second cluster mounts the volume too, and begins
// with what the first one saved.
func TestBackupsInAVolumeOfAllMembers(t *testing.T) {
	stories.Begin(t)
	namespace := rig.MakeNamespace(t)
	makeClaim(t, namespace, bucket, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.StorageClassName = new(lab.NetworkClass)
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	saved := backedUp(v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: bucket}})
	c := rig.ApplyIn(t, namespace, harness.Named("shared"), saved, onDifferentNodes)
	view := c.Agree(t, 3, formWithin)
	nodes := map[string]bool{}
	for _, member := range c.MemberNames(t) {
		nodes[c.MustPod(t, member).Spec.NodeName] = true
	}
	if len(nodes) != 3 {
		t.Errorf("the members run on %v, want three nodes", nodes)
	}
	w := harness.Write(t, c.Etcd(t))
	awaitBackups(t, c)
	disk, deltas := c.VolumeOf(t, bucket), 0
	for _, member := range append(c.MemberNames(t), view.Leader()) {
		c.MoveLeader(t, member)
		w.AwaitWrites(t, 100, time.Minute)
		c.AwaitSaved(t, saveWithin, c.Revision(t))
		before := deltas
		if deltas = len(filesOf(t, disk, "/delta/")); deltas <= before {
			t.Errorf("with %s as the leader, the volume has %d delta backups, and had %d", member, deltas, before)
		}
	}
	w.Stop(t, c.Etcd(t))
	last := c.Revision(t)
	c.AwaitSaved(t, saveWithin, last)
	if fulls := filesOf(t, disk, "/full/"); len(fulls) == 0 {
		t.Error("the volume has no full backup")
	}

	c = rig.ApplyIn(t, namespace, harness.Named("restored"), saved, restoredFrom("shared"))
	if after := c.Agree(t, 3, formWithin); after.ClusterID == view.ClusterID {
		harness.Unsafe(t, "the new cluster has the ID of the first one, %s", after.ClusterID)
	}
	w.Verify(t, c.Etcd(t))
	isCompacted(t, c.Etcd(t), last)
	awaitBackups(t, c)
}

// onDifferentNodes lets the scheduler place no two members on one node.
func onDifferentNodes(c *v1alpha1.EtcdCluster) {
	c.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{leases.LabelCluster: c.Name}},
	}}
}

// filesOf returns the files of a volume whose path contains the words.
func filesOf(t *testing.T, volume harness.Volume, words string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(volume.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.Contains(path, words) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatalf("read volume %s: %v", volume.Dir, err)
	}
	return found
}
