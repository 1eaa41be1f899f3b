package druid

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// TestEtcdClusterUsesOnlyUserRights: an EtcdCluster uses only what its user may use.
// A user who may edit EtcdClusters gains no Secret and no claim by that.
func TestEtcdClusterUsesOnlyUserRights(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	s.allowHostPath(true)
	rule := func(group, resource string, verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs, ResourceNames: names}
	}
	edit := rule(v1alpha1.GroupVersion.Group, "etcdclusters", []string{"create", "update"})
	get := func(names ...string) rbacv1.PolicyRule { return rule("", "secrets", []string{"get"}, names...) }
	store := func(prefix string) v1alpha1.BackupStore {
		return v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
			Bucket: "backups", Region: "us-east-1", Endpoint: "https://s3.example.com",
			CredentialsSecretRef: &v1alpha1.SecretRef{Name: prefix + "credentials"}, CASecretRef: &v1alpha1.SecretKeyRef{Name: prefix + "ca", Key: "ca.crt"},
			SSE: &v1alpha1.S3Encryption{Mode: v1alpha1.SSECustomerKey, KeySecretRef: &v1alpha1.SecretKeyRef{Name: prefix + "sse", Key: "key"}},
		}}
	}
	keys := func(name string) *v1alpha1.BackupEncryption {
		return &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: name}}
	}
	named := func(name string) *v1alpha1.TLSSecretRef {
		return &v1alpha1.TLSSecretRef{Name: name, ClientName: name + "-client"}
	}
	everything := func(c *v1alpha1.EtcdCluster) {
		from := store("from-")
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: store("to-"), Encryption: keys("to-keys")}
		c.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{
			Store: &from, Encryption: keys("from-keys"), Namespace: "a", Name: "b",
		}}}
		c.Spec.TLS = &v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{SecretRef: named("client")}, Peer: &v1alpha1.PeerTLS{SecretRef: named("peer")}}
		c.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: "passwords"}}
	}
	pods := rule("", "pods", []string{"create"})
	onHost := func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{HostPath: "/var/backups"}}}
	}
	fromHost := func(c *v1alpha1.EtcdCluster) {
		c.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{
			Store: &v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{HostPath: "/var/backups"}}, Namespace: "a", Name: "b",
		}}}
	}
	joins := func(c *v1alpha1.EtcdCluster) {
		c.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{
			Endpoints: []v1alpha1.JoinEndpoint{"https://a:2379"}, TLS: &v1alpha1.JoinTLS{SecretRef: v1alpha1.SecretRef{Name: "source"}},
		}}
	}
	restored := func(c *v1alpha1.EtcdCluster) {
		c.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{
			Store: &v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "archive"}}, Namespace: "a", Name: "b",
		}}}
	}
	certificates := rule("cert-manager.io", "certificates", []string{"create"})
	issuer := &v1alpha1.CertManagerTLS{IssuerRef: v1alpha1.CertManagerIssuer{Name: "issuer"}}
	issued := func(c *v1alpha1.EtcdCluster) {
		c.Spec.TLS = &v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{CertManager: issuer, ExtraSANs: []string{"etcd.example.com"}}}
	}
	issuedToPeers := func(c *v1alpha1.EtcdCluster) {
		c.Spec.TLS = &v1alpha1.TLSSpec{Peer: &v1alpha1.PeerTLS{CertManager: issuer}}
	}
	const needsCertificates = "only if you may create Certificates"
	all := []string{
		"to-credentials", "to-ca", "to-sse", "to-keys", "from-credentials", "from-ca", "from-sse", "from-keys", "passwords",
		"client", "client-client", "peer", "peer-client",
	}
	cases := map[string]struct {
		rules []rbacv1.PolicyRule
		spec  func(*v1alpha1.EtcdCluster)
		says  string // empty: allowed
	}{
		"no Secret":                 {[]rbacv1.PolicyRule{edit}, func(*v1alpha1.EtcdCluster) {}, ""},
		"all Secrets":               {[]rbacv1.PolicyRule{edit, get(all...)}, everything, ""},
		"every Secret of the group": {[]rbacv1.PolicyRule{edit, get()}, everything, ""},
		"a Secret to join with":     {[]rbacv1.PolicyRule{edit, get(all...)}, joins, "only if you may get Secret source;"},
		"a Secret to join with that the user may get": {[]rbacv1.PolicyRule{edit, get("source")}, joins, ""},
		"a claim": {[]rbacv1.PolicyRule{edit}, func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "archive"}}}
		}, "only if you may update PersistentVolumeClaim archive"},
		"a claim that the user may update": {[]rbacv1.PolicyRule{edit, rule("", "persistentvolumeclaims", []string{"update"}, "archive")},
			func(c *v1alpha1.EtcdCluster) {
				c.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "archive"}}}
			}, ""},
		"a host path": {[]rbacv1.PolicyRule{edit}, onHost,
			"hostPath /var/backups in an EtcdCluster only if you may create Pods"},
		"a host path for who may create Pods": {[]rbacv1.PolicyRule{edit, pods}, onHost, ""},
		"a host path to restore from": {[]rbacv1.PolicyRule{edit}, fromHost,
			"hostPath /var/backups in an EtcdCluster only if you may create Pods"},
		"a host path to restore from, with that right":        {[]rbacv1.PolicyRule{edit, pods}, fromHost, ""},
		"a claim to restore from":                             {[]rbacv1.PolicyRule{edit}, restored, "only if you may update PersistentVolumeClaim archive"},
		"an issuer":                                           {[]rbacv1.PolicyRule{edit}, issued, needsCertificates},
		"an issuer for peers":                                 {[]rbacv1.PolicyRule{edit}, issuedToPeers, needsCertificates},
		"an issuer for who may create Certificates":           {[]rbacv1.PolicyRule{edit, certificates}, issued, ""},
		"an issuer for peers for who may create Certificates": {[]rbacv1.PolicyRule{edit, certificates}, issuedToPeers, ""},
		"a claim to restore from that the user may update": {
			[]rbacv1.PolicyRule{edit, rule("", "persistentvolumeclaims", []string{"update"}, "archive")}, restored, "",
		},
	}
	for i, lacks := range all {
		may := append(append([]string{}, all[:i]...), all[i+1:]...)
		cases["all Secrets but "+lacks] = struct {
			rules []rbacv1.PolicyRule
			spec  func(*v1alpha1.EtcdCluster)
			says  string
		}{[]rbacv1.PolicyRule{edit, get(may...)}, everything, "only if you may get Secret "}
	}
	// Before the policy is in effect, everything is allowed.
	nothing := s.userWith("nothing", "nothing-"+s.namespace, edit)
	refused := s.newCluster("other", 3)
	everything(refused)
	s.answers("the policy is in effect", "only if you may get Secret ", func() error { return nothing.Create(t.Context(), refused.DeepCopy(), client.DryRunAll) })

	n := 0
	for name, c := range cases {
		n++
		as := s.userWith(fmt.Sprintf("user-%d", n), fmt.Sprintf("user-%d-%s", n, s.namespace), c.rules...)
		created := s.newCluster("other", 3)
		c.spec(created)
		s.answers("create with "+name, c.says, func() error { return as.Create(t.Context(), created.DeepCopy(), client.DryRunAll) })
	}

	// What the spec names already is not asked for again, so others can edit the rest of it.
	s.createClusterWith("demo", func(c *v1alpha1.EtcdCluster) { c.Spec.Backup = &v1alpha1.BackupSpec{Store: store("to-")} })
	as := s.userWith("editor", "editor-"+s.namespace, edit, get("to-keys"))
	for name, c := range map[string]struct {
		spec func(*v1alpha1.EtcdCluster)
		says string
	}{
		"more members":       {func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = 5 }, ""},
		"a Secret of its":    {func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Encryption = keys("to-keys") }, ""},
		"a Secret of others": {func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Encryption = keys("from-keys") }, "only if you may get Secret from-keys;"},
		"an issuer": {func(c *v1alpha1.EtcdCluster) {
			c.Spec.TLS = &v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{CertManager: issuer}}
		}, needsCertificates},
		"a claim of others": {func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup.Store = v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "archive"}}
		}, "only if you may update PersistentVolumeClaim archive"},
		"a Secret of a name that it moves": {func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup.Encryption = keys("to-credentials")
		}, ""},
	} {
		s.answers("update with "+name, c.says, func() error {
			changed := &v1alpha1.EtcdCluster{}
			if err := s.fetch("demo", changed); err != nil {
				return err
			}
			c.spec(changed)
			return as.Update(t.Context(), changed, client.DryRunAll)
		})
	}

	s.createClusterWith("issued", issued)
	for name, c := range map[string]struct {
		spec func(*v1alpha1.EtcdCluster)
		says string
	}{
		"more members": {func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = 5 }, ""},
		"another name": {func(c *v1alpha1.EtcdCluster) { c.Spec.TLS.Client.ExtraSANs = []string{"bank.example.com"} }, needsCertificates},
		"another client": {func(c *v1alpha1.EtcdCluster) {
			c.Spec.TLS.Client.Clients = []v1alpha1.TLSClient{{Name: "a", CommonName: "admin"}}
		}, needsCertificates},
		"a new issuer":    {func(c *v1alpha1.EtcdCluster) { c.Spec.TLS.Peer = &v1alpha1.PeerTLS{CertManager: issuer} }, needsCertificates},
		"no names at all": {func(c *v1alpha1.EtcdCluster) { c.Spec.TLS.Client.ExtraSANs = nil }, needsCertificates},
	} {
		s.answers("update of an issued cluster with "+name, c.says, func() error {
			changed := &v1alpha1.EtcdCluster{}
			if err := s.fetch("issued", changed); err != nil {
				return err
			}
			c.spec(changed)
			return as.Update(t.Context(), changed, client.DryRunAll)
		})
	}
}

// answers waits until the API server allows the call, or forbids it with a message that contains says. The policy and the
// permissions take a moment.
func (s *stage) answers(what, says string, call func() error) {
	s.Helper()
	s.eventually(what, func() error {
		err := call()
		switch {
		case apierrors.IsInvalid(err):
			s.Fatal(err)
		case says == "":
			return err
		case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says):
			return fmt.Errorf("got %w, want Forbidden: %s", err, says)
		}
		return nil
	})
}
