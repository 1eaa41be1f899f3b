package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// verificationWithin is how long a proof may take to come: agents look each minute whether one is due.
const verificationWithin = 4 * time.Minute

// verifiedEachMinute verifys the backups as often as agents look whether it is due.
func verifiedEachMinute(c *v1alpha1.EtcdCluster) {
	c.Spec.Backup.Verify.Schedule = "* * * * *"
}

// TestDamagedFullAndStoreOutage: a damaged full is replaced and a store that is away is reported.
func TestDamagedFullAndStoreOutage(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, backedUp(s3.Store(bucket)), verifiedEachMinute)
	c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	awaitBackups(t, c)
	w.AwaitWrites(t, 100, time.Minute)
	// In this order: a proof that meets a store which is away waits until it is back.
	aFullIsDamaged(t, c, s3, bucket)
	theStoreGoesAway(t, c, s3, w)
	w.Stop(t, c.Etcd(t))
}

// theStoreGoesAway while clients write, and comes back: it is reported, no eviction is allowed meanwhile, clients notice nothing, and
// in the end all is saved.
func theStoreGoesAway(t *testing.T, c *harness.Cluster, s3 *harness.S3, w *harness.Writer) {
	t.Helper()
	thaw := s3.Freeze(t)
	w.Gap() // what was before does not count
	took := awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionFalse, saveWithin, "")
	t.Logf("BackupReady of %s was False %s after the store stood still", c, took.Round(time.Millisecond))
	awaitClosedBudget(t, c)
	if err := evict(t.Context(), c, c.MemberNames(t)[0]); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction while backups fail: %v, want that it is refused until they succeed", err)
	}
	w.AwaitWrites(t, 100, time.Minute)
	if err := w.StoodStill(harness.NoticeableGap); err != nil {
		t.Error(err)
	}
	thaw()
	took = awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionTrue, saveWithin, "")
	t.Logf("BackupReady of %s was True %s after the store was back", c, took.Round(time.Millisecond))
	c.AwaitSaved(t, saveWithin, c.Revision(t))
}

// aFullIsDamaged where it is stored: the next proof names it, a new full follows, and that is verified.
func aFullIsDamaged(t *testing.T, c *harness.Cluster, s3 *harness.S3, bucket string) {
	t.Helper()
	awaitVerified := func(status metav1.ConditionStatus, words string) (took time.Duration) {
		stories.Resting(t, func() {
			took = awaitCondition(t, c, v1alpha1.ConditionBackupVerified, status, verificationWithin, words)
		})
		return took
	}
	awaitVerified(metav1.ConditionTrue, "")
	before, _ := fullOf(t, c)
	s3.Flip(t, bucket, before.Object)
	took := awaitVerified(metav1.ConditionFalse, path.Base(before.Object))
	t.Logf("BackupVerified of %s was False %s after %s was damaged", c, took.Round(time.Millisecond), before.Object)
	awaitVerified(metav1.ConditionTrue, "")
	after, verificationResult := fullOf(t, c)
	if after.Object == before.Object || verificationResult.VerifiedFull == before.Object {
		t.Errorf("proven is %s, and the newest full is %s, want another one than %s, which is damaged", verificationResult.VerifiedFull, after.Object, before.Object)
	}
}

// awaitCondition waits until the status has a condition, and a message with some words.
func awaitCondition(t *testing.T, c *harness.Cluster, kind string, status metav1.ConditionStatus, within time.Duration, words string) time.Duration {
	t.Helper()
	return harness.Eventually(t, within, fmt.Sprintf("%s of %s is %s", kind, c, status), func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if condition == nil || condition.Status != status || !strings.Contains(condition.Message, words) {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
}

// fullOf is what the Lease of the full backups says of them, and of verifications.
func fullOf(t *testing.T, c *harness.Cluster) (b leases.Backup, v leases.Verification) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the Lease of the full backups of "+c.String(), func(ctx context.Context) error {
		lease, err := c.Lease(ctx, leases.FullSnapshotName(c.Name))
		if err != nil {
			return err
		}
		b, err = leases.DecodeBackup(lease)
		if err == nil {
			v, err = leases.DecodeVerification(lease)
		}
		return err
	})
	return b, v
}

// awaitClosedBudget waits until the PodDisruptionBudget allows no eviction.
func awaitClosedBudget(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, time.Minute, "a closed budget of "+c.String(), func(ctx context.Context) error {
		budget := &policyv1.PodDisruptionBudget{}
		if err := c.Rig.Client.Get(ctx, harness.Key(c.Namespace, manifests.DisruptionBudgetName(c.Name)), budget); err != nil {
			return err
		}
		if s := budget.Status; s.DisruptionsAllowed != 0 || s.ObservedGeneration != budget.Generation {
			return errors.New("it allows evictions: " + s.String())
		}
		return nil
	})
}

// evict asks to evict a member as a drain does.
func evict(ctx context.Context, c *harness.Cluster, member string) error {
	pod, err := c.Pod(ctx, member)
	if err != nil {
		return err
	}
	return c.Rig.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})
}
