package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

const (
	// growWithin is what a driver and druid may take for a volume that grows while it is in use.
	growWithin = time.Minute
	// remountWithin is what they may take where Pods are replaced: two minutes for the kubelet to do without, and three Pods.
	remountWithin = 2*time.Minute + scaleWithin
)

// The edits, and the size that the first one asks for.
const (
	larger    = "2Gi"
	grows     = `{"spec":{"storage":{"size":"2Gi"}}}`
	moreQuota = `{"spec":{"etcd":{"quotaBackendBytes":"1536Mi"}}}`
)

// fixedQuota sets etcd.quotaBackendBytes, which else is half of what the volume holds, so that every larger size would need other Pods.
func fixedQuota(c *v1alpha1.EtcdCluster) {
	c.Spec.Etcd = v1alpha1.EtcdOptions{QuotaBackendBytes: new(resource.MustParse("512Mi"))}
}

func TestVolumesGrowUnderTheMembers(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.StorageClass(lab.NetworkClass), fixedQuota)
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	w := harness.Load(t, etcd)
	t.Run("a quota that the volumes do not hold is refused", func(t *testing.T) {
		cluster := harness.Definition(c.Namespace)
		err := rig.Client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(moreQuota)))
		if err == nil || !strings.Contains(err.Error(), "quotaBackendBytes must not exceed storage.size") {
			t.Errorf("the API server says %v", err)
		}
	})
	t.Run("a larger size restarts nothing", func(t *testing.T) {
		before := runningEtcds(t, c, view)
		begun := time.Now()
		w.Gap()
		c.Edit(t, grows)
		grown(t, c, view)
		reconciled(t, c, growWithin)
		t.Logf("three volumes have grown after %s", time.Since(begun).Round(100*time.Millisecond))
		for member := range view.Members {
			reportsAs(t, c, corev1.EventTypeNormal, v1alpha1.EventPVCExpanded, "PersistentVolumeClaim "+member+" requests "+larger)
		}
		view = stableAs(t, c, view)
		if diff := cmp.Diff(before, runningEtcds(t, c, view)); diff != "" {
			t.Errorf("a member was touched (-before +after):\n%s", diff)
		}
		servedOn(t, w)
	})
	w.Stop(t, etcd)
}

// TestQuotaFollowsVolumes: quota follows the volumes one Pod after another.
func TestQuotaFollowsVolumes(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.StorageClass(lab.NetworkClass), fixedQuota)
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	w := harness.Load(t, etcd)
	c.Edit(t, grows)
	grown(t, c, view)
	reconciled(t, c, growWithin)
	view = stableAs(t, c, view)
	before := podsOf(t, c, view)
	w.Gap()
	c.Edit(t, moreQuota)
	reconciled(t, c, scaleWithin)
	view = stableAs(t, c, view)
	servedOn(t, w)
	for member, uid := range podsOf(t, c, view) {
		if uid == before[member] {
			t.Errorf("Pod %s is the one that was there before", member)
		}
		if got := c.Settings(t, member)["quota-backend-bytes"]; got != float64(1536<<20) {
			t.Errorf("etcd of %s runs with a quota of %v", member, got)
		}
	}
	w.Stop(t, etcd)
}

