package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

const (
	// archive is the bucket of EtcdSnapshots with a store of their own, and the name of the Secret for it.
	archive = "archive"
	// podWithin is how long the Pod of an EtcdSnapshot may take on a busy rig.
	podWithin = 2 * time.Minute
)

// A cluster with TLS and without spec.backup is saved by Pods that kubelets run: in a volume, and with authentication in a bucket. A cluster
// begins with the latter. Callers of the agents' API do what they may.
func TestSnapshotGoesToAStoreOfItsOwn(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	s3.MakeBucket(t, archive)
	id, key := s3.Credentials()
	makeCredentials(t, namespace, archive, id, key)
	makeCredentials(t, namespace, "wrong", id, "no-such-key")
	c := rig.ApplyIn(t, namespace, harness.Named("first"), harness.TLS(24*time.Hour))
	c.AwaitMembers(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 100, time.Minute)
	w.Stop(t, c.Etcd(t))

	inBucket := func(name, secret string) *v1alpha1.EtcdSnapshot {
		store := s3.Store(archive)
		store.S3.CredentialsSecretRef.Name = secret
		return ownSnapshot(namespace, name, store)
	}
	t.Run("in a volume", func(t *testing.T) {
		makeClaim(t, namespace, archive)
		status := saves(t, ownSnapshot(namespace, "volume", v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: archive}}))
		if !strings.HasPrefix(status.Artifact.URI, "dir://") {
			t.Errorf("the status has %+v", status.Artifact)
		}
	})
	t.Run("in a bucket, with authentication", func(t *testing.T) {
		c.Edit(t, fmt.Sprintf(`{"spec":{"auth":{"enabled":true,"users":[{"name":"client","certificateCN":"client","roles":["root"]},`+
			`{"name":%q,"certificateCN":%q,"roles":["root"]}]}}}`, formerUser, formerUser))
		c.AwaitCondition(t, formWithin, v1alpha1.ConditionAuthReady, "True")
		want := c.Revision(t)
		snapshot := inBucket("bucket", archive)
		snapshot.Spec.DeletionPolicy = v1alpha1.SnapshotDelete
		status := saves(t, snapshot)
		if keys := s3.Keys(t, archive, "/full/"); len(keys) != 1 || status.Artifact.URI != "s3://"+archive+"/"+keys[0] {
			t.Errorf("the bucket has %v, and the status %+v", keys, status.Artifact)
		}
		if status.Artifact.Revision < want {
			t.Errorf("revision %d was saved, want %d", status.Artifact.Revision, want)
		}
	})
	t.Run("with a wrong key", func(t *testing.T) {
		status := ends(t, inBucket("wrong", "wrong"), v1alpha1.SnapshotConditionFailed)
		if !strings.Contains(status.Message, "secret access key does not match") || strings.Contains(status.Message, "no-such-key") {
			t.Errorf("it fails with %q", status.Message)
		}
	})
	t.Run("by a user who may not get the Secret", func(t *testing.T) { refusedWithoutSecret(t, inBucket("refused", archive)) })

	makeSecrets(t, namespace)
	second := rig.ApplyIn(t, namespace, harness.Named("second"), harness.TLS(24*time.Hour), calledBy("caller"), backedUp(s3.Store(bucket)), withSecrets,
		beginsWith(v1alpha1.RestoreSource{SnapshotRef: &v1alpha1.SnapshotReference{Name: "bucket"}}))
	view := second.AwaitMembers(t, 3, formWithin)
	w.Verify(t, second.Etcd(t))
	awaitBackups(t, second)
	second.AwaitCondition(t, formWithin, v1alpha1.ConditionAuthReady, "True")
	if cluster, err := second.Get(t.Context()); err != nil || cluster.Status.Auth == nil || cluster.Status.Auth.UnknownUsers != 1 {
		t.Errorf("status.auth is %+v, want one user of the backup that spec.auth does not have (%v)", cluster.Status.Auth, err)
	}
	changesPassword(t, second) // before another leader: its agent would leave a changed password alone for a while
	t.Run("the API of the agents", func(t *testing.T) {
		before := len(s3.Keys(t, bucket, "/full/"))
		agentsServeCallers(t, second, view, http.StatusOK)
		if after := len(s3.Keys(t, bucket, "/full/")); after <= before {
			t.Errorf("the bucket has %d full backups, before %d", after, before)
		}
	})

	t.Run("no Secret is shown", func(t *testing.T) {
		second.ShowsNoSecret(t, map[string]string{"the first password": firstPassword}, "passwords/app", "backup-keys/2026-11", "s3/secretAccessKey",
			archive+"/secretAccessKey", manifests.ConnectionName("second")+"/tls.key")
	})
	t.Run("the backup is deleted with its EtcdSnapshot", func(t *testing.T) {
		snapshot := inBucket("bucket", archive)
		if err := rig.Client.Delete(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, podWithin, "the EtcdSnapshot is gone", func(ctx context.Context) error {
			err := rig.Client.Get(ctx, client.ObjectKeyFromObject(snapshot), snapshot)
			if err == nil {
				err = fmt.Errorf("it exists: %+v", snapshot.Status)
			}
			return apiNotFound(err)
		})
		if keys := s3.Keys(t, archive, "/full/"); len(keys) != 0 {
			t.Errorf("the bucket has %v", keys)
		}
	})
}

