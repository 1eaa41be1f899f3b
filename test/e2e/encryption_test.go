package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

const firstKey, secondKey = "2026-11", "2026-12"

// encrypted lets the agents encrypt the backups with the keys of Secret backupKeys.
func encrypted(c *v1alpha1.EtcdCluster) {
	c.Spec.Backup.Encryption = &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: backupKeys}}
}

// keys encrypt the backups of clusters: first until rotate, and second from then on.
type keys struct{ first, second *age.X25519Identity }

// makeKeys makes the Secret of encrypted, which has only the first key.
func makeKeys(t *testing.T, namespace string) (k keys) {
	t.Helper()
	for _, identity := range []**age.X25519Identity{&k.first, &k.second} {
		made, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		*identity = made
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: backupKeys},
		StringData: map[string]string{"current": firstKey, firstKey: k.first.String()},
	}
	if err := rig.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return k
}

// rotate adds the second key to the Secret and makes it the current one, as docs/how-to/back-up/encrypt.md describes.
func (k keys) rotate(t *testing.T, c *harness.Cluster) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: backupKeys}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData":{"current":%q,%q:%q}}`, secondKey, secondKey, k.second))
	if err := rig.Client.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
	(&user{t: t, namespace: c.Namespace}).nudge(c, c.MemberNames(t))
}

// awaitRotated waits until an object is encrypted with the second key. Those that were there before are encrypted with the first.
func (k keys) awaitRotated(t *testing.T, s3 *harness.S3, before []string) {
	t.Helper()
	if len(before) == 0 {
		t.Error("nothing was saved with the first key")
	}
	for _, key := range before {
		if !strings.HasSuffix(key, ".age") || !opens(t, s3, key, k.first) || opens(t, s3, key, k.second) {
			t.Errorf("object %s is not encrypted with the first key", key)
		}
	}
	took := harness.Eventually(t, saveWithin, "an object that is encrypted with the second key", func(context.Context) error {
		all := s3.Keys(t, bucket, "/delta/")
		newest := all[len(all)-1]
		if slices.Contains(before, newest) || !opens(t, s3, newest, k.second) {
			return fmt.Errorf("the newest object is %s", newest)
		}
		if opens(t, s3, newest, k.first) {
			t.Errorf("object %s is encrypted with the first key too", newest)
		}
		return nil
	})
	t.Logf("the agents used the second key after %s", took)
}

// opens reports whether a key decrypts an object of the bucket.
func opens(t *testing.T, s3 *harness.S3, key string, identity age.Identity) bool {
	t.Helper()
	_, err := age.Decrypt(bytes.NewReader(s3.Get(t, bucket, key)), identity)
	return err == nil
}
