package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// onDisk stores the members' data in directories on the disks of their nodes.
func onDisk(c *v1alpha1.EtcdCluster) {
	c.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("512Mi"), Medium: v1alpha1.StorageDisk}
}

// TestNodeDiskAndVolumeWithoutClass: only members serve on the disk of a node and on a volume without a class.
// A kubelet mounts both kinds of storage that no provisioner makes. An etcd that is killed resumes on what it had written to them.
func TestNodeDiskAndVolumeWithoutClass(t *testing.T) {
	stories.Begin(t)
	t.Run("medium Disk: no claim, and the data is not in memory", func(t *testing.T) {
		c := rig.Apply(t, harness.Replicas(1), onDisk)
		view := c.Agree(t, 1, formWithin)
		var claims corev1.PersistentVolumeClaimList
		if err := rig.Client.List(t.Context(), &claims, client.InNamespace(c.Namespace)); err != nil || len(claims.Items) > 0 {
			t.Errorf("there are claims: %v, %v", claims.Items, err)
		}
		if inMemoryOf(t, c, view.Leader()) {
			t.Error("the data is in memory")
		}
		resumes(t, c, view)
	})
	t.Run("no class: the claim waits for a PersistentVolume of the user, although there is a default class", func(t *testing.T) {
		c := rig.Apply(t, harness.Replicas(1), harness.StorageClass(""))
		c.AwaitCondition(t, formWithin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonVolumePending, "create a PersistentVolume without a class")
		made := makeStaticVolume(t, c.Namespace)
		view := c.Agree(t, 1, formWithin)
		member := view.Leader()
		var claim corev1.PersistentVolumeClaim
		if err := rig.Client.Get(t.Context(), harness.Key(c.Namespace, member), &claim); err != nil || claim.Spec.VolumeName != made.Name {
			t.Errorf("the claim has volume %q, want %q: %v", claim.Spec.VolumeName, made.Name, err)
		}
		if _, err := os.Stat(filepath.Join(made.Spec.Local.Path, "data/member/wal")); err != nil {
			t.Errorf("the member does not write to the PersistentVolume: %v", err)
		}
		resumes(t, c, view)
	})
}

// resumes kills the etcd of the only member. All that it acknowledged is there afterwards.
func resumes(t *testing.T, c *harness.Cluster, view harness.View) {
	t.Helper()
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 100, time.Minute)
	c.Kill(t, view.Leader(), harness.Etcd)
	w.AwaitWrites(t, 100, scaleWithin)
	same(t, view, c.Agree(t, 1, scaleWithin))
	w.Stop(t, c.Etcd(t))
}

// inMemoryOf reports whether the file system of a member's data is a tmpfs.
func inMemoryOf(t *testing.T, c *harness.Cluster, member string) bool {
	t.Helper()
	const tmpfs = 0x01021994 // TMPFS_MAGIC of linux/magic.h
	pid := c.Process(t, member, harness.Etcd)
	var found syscall.Statfs_t
	if err := syscall.Statfs(filepath.Join("/proc", strconv.Itoa(pid), "root", config.VolumePath), &found); err != nil {
		t.Fatalf("the file system of the data of %s: %v", member, err)
	}
	return found.Type == tmpfs
}

// makeStaticVolume makes a PersistentVolume without a class on a node, as a user does. The namespace makes its name unique.
func makeStaticVolume(t *testing.T, namespace string) *corev1.PersistentVolume {
	t.Helper()
	node := rig.Lab.Nodes()[0]
	dir := filepath.Join(filepath.Dir(rig.Lab.NodeLogs(node)), "volumes", "static-"+namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "static-" + namespace},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
	if err := rig.Client.Create(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rig.Client.Delete(context.WithoutCancel(t.Context()), volume); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete PersistentVolume %s: %v", volume.Name, err)
		}
	})
	return volume
}