const (
	passwords, backupKeys = "passwords", "backup-keys"
	firstPassword         = "first-password-of-app"
)

// makeSecrets makes the Secrets of withSecrets.
func makeSecrets(t *testing.T, namespace string) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string]string{
		passwords:  {"app": firstPassword},
		backupKeys: {"current": "2026-11", "2026-11": identity.String()},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: data}
		if err := rig.Client.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
}

// withSecrets gives a cluster users with passwords, and encrypts its backups.
func withSecrets(c *v1alpha1.EtcdCluster) {
	encrypted(c)
	root := []string{"root"}
	c.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: passwords}, Users: []v1alpha1.AuthUser{
		{Name: "app", PasswordKey: "app", Roles: root}, {Name: "client", CertificateCN: "client", Roles: root},
	}}
}

// changesPassword replaces the password of a user, and waits until etcd takes the new one.
func changesPassword(t *testing.T, c *harness.Cluster) {
	t.Helper()
	const second = "second-password-of-app"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: passwords}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"app":"`+second+`"}}`))
	if err := rig.Client.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
	(&user{t: t, namespace: c.Namespace}).nudge(c, c.MemberNames(t))
	etcd := c.Etcd(t)
	harness.Eventually(t, scaleWithin, "the user logs in with the new password", func(ctx context.Context) error {
		_, err := etcd.Authenticate(ctx, "app", second)
		return err
	})
}

// apiNotFound is nil for the error that an object does not exist.
func apiNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func makeCredentials(t *testing.T, namespace, name, id, key string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		StringData: map[string]string{"accessKeyID": id, "secretAccessKey": key},
	}
	if err := rig.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// makeClaim makes a claim of a volume for one node, unless the options change it.
func makeClaim(t *testing.T, namespace, name string, options ...func(*corev1.PersistentVolumeClaim)) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for _, option := range options {
		option(claim)
	}
	if err := rig.Client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

// ownSnapshot saves cluster first.
func ownSnapshot(namespace, name string, store v1alpha1.BackupStore) *v1alpha1.EtcdSnapshot {
	return &v1alpha1.EtcdSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdSnapshot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.EtcdSnapshotSpec{ClusterRef: v1alpha1.ClusterReference{Name: "first"}, Store: &store},
	}
}

// ends creates the EtcdSnapshot, and waits for a condition as a user does.
func ends(t *testing.T, snapshot *v1alpha1.EtcdSnapshot, condition string) v1alpha1.EtcdSnapshotStatus {
	t.Helper()
	began := time.Now()
	if err := rig.Client.Create(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	_, waited := rig.Lab.Kubectl(t.Context(), "wait", "--namespace", snapshot.Namespace, "etcdsnapshot/"+snapshot.Name,
		"--for=condition="+condition, "--timeout="+podWithin.String())
	if err := rig.Client.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot); err != nil || waited != nil {
		t.Fatalf("EtcdSnapshot %s is %+v: %v, %v", snapshot.Name, snapshot.Status, waited, err)
	}
	t.Logf("EtcdSnapshot %s ended after %s: %s", snapshot.Name, time.Since(began).Round(time.Millisecond), snapshot.Status.Message)
	return snapshot.Status
}

func saves(t *testing.T, snapshot *v1alpha1.EtcdSnapshot) v1alpha1.EtcdSnapshotStatus {
	t.Helper()
	status := ends(t, snapshot, v1alpha1.SnapshotConditionComplete)
	if status.Artifact == nil || status.Artifact.Key == "" || status.Artifact.SHA256 == "" {
		t.Fatalf("the status is %+v", status)
	}
	return status
}

// refusedWithoutSecret creates the EtcdSnapshot as a user who may create EtcdSnapshots and update the cluster.
func refusedWithoutSecret(t *testing.T, snapshot *v1alpha1.EtcdSnapshot) {
	t.Helper()
	grant(t, snapshot.Namespace, "saver", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "saver"},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdsnapshots"}, Verbs: []string{"create", "get"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"update"}})
	raw, err := json.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "a refusal for the Secret", func(ctx context.Context) error { // the permissions take a moment
		_, err := rig.Lab.Kubectl(ctx, "create", "--as=saver", "--as-group=system:authenticated", "-f", file)
		if err == nil || !strings.Contains(err.Error(), "only if you may get Secret "+archive) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// grant gives the rules in the namespace.
func grant(t *testing.T, namespace, name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, object := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{to}},
	} {
		if err := rig.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}
