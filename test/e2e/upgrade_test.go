package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// upgradeWithin is what a change of version may take: a backup that is made and verified, three Pods, four comparisons.
const upgradeWithin = 8 * time.Minute

// TestVersionChangeUnderLoad: the version changes under load after a backup, and nothing is lost.
func TestVersionChangeUnderLoad(t *testing.T) {
	stories.Begin(t)
	versionsChange(t)
}

func TestVersionsChangeThereAndBackUnderLoad(t *testing.T) {
	stories.Begin(t)
	versionsChange(t)
}

// versionsChange forms a cluster of the story's first minor and edits its version to each of the others under a writer.
func versionsChange(t *testing.T) {
	t.Helper()
	first, minors := stories.Versions(t)[0], stories.Versions(t)[1:]
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.Named("upgraded"), backedUp(s3.Store(bucket)), harness.Version(rig.EtcdVersion(t, first)))
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	lease := belongings(t, etcd)
	awaitBackups(t, c)
	w := harness.Load(t, etcd)
	for i, minor := range minors {
		version := rig.EtcdVersion(t, minor)
		if i > 0 && minor < minors[i-1] {
			t.Run("back by two minors is refused", func(t *testing.T) {
				refused(t, c, rig.EtcdVersion(t, first), "version must not decrease by more than one minor version: downgrade one minor version at a time")
			})
		}
		t.Run(fmt.Sprintf("%d: to %s", i+1, minor), func(t *testing.T) {
			begun := time.Now()
			w.Gap()
			c.Edit(t, fmt.Sprintf(`{"spec":{"version":%q}}`, version))
			c.AwaitCondition(t, upgradeWithin, v1alpha1.ConditionProgressing, "True", v1alpha1.ReasonUpgrading, version)
			c.AwaitCondition(t, upgradeWithin, v1alpha1.ConditionProgressing, "False", v1alpha1.ReasonReconciled)
			view = stableAs(t, c, view)
			t.Logf("all members run %s after %s", version, time.Since(begun).Round(100*time.Millisecond))
			servedOn(t, w)
			for member := range view.Members {
				if status, err := etcd.Status(t.Context(), harness.Endpoint(member)); err != nil || status.Version != version {
					t.Errorf("member %s: %+v, %v; want etcd %s", member, status, err, version)
				}
			}
			holdTheSame(t, etcd, view)
			keepsBelongings(t, etcd, lease)
			savedBefore(t, c, i+1)
		})
	}
	w.Stop(t, etcd)
}

// refused: the API server does not take the version, and says why.
func refused(t *testing.T, c *harness.Cluster, version, sentence string) {
	t.Helper()
	cluster := harness.Definition(c.Namespace, harness.Named(c.Name))
	err := rig.Client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"version":%q}}`, version)))
	if err == nil || !strings.Contains(err.Error(), sentence) {
		t.Errorf("version %s: the API server says %v, want %q", version, err, sentence)
	}
}

// belongings are a user, a role and a lease with a key.
func belongings(t *testing.T, etcd *clientv3.Client) clientv3.LeaseID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := etcd.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"leased key": func() error { _, err := etcd.Put(ctx, "/leased", "yes", clientv3.WithLease(lease.ID)); return err },
		"role":       func() error { _, err := etcd.RoleAdd(ctx, "reader"); return err },
		"user":       func() error { _, err := etcd.UserAdd(ctx, "alice", "secret"); return err },
	} {
		if err := do(); err != nil {
			t.Fatalf("make a %s: %v", what, err)
		}
	}
	if _, err := etcd.RoleGrantPermission(ctx, "reader", "/", "0", clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.UserGrantRole(ctx, "alice", "reader"); err != nil {
		t.Fatal(err)
	}
	return lease.ID
}

func keepsBelongings(t *testing.T, etcd *clientv3.Client, lease clientv3.LeaseID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if left, err := etcd.TimeToLive(ctx, lease, clientv3.WithAttachedKeys()); err != nil || left.TTL <= 0 || len(left.Keys) != 1 {
		t.Errorf("the lease is %+v, %v", left, err)
	}
	if user, err := etcd.UserGet(ctx, "alice"); err != nil || len(user.Roles) != 1 {
		t.Errorf("the user is %+v, %v", user, err)
	}
	if role, err := etcd.RoleGet(ctx, "reader"); err != nil || len(role.Perm) != 1 {
		t.Errorf("the role is %+v, %v", role, err)
	}
}

// holdTheSame compares the members by their own hashes at one revision and one compaction.
func holdTheSame(t *testing.T, etcd *clientv3.Client, view harness.View) {
	t.Helper()
	type held struct {
		compacted int64
		hash      uint32
	}
	harness.Eventually(t, time.Minute, "hashes that can be compared", func(ctx context.Context) error {
		now, err := etcd.Get(ctx, "revision")
		if err != nil {
			return err
		}
		all := map[string]held{}
		var first held
		for member := range view.Members {
			r, err := etcd.HashKV(ctx, harness.Endpoint(member), now.Header.Revision)
			if err != nil {
				return fmt.Errorf("member %s: %w", member, err)
			}
			first = held{r.CompactRevision, r.Hash}
			all[member] = first
		}
		for _, h := range all {
			if h.compacted != first.compacted {
				return fmt.Errorf("compacted at different revisions: %+v", all)
			}
			if h.hash != first.hash {
				harness.Unsafe(t, "at revision %d members differ: %+v", now.Header.Revision, all)
			}
		}
		return nil
	})
}

// savedBefore: each change of version has its own backup, which was verified.
func savedBefore(t *testing.T, c *harness.Cluster, changes int) {
	t.Helper()
	var snapshots v1alpha1.EtcdSnapshotList
	if err := rig.Client.List(t.Context(), &snapshots, client.InNamespace(c.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(snapshots.Items) != changes {
		t.Errorf("%d EtcdSnapshots after %d changes of version", len(snapshots.Items), changes)
	}
	for _, s := range snapshots.Items {
		if s.Status.Phase != v1alpha1.SnapshotSucceeded || !s.Spec.Verify {
			t.Errorf("EtcdSnapshot %s is %+v", s.Name, s.Status)
		}
	}
}