// TestGrowAtMountLeaderLast: volumes that grow at a mount get one Pod after another, the leader's last.
func TestGrowAtMountLeaderLast(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.StorageClass(lab.RemountClass), fixedQuota)
	view := c.Agree(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	before := podsOf(t, c, view)
	begun := time.Now()
	w.Gap()
	c.Edit(t, grows)
	harness.Eventually(t, growWithin, "a driver that asks for a new mount", func(ctx context.Context) error {
		return eachClaim(ctx, c, view, func(claim *corev1.PersistentVolumeClaim) error {
			if len(claim.Status.Conditions) == 0 || claim.Status.Conditions[0].Type != corev1.PersistentVolumeClaimFileSystemResizePending {
				return fmt.Errorf("claim %s is %+v", claim.Name, claim.Status)
			}
			return nil
		})
	})
	c.AwaitCondition(t, growWithin, "Progressing", "True", "RollingUpdate", "grows")
	view = stableAs(t, c, view)
	leader := view.Leader()
	order, elected := replacedInTurn(t, c, before, leader, remountWithin)
	grown(t, c, view)
	reconciled(t, c, scaleWithin)
	view = stableAs(t, c, view)
	t.Logf("three volumes have grown after %s, by Pods in the order %v", time.Since(begun).Round(100*time.Millisecond), order)
	servedOn(t, w)
	if order[2] != leader && !elected {
		t.Errorf("Pods were replaced in the order %v, want that of the leader %s last", order, leader)
	}
	for member := range view.Members {
		if got := c.MustPod(t, member).Annotations["etcd.druid.dev/mounted-for"]; got != larger {
			t.Errorf("Pod %s says that it was made for %q", member, got)
		}
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// TestUngrowableVolumeReportedOnly: a volume of a class that does not grow is reported and nothing else happens.
func TestUngrowableVolumeReportedOnly(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Replicas(1), harness.StorageClass(lab.LocalClass), fixedQuota)
	view := c.Agree(t, 1, formWithin)
	etcd := c.Etcd(t)
	w := harness.Load(t, etcd)
	before := runningEtcds(t, c, view)
	w.Gap()
	c.Edit(t, grows)
	c.AwaitCondition(t, growWithin, "Degraded", "True", v1alpha1.ReasonVolumeNotExpanded, "set allowVolumeExpansion: true")
	announces(t, c, v1alpha1.ReasonVolumeNotExpanded, "StorageClass "+lab.LocalClass+" does not allow volumes to grow")
	reconciled(t, c, growWithin)
	harness.Consistently(t, 15*time.Second, "the claim requests what it did", func(ctx context.Context) error {
		err := eachClaim(ctx, c, view, func(claim *corev1.PersistentVolumeClaim) error {
			if got := claim.Spec.Resources.Requests.Storage().String(); got != "1Gi" {
				return fmt.Errorf("claim %s requests %s", claim.Name, got)
			}
			return nil
		})
		return errors.Join(err, w.StoodStill(harness.NoticeableGap))
	})
	if diff := cmp.Diff(before, runningEtcds(t, c, stableAs(t, c, view))); diff != "" {
		t.Errorf("the member was touched (-before +after):\n%s", diff)
	}
	w.Stop(t, etcd)
}

// grown waits until each member's claim has a volume of the larger size, and its driver has nothing left to do.
func grown(t *testing.T, c *harness.Cluster, view harness.View) {
	t.Helper()
	harness.Eventually(t, growWithin, "volumes of "+larger, func(ctx context.Context) error {
		return eachClaim(ctx, c, view, func(claim *corev1.PersistentVolumeClaim) error {
			if got := claim.Status.Capacity.Storage().String(); got != larger || len(claim.Status.Conditions) > 0 {
				return fmt.Errorf("claim %s has %s: %+v", claim.Name, got, claim.Status.Conditions)
			}
			volume := &corev1.PersistentVolume{}
			if err := rig.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
				return err
			}
			if got := volume.Spec.Capacity.Storage().String(); got != larger {
				return fmt.Errorf("volume %s has %s", volume.Name, got)
			}
			return nil
		})
	})
}

func eachClaim(ctx context.Context, c *harness.Cluster, view harness.View, look func(*corev1.PersistentVolumeClaim) error) error {
	for member := range view.Members {
		claim := &corev1.PersistentVolumeClaim{}
		if err := rig.Client.Get(ctx, harness.Key(c.Namespace, member), claim); err != nil {
			return err
		}
		if err := look(claim); err != nil {
			return err
		}
	}
	return nil
}

// replacedInTurn waits until each Pod is another one and ready, and returns the members in that order, and whether another than leader
// led before it was its turn. It fails the test where two were away at once.
func replacedInTurn(t *testing.T, c *harness.Cluster, before map[string]string, leader string, within time.Duration) (order []string, elected bool) {
	t.Helper()
	harness.Eventually(t, within, "three other Pods", func(ctx context.Context) error {
		away := []string{}
		for member, uid := range before {
			pod, err := c.Pod(ctx, member)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			gone := err != nil || pod.DeletionTimestamp != nil
			another := !gone && string(pod.UID) != uid
			ready := another && containerOf(pod, harness.ContainerEtcd).Ready
			if gone || another && !ready { // one of before that is not ready for a moment is no matter of this
				away = append(away, member)
			}
			lease, err := c.Lease(ctx, member)
			if err != nil {
				return err
			}
			if m, err := leases.DecodeMember(lease); err == nil && m.Role == leases.RoleLeader && member != leader && len(order) < len(before)-1 {
				elected = true
			}
			if ready && !slices.Contains(order, member) {
				order = append(order, member)
			}
		}
		if len(away) > 1 {
			t.Errorf("%v are away at once", away)
		}
		if len(order) < len(before) {
			return fmt.Errorf("replaced so far: %v; away: %v", order, away)
		}
		return nil
	})
	return order, elected
}
