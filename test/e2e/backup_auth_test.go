package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// The users of a backup with authentication. Each of appUsers has the role app, and its password under its name in a Secret.
const (
	appUser, formerUser, addedUser = "app", "former", "added"
	ownKeys                        = "/own/"
)

// A cluster with authentication is backed up and deleted. One that requires authentication begins with its backups: its users are those of the
// spec, and who is only in the backup keeps its access. One that does not starts no etcd and says why, and begins once the spec requires
// authentication. Both have the data.
func TestAuthBackupRestored(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	saved := backedUp(s3.Store(bucket))
	makePasswords(t, namespace, "first", map[string]string{appUser: "of-app", formerUser: "of-former"})
	makePasswords(t, namespace, "second", map[string]string{appUser: "another-of-app", addedUser: "of-added"})
	first := appUsers("first", appUser, formerUser)
	c := rig.ApplyIn(t, namespace, harness.Named("first"), harness.TLS(24*time.Hour), saved, secured(first), claimsGo)
	view := c.AwaitMembers(t, 3, formWithin)
	c.AwaitCondition(t, formWithin, v1alpha1.ConditionAuthReady, "True")
	logsIn(t, c, appUser, "of-app")
	logsIn(t, c, formerUser, "of-former")
	etcd := c.Etcd(t)
	w := harness.Write(t, etcd)
	awaitBackups(t, c)
	savesUsers(t, c)
	w.AwaitWrites(t, 100, time.Minute)
	w.Stop(t, etcd)
	want := keysAt(t, c, 0)
	c.AwaitSaved(t, saveWithin, c.Revision(t))
	deleteCluster(t, c, metav1.DeletePropagationForeground)
	c.AwaitLeft(t, goneWithin)
	awaitEnd(t, c)

	begun := func(t *testing.T, c *harness.Cluster) {
		if after := c.AwaitMembers(t, 3, formWithin); after.ClusterID == view.ClusterID {
			harness.Unsafe(t, "%s has the ID of the cluster that was saved, %s", c, after.ClusterID)
		}
		c.AwaitCondition(t, formWithin, v1alpha1.ConditionAuthReady, "True")
		w.Verify(t, c.Etcd(t))
		if got := keysAt(t, c, 0); !maps.Equal(got, want) {
			harness.Unsafe(t, "%s has %d keys, and %d were saved, or a revision differs", c, len(got), len(want))
		}
		awaitBackups(t, c)
	}
	unsecured := rig.ApplyIn(t, namespace, harness.Named("unsecured"), harness.TLS(24*time.Hour), saved, restoredFrom("first"))
	t.Run("with spec.auth", func(t *testing.T) {
		users := secured(appUsers("second", appUser, addedUser))
		c := rig.ApplyIn(t, namespace, harness.Named("second"), harness.TLS(24*time.Hour), saved, restoredFrom("first"), users)
		begun(t, c)
		logsIn(t, c, appUser, "another-of-app")
		logsIn(t, c, addedUser, "of-added")
		logsIn(t, c, formerUser, "of-former")
		if _, err := c.Etcd(t).Authenticate(t.Context(), appUser, "of-app"); !errors.Is(err, rpctypes.ErrAuthFailed) {
			t.Errorf("the password of the backup is answered with %v, want %v", err, rpctypes.ErrAuthFailed)
		}
		cluster, err := c.Get(t.Context())
		if err != nil || cluster.Status.Auth == nil || !cluster.Status.Auth.Enabled || cluster.Status.Auth.UnknownUsers != 1 {
			t.Errorf("status.auth is %+v, want one unknown user (%v)", cluster.Status.Auth, err)
		}
	})
	t.Run("without spec.auth", func(t *testing.T) {
		unsecured.AwaitCondition(t, formWithin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonAuthRequiredNotConfigured, "spec.auth.enabled")
		startsNoEtcd(t, unsecured)
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"auth": first}})
		if err != nil {
			t.Fatal(err)
		}
		unsecured.Edit(t, string(patch))
		begun(t, unsecured)
		unsecured.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "False")
		logsIn(t, unsecured, appUser, "of-app")
		logsIn(t, unsecured, formerUser, "of-former")
	})
}

// savesUsers waits until the newest full backup was taken with authentication.
func savesUsers(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, saveWithin, "a full backup with users and roles", func(ctx context.Context) error {
		lease, err := c.Lease(ctx, leases.FullSnapshotName(c.Name))
		if err != nil {
			return err
		}
		b, err := leases.DecodeBackup(lease)
		if err == nil && (!b.Auth.Enabled || b.Auth.Object != b.Object) {
			err = fmt.Errorf("%s is the newest, and authentication is known of %+v", b.Object, b.Auth)
		}
		return err
	})
}

// appUsers are users with passwords in a Secret and access to their own keys, and the client of the stories.
func appUsers(secret string, names ...string) *v1alpha1.AuthSpec {
	spec := &v1alpha1.AuthSpec{
		Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: secret},
		Users: []v1alpha1.AuthUser{{Name: "client", CertificateCN: "client", Roles: []string{"root"}}},
		Roles: []v1alpha1.AuthRole{{Name: "app", Permissions: []v1alpha1.AuthPermission{{Key: ownKeys, Prefix: true, Type: v1alpha1.AuthReadWrite}}}},
	}
	for _, name := range names {
		spec.Users = append(spec.Users, v1alpha1.AuthUser{Name: name, PasswordKey: name, Roles: []string{"app"}})
	}
	return spec
}

// secured sets spec.auth.
func secured(spec *v1alpha1.AuthSpec) harness.Option {
	return func(c *v1alpha1.EtcdCluster) { c.Spec.Auth = spec }
}

func makePasswords(t *testing.T, namespace, name string, data map[string]string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: data}
	if err := rig.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// logsIn says that a user with the password may read its own keys, and no others.
func logsIn(t *testing.T, c *harness.Cluster, name, password string) {
	t.Helper()
	etcd := c.EtcdAs(t, name, password)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := etcd.Get(ctx, ownKeys+"key"); err != nil {
		t.Errorf("user %s of %s cannot read its keys: %v", name, c, err)
	}
	if _, err := etcd.Get(ctx, "/other"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("user %s of %s reads other keys: %v", name, c, err)
	}
}

// startsNoEtcd says that for a while no member runs an etcd or serves, and that the cluster does not form.
func startsNoEtcd(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Consistently(t, 5*time.Second, "no etcd in "+c.String(), func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err != nil {
			return harness.NoAnswer(err)
		}
		if record.Phase != leases.PhaseForming || record.FormedEpoch != 0 {
			return fmt.Errorf("the record is %+v", record)
		}
		for _, member := range record.Members {
			pod, err := c.Pod(ctx, member)
			if err != nil {
				return harness.NoAnswer(err)
			}
			if running, err := harness.Processes(string(pod.UID), harness.Etcd); err != nil || len(running) > 0 {
				return fmt.Errorf("%s has etcds %v (%w)", member, running, err)
			}
		}
		return noneServes(ctx, c)
	})
}
