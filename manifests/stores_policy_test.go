package manifests

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

// The agents send the key of an encryption by the store to the store. So a user who may not get the Secret of a store sends it nowhere else.
func TestASecretOfAStoreStaysWithItsPlace(t *testing.T) {
	in := install(t, env.APIServer(t))
	bucket := func(prefix string) v1alpha1.S3Store {
		return v1alpha1.S3Store{
			Bucket: prefix + "backups", Region: "us-east-1", Endpoint: "https://s3.example.com",
			CredentialsSecretRef: &v1alpha1.SecretRef{Name: prefix + "credentials"}, CASecretRef: &v1alpha1.SecretKeyRef{Name: prefix + "ca", Key: "ca.crt"},
			SSE: &v1alpha1.S3Encryption{Mode: v1alpha1.SSECustomerKey, KeySecretRef: &v1alpha1.SecretKeyRef{Name: prefix + "sse", Key: "key"}},
		}
	}
	cluster := plain()
	cluster.ObjectMeta = metav1.ObjectMeta{Name: "stored", Namespace: in.cluster.Namespace}
	to, from := bucket("to-"), bucket("from-")
	cluster.Spec.Backup = &v1alpha1.BackupSpec{
		Store: v1alpha1.BackupStore{S3: &to}, Encryption: &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "to-keys"}},
	}
	cluster.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{
		Store: &v1alpha1.BackupStore{S3: &from}, Namespace: "a", Name: "b",
	}}}
	if err := in.admin.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	edits := rule(v1alpha1.GroupVersion.Group, "etcdclusters", []string{"update"})
	editor := in.userWith(t, "editor", edits)
	reader := in.userWith(t, "reader", edits, rule("", "secrets", []string{"get"}, "to-credentials", "to-ca", "to-sse"))
	update := func(as client.Client, change func(*v1alpha1.EtcdCluster, *v1alpha1.S3Store)) func() error {
		changed := cluster.DeepCopy()
		change(changed, changed.Spec.Backup.Store.S3)
		return func() error { return as.Update(t.Context(), changed.DeepCopy(), client.DryRunAll) }
	}
	elsewhere := func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.Endpoint = "https://attacker.example.com" }
	inForce(t, "druid-clusters", update(editor, func(c *v1alpha1.EtcdCluster, _ *v1alpha1.S3Store) {
		c.Spec.Backup.Encryption.KeySecretRef.Name = "foreign"
	}))
	for what, change := range map[string]func(*v1alpha1.EtcdCluster, *v1alpha1.S3Store){
		"another endpoint":  elsewhere,
		"no endpoint":       func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.Endpoint = "" },
		"another bucket":    func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.Bucket = "attackers" },
		"another region":    func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.Region = "us-west-1" },
		"another authority": func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.CASecretRef.Key = "attackers.crt" },
		"no authority":      func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.CASecretRef = nil },
		"the key alone, at another endpoint": func(c *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) {
			elsewhere(c, s)
			s.CredentialsSecretRef, s.CASecretRef = nil, nil
		},
		"the credentials alone, at another endpoint": func(c *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) {
			elsewhere(c, s)
			s.SSE, s.CASecretRef = nil, nil
		},
		"the Secrets of the restore, at its own place": func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.SSE.KeySecretRef.Name = "from-sse" },
		"the store of the restore, at another endpoint": func(c *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) {
			*s = bucket("from-")
			elsewhere(c, s)
		},
		"the key of its own encryption as that of the store": func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.SSE.KeySecretRef.Name = "to-keys" },
	} {
		answered(t, "druid-clusters", "update with "+what, true, update(editor, change))
	}
	for what, change := range map[string]func(*v1alpha1.EtcdCluster, *v1alpha1.S3Store){
		"more members":             func(c *v1alpha1.EtcdCluster, _ *v1alpha1.S3Store) { c.Spec.Replicas = 5 },
		"another prefix":           func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.Prefix = "etcd" },
		"no key":                   func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { s.SSE = nil },
		"the store of the restore": func(_ *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) { *s = bucket("from-") },
		"no Secret, at another endpoint": func(c *v1alpha1.EtcdCluster, s *v1alpha1.S3Store) {
			elsewhere(c, s)
			s.SSE, s.CASecretRef, s.CredentialsSecretRef = nil, nil, nil
		},
	} {
		answered(t, "druid-clusters", "update with "+what, false, update(editor, change))
	}
	answered(t, "druid-clusters", "update with another endpoint by the reader of its Secrets", false, update(reader, elsewhere))
}
