package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// TestPauseKeepsAcknowledgedWrites: a paused cluster comes back with every acknowledged write.
// A writer goes on all the time: what was acknowledged up to the last moment is there when the cluster is resumed.
func TestPauseKeepsAcknowledgedWrites(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	before := c.AwaitMembers(t, 3, formWithin)
	w := harness.Load(t, c.EtcdService(t))
	w.AwaitWrites(t, 200, scaleWithin)

	c.Scale(t, 0)
	c.AwaitCondition(t, scaleWithin, "Progressing", "False", "Paused", "PersistentVolumeClaim")
	names := c.MemberNames(t)
	if len(names) != 1 {
		t.Fatalf("%v are listed by the record, want the one that was kept", names)
	}
	lastMember := names[0]
	if before.IDs()[lastMember] == "" {
		t.Fatalf("%s was kept, want one of %v", lastMember, before)
	}
	t.Run("only the claim and the Leases of one member are left", func(t *testing.T) {
		left := []string{
			"ConfigMap/" + c.Name + "-agent", harness.Claim + "/" + lastMember, "Lease/" + lastMember, "Lease/" + leases.RecordName(c.Name),
			"Lease/" + leases.LeaderName(c.Name), "Role/" + c.Name + "-agent", "RoleBinding/" + c.Name + "-agent",
			"Service/" + c.Name + "-client", "Service/" + c.Name + "-nodes", "Service/" + c.Name + "-peer", "ServiceAccount/" + c.Name + "-agent",
		}
		c.AwaitLeft(t, scaleWithin, left...)
		if err := rig.Client.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(c.Namespace)); err != nil {
			t.Fatal(err)
		}
		c.AwaitLeft(t, scaleWithin, left...)
	})
	claim := claimOf(t, c, lastMember).UID
	c.AwaitCondition(t, scaleWithin, "Degraded", "False")

	after := c.ScaleTo(t, 3, scaleWithin)
	if after.ClusterID != before.ClusterID || after.IDs()[lastMember] != before.IDs()[lastMember] {
		harness.Unsafe(t, "%v came back, want cluster and member %s as in %v", after, lastMember, before)
	}
	if again := claimOf(t, c, lastMember).UID; again != claim {
		harness.Unsafe(t, "claim %s has UID %s, want %s", lastMember, again, claim)
	}
	c.AwaitCondition(t, scaleWithin, "Progressing", "False", "Reconciled")
	w.AwaitWrites(t, 200, scaleWithin)
	w.Stop(t, c.Etcd(t))
}

// claimOf waits until the member's claim exists and is not being deleted.
func claimOf(t *testing.T, c *harness.Cluster, member string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	harness.Eventually(t, scaleWithin, "the claim of "+member, func(ctx context.Context) error {
		if err := rig.Client.Get(ctx, harness.Key(c.Namespace, member), claim); err != nil {
			return fmt.Errorf("get claim %s: %w", member, err)
		}
		if claim.DeletionTimestamp != nil {
			return errors.New("it is being deleted")
		}
		return nil
	})
	return claim
}
