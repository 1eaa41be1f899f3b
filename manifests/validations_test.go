package manifests

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/test/env"
)

// userWith returns a client of a user that has these permissions in the namespace of the cluster.
func (in *installed) userWith(t *testing.T, name string, rules ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	user := name + "-" + in.cluster.Namespace
	meta := metav1.ObjectMeta{Namespace: in.cluster.Namespace, Name: name}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}
	binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for _, object := range []client.Object{&rbacv1.Role{ObjectMeta: meta, Rules: rules}, binding} {
		if err := in.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return clientAs(t, in.config, user)
}

func rule(group, resource string, verbs []string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs, ResourceNames: names}
}

// answered waits until the permissions of the user are in effect, and checks that the policy then refuses the request, or that the API server accepts it.
func answered(t *testing.T, policy, what string, refused bool, request func() error) {
	t.Helper()
	await(t, what+" has no answer", func() (bool, error) {
		err := request()
		denied := err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
		switch {
		case err == nil && refused:
			t.Errorf("%s is accepted, want a refusal by %s", what, policy)
		case denied && !refused:
			t.Errorf("%s: %v", what, err)
		case err != nil && !denied && !apierrors.IsForbidden(err):
			t.Fatalf("%s: %v", what, err)
		}
		return err == nil || denied, err
	})
}

// A stolen token of druid makes no Secrets but those of an EtcdCluster, with its label and its owner, and changes none that cert-manager issued.
func TestATokenOfDruidForgesNoSecrets(t *testing.T) {
	in := install(t, env.APIServer(t))
	secret := func(name string, change func(*corev1.Secret)) *corev1.Secret {
		s := TLSSecret(in.cluster, name, PairData(pki.Pair{}))
		change(s)
		return s
	}
	foreign := secret("foreign", func(s *corev1.Secret) { s.Labels, s.OwnerReferences = nil, nil })
	issued := secret("demo-agent-tls", func(s *corev1.Secret) {
		s.OwnerReferences = nil
		s.Annotations = map[string]string{AnnotationCertificateName: s.Name}
	})
	for _, s := range []*corev1.Secret{foreign, issued} {
		if err := in.admin.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	create := func(s *corev1.Secret) func() error {
		return func() error { return in.druid.Create(t.Context(), s.DeepCopy(), client.DryRunAll) }
	}
	inForce(t, "druid-secrets", create(secret("any", func(s *corev1.Secret) { s.OwnerReferences = nil })))
	for what, change := range map[string]func(*corev1.Secret){
		"a token of a ServiceAccount": func(s *corev1.Secret) {
			s.Type, s.Data, s.Annotations = corev1.SecretTypeServiceAccountToken, nil, map[string]string{corev1.ServiceAccountNameKey: "default"}
		},
		"a Secret of no type":                    func(s *corev1.Secret) { s.Type = "" },
		"a Secret without the label":             func(s *corev1.Secret) { delete(s.Labels, labelManagedBy) },
		"a Secret of no owner":                   func(s *corev1.Secret) { s.OwnerReferences = nil },
		"a Secret of another kind of owner":      func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "ConfigMap" },
		"a Secret of an owner of another API":    func(s *corev1.Secret) { s.OwnerReferences[0].APIVersion = "example.com/v1" },
		"a Secret of an owner that no more owns": func(s *corev1.Secret) { s.OwnerReferences[0].Controller = nil },
		"a Secret of an unknown version":         func(s *corev1.Secret) { s.OwnerReferences[0].APIVersion = "etcd.druid.dev/v9" },
		"a Secret with a finalizer":              func(s *corev1.Secret) { s.Finalizers = []string{"example.com/hold"} },
		"a Secret of two owners":                 func(s *corev1.Secret) { s.OwnerReferences = append(s.OwnerReferences, otherOwner) },
		"a Secret of another name":               func(s *corev1.Secret) { s.Name = "forged" },
		"a Secret of another use":                func(s *corev1.Secret) { s.Name = "demo-passwords" },
		"a Secret of another cluster":            func(s *corev1.Secret) { s.Name = "bank-connection" },
	} {
		answered(t, "druid-secrets", "create "+what, true, create(secret("demo-connection", change)))
	}
	for _, name := range []string{"demo-connection", "demo-client-tls", "demo-client-ca-1", "demo-client-kine", "demo-peer-tls", "demo-peer-ca-12"} {
		answered(t, "druid-secrets", "create Secret "+name, false, create(secret(name, func(*corev1.Secret) {})))
	}
	shared := secret("demo-agent-tls-of-others", func(s *corev1.Secret) { s.OwnerReferences = append(s.OwnerReferences, otherOwner) })
	if err := in.admin.Create(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	answered(t, "druid-secrets", "change a Secret to which a user added an owner", false, in.patch(t, shared, types.MergePatchType, `{"data":{"tls.crt":"YQ=="}}`))
	answered(t, "druid-secrets", "add an owner to a Secret", true, in.patch(t, shared, types.StrategicMergePatchType, addsOwner))
	adopted := foreign.DeepCopy()
	adopted.Labels, adopted.OwnerReferences = secret("", func(*corev1.Secret) {}).Labels, secret("", func(*corev1.Secret) {}).OwnerReferences
	answered(t, "druid-secrets", "adopt a Secret of others with label and owner", true,
		func() error {
			return in.druid.Patch(t.Context(), adopted.DeepCopy(), client.MergeFrom(foreign), client.DryRunAll)
		})
	for what, patch := range map[string]string{
		"the data":        `{"data":{"tls.crt":"YQ=="}}`,
		"the labels":      `{"metadata":{"labels":{"app.kubernetes.io/name":null}}}`,
		"the annotations": `{"metadata":{"annotations":{"example.com/note":"x"}}}`,
		"the finalizers":  `{"metadata":{"finalizers":["example.com/hold"]}}`,
		"immutability":    `{"immutable":true}`,
	} {
		answered(t, "druid-secrets", "change "+what+" of a Secret that cert-manager issued", true, in.patch(t, issued, types.MergePatchType, patch))
	}
	answered(t, "druid-secrets", "read a Secret that cert-manager issued", false, in.patch(t, issued, types.MergePatchType, `{}`))
}

// certificateDefinition is the part of cert-manager's CustomResourceDefinition that a policy sees. The package test/certmanager has the real
// one, and imports this package.
func certificateDefinition() *unstructured.Unstructured {
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "certificates." + CertificateKind.Group},
		"spec": map[string]any{
			"group": CertificateKind.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": "certificates", "singular": "certificate", "kind": CertificateKind.Kind},
			"versions": []any{map[string]any{
				"name": CertificateKind.Version, "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": open},
			}},
		},
	}}
}

// A stolen token of druid makes cert-manager write no Secrets but those of an EtcdCluster.
func TestATokenOfDruidRequestsNoForeignCert(t *testing.T) {
	in := install(t, env.APIServer(t))
	if err := client.IgnoreAlreadyExists(in.admin.Create(t.Context(), certificateDefinition())); err != nil {
		t.Fatal(err)
	}
	certificate := func(name string) *unstructured.Unstructured {
		cluster := requesting()
		cluster.ObjectMeta = in.cluster.ObjectMeta
		all, err := CertManagerCertificates(cluster, PlaneClient, "cluster.local")
		if err != nil {
			t.Fatal(err)
		}
		fields, err := tree(all[0].Configuration)
		if err != nil {
			t.Fatal(err)
		}
		c := &unstructured.Unstructured{Object: fields}
		c.SetName(name)
		if err := unstructured.SetNestedField(c.Object, name, "spec", "secretName"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	create := func(c *unstructured.Unstructured) func() error {
		return func() error { return in.druid.Create(t.Context(), c.DeepCopy(), client.DryRunAll) }
	}
	foreign := certificate("demo-client-a")
	foreign.SetOwnerReferences(nil)
	await(t, "the API server does not serve Certificates", func() (bool, error) {
		err := in.admin.Create(t.Context(), foreign)
		return err == nil, err
	})
	inForce(t, "druid-certificates", create(certificate("foreign")))
	for _, name := range []string{
		"demo-client-tls", "demo-agent-tls", "demo-client-kine", "demo-connection", "demo-peer-tls", "demo-peer-client-tls",
	} {
		answered(t, "druid-certificates", "request "+name, false, create(certificate(name)))
	}
	for _, name := range []string{"foreign", "bank-client-tls", "demo-tls", "demo", "demo-database", "x-demo-client-tls"} {
		answered(t, "druid-certificates", "request a certificate for Secret "+name, true, create(certificate(name)))
	}
	owned := certificate("demo-connection")
	if err := in.druid.Create(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	owner := func(change func(*metav1.OwnerReference)) func(*unstructured.Unstructured) error {
		return func(c *unstructured.Unstructured) error {
			owners := c.GetOwnerReferences()
			change(&owners[0])
			c.SetOwnerReferences(owners)
			return nil
		}
	}
	for what, change := range map[string]func(*unstructured.Unstructured) error{
		"another Secret": func(c *unstructured.Unstructured) error {
			return unstructured.SetNestedField(c.Object, "foreign", "spec", "secretName")
		},
		"the same key": func(c *unstructured.Unstructured) error {
			return unstructured.SetNestedField(c.Object, "Never", "spec", "privateKey", "rotationPolicy")
		},
		"an authority": func(c *unstructured.Unstructured) error {
			return unstructured.SetNestedField(c.Object, true, "spec", "isCA")
		},
		"no owner":                       func(c *unstructured.Unstructured) error { c.SetOwnerReferences(nil); return nil },
		"an owner of another name":       owner(func(o *metav1.OwnerReference) { o.Name = "other" }),
		"an owner of an unknown version": owner(func(o *metav1.OwnerReference) { o.APIVersion = "etcd.druid.dev/v9" }),
		"another kind of owner":          owner(func(o *metav1.OwnerReference) { o.Kind = "ConfigMap" }),
		"a finalizer": func(c *unstructured.Unstructured) error {
			c.SetFinalizers([]string{"example.com/hold"})
			return nil
		},
		"two owners": func(c *unstructured.Unstructured) error {
			c.SetOwnerReferences(append(c.GetOwnerReferences(), otherOwner))
			return nil
		},
	} {
		for verb, c := range map[string]*unstructured.Unstructured{"create": certificate("demo-agent-tls"), "update": owned.DeepCopy()} {
			if err := change(c); err != nil {
				t.Fatal(err)
			}
			answered(t, "druid-certificates", verb+" a Certificate with "+what, true, func() error {
				if verb == "create" {
					return create(c)()
				}
				return in.druid.Patch(t.Context(), c.DeepCopy(), client.MergeFrom(owned), client.DryRunAll)
			})
		}
	}
	adopted := foreign.DeepCopy()
	adopted.SetOwnerReferences(owned.GetOwnerReferences())
	answered(t, "druid-certificates", "adopt a Certificate of others", true,
		func() error {
			return in.druid.Patch(t.Context(), adopted.DeepCopy(), client.MergeFrom(foreign), client.DryRunAll)
		})
}

// A user who may write Secrets, and not read them, adds no certificate authority, neither at once nor by a label later.
func TestOnlyReadersWriteAuthorities(t *testing.T) {
	in := install(t, env.APIServer(t))
	name := AuthorityName("demo", PlanePeer, 2)
	writes, owns := rule("", "secrets", []string{"create", "patch"}), rule(v1alpha1.GroupVersion.Group, "etcdclusters/finalizers", []string{"update"})
	writer, reader := in.userWith(t, "writer", writes, owns), in.userWith(t, "reader", writes, owns, rule("", "secrets", []string{"get"}, name))
	authority := TLSSecret(in.cluster, name, PairData(pki.Pair{}))
	unlabelled := authority.DeepCopy()
	unlabelled.Name = AuthorityName("demo", PlaneClient, 3)
	unlabelled.Labels = nil
	stored := authority.DeepCopy()
	stored.Name = AuthorityName("demo", PlaneClient, 1)
	for _, s := range []*corev1.Secret{unlabelled, stored} {
		if err := in.admin.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	change := func(c client.Client, s *corev1.Secret, patch string) func() error {
		return func() error {
			return c.Patch(t.Context(), s.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		}
	}
	planted := `{"data":{"tls.crt":"YQ=="}}`
	inForce(t, "druid-authorities", func() error { return writer.Create(t.Context(), authority.DeepCopy(), client.DryRunAll) })
	answered(t, "druid-authorities", "create an authority as its reader", false,
		func() error { return reader.Create(t.Context(), authority.DeepCopy(), client.DryRunAll) })
	answered(t, "druid-authorities", "change an authority", true, change(writer, stored, planted))
	answered(t, "druid-authorities", "change an authority as the reader of another", true, change(reader, stored, planted))
	answered(t, "druid-authorities", "take the label of an authority away", true, change(writer, stored, `{"metadata":{"labels":null}}`))
	answered(t, "druid-authorities", "make a Secret an authority by the label", true,
		change(writer, unlabelled, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"druid"}}}`))
	answered(t, "druid-authorities", "change a Secret of no label", false, change(writer, unlabelled, planted))
}

// Each right that an EtcdSnapshot with its own store needs is needed by itself.
func TestAnEtcdSnapshotNeedsEachRight(t *testing.T) {
	in := install(t, env.APIServer(t))
	bucket := ownStore(in.cluster)
	bucket.ObjectMeta = metav1.ObjectMeta{Name: "bucket", Namespace: in.cluster.Namespace}
	bucket.Spec.Store.S3.SSE = &v1alpha1.S3Encryption{Mode: v1alpha1.SSECustomerKey, KeySecretRef: &v1alpha1.SecretKeyRef{Name: "own-sse", Key: "key"}}
	claim := bucket.DeepCopy()
	claim.Spec.Encryption = nil
	claim.Spec.Store = &v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "archive"}}
	rights := map[string]rbacv1.PolicyRule{
		"cluster": rule(v1alpha1.GroupVersion.Group, "etcdclusters", []string{"update"}, in.cluster.Name),
		"claim":   rule("", "persistentvolumeclaims", []string{"update"}, "archive"),
	}
	for _, name := range []string{"own-credentials", "own-ca", "own-sse", "own-keys"} {
		rights[name] = rule("", "secrets", []string{"get"}, name)
	}
	user := func(lacks string) client.Client {
		rules := []rbacv1.PolicyRule{rule(v1alpha1.GroupVersion.Group, "etcdsnapshots", []string{"create"})}
		for name, r := range rights {
			if name != lacks {
				rules = append(rules, r)
			}
		}
		return in.userWith(t, "lacks-"+lacks, rules...)
	}
	inForce(t, "druid-snapshots", func() error { return user("cluster").Create(t.Context(), bucket.DeepCopy(), client.DryRunAll) })
	all := user("nothing")
	for _, snapshot := range []*v1alpha1.EtcdSnapshot{bucket, claim} {
		answered(t, "druid-snapshots", "create with all rights", false, func() error { return all.Create(t.Context(), snapshot.DeepCopy(), client.DryRunAll) })
	}
	for lacks := range rights {
		if lacks == "cluster" {
			continue
		}
		as, snapshot := user(lacks), bucket
		if lacks == "claim" {
			snapshot = claim
		}
		answered(t, "druid-snapshots", "create without the right to "+lacks, true,
			func() error { return as.Create(t.Context(), snapshot.DeepCopy(), client.DryRunAll) })
	}
}

// The annotations on an EtcdCluster name members, and keep volumes only where there are some.
func TestAnnotationsOfEtcdClusterNameMembers(t *testing.T) {
	in := install(t, env.APIServer(t))
	made := func(name string, change func(*v1alpha1.EtcdCluster)) *v1alpha1.EtcdCluster {
		cluster := plain()
		cluster.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: in.cluster.Namespace}
		change(cluster)
		if err := in.admin.Create(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		status := `{"status":{"members":[{"name":"` + member + `","status":"Ready"}]}}`
		if err := in.admin.Status().Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	annotate := func(cluster *v1alpha1.EtcdCluster, key, value string) func() error {
		patch := `{"metadata":{"annotations":{"etcd.druid.dev/` + key + `":"` + value + `"}}}`
		return func() error {
			return in.admin.Patch(t.Context(), cluster.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		}
	}
	volumes, memory := made("volumes", func(*v1alpha1.EtcdCluster) {}), made("memory", inMemory)
	await(t, "druid-clusters is not in force", func() (bool, error) {
		return annotate(volumes, "replace", "other")() != nil, errors.New("it accepts any name")
	})
	for _, key := range []string{"leave-first", "replace", "keep-volume"} {
		answered(t, "druid-clusters", key+" with the name of a member", false, annotate(volumes, key, member))
		answered(t, "druid-clusters", key+" with another name", true, annotate(volumes, key, "other"))
	}
	answered(t, "druid-clusters", "keep-volume with one other name", true, annotate(volumes, "keep-volume", member+",other"))
	answered(t, "druid-clusters", "keep-volume where there is none", true, annotate(memory, "keep-volume", member))
}

// Each right that an EtcdCluster needs is needed by itself.
func TestAnEtcdClusterNeedsEachRight(t *testing.T) {
	in := install(t, env.APIServer(t))
	edits := rule(v1alpha1.GroupVersion.Group, "etcdclusters", []string{"create", "update"})
	bucket := func(prefix string) *v1alpha1.BackupStore {
		return &v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
			Bucket: "backups", Region: "us-east-1", Endpoint: "https://s3.example.com",
			CredentialsSecretRef: &v1alpha1.SecretRef{Name: prefix + "credentials"}, CASecretRef: &v1alpha1.SecretKeyRef{Name: prefix + "ca", Key: "ca.crt"},
			SSE: &v1alpha1.S3Encryption{Mode: v1alpha1.SSECustomerKey, KeySecretRef: &v1alpha1.SecretKeyRef{Name: prefix + "sse", Key: "key"}},
		}}
	}
	stores := func(to, from *v1alpha1.BackupStore) func(*v1alpha1.EtcdCluster) {
		return func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup = &v1alpha1.BackupSpec{Store: *to}
			c.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{Store: from, Namespace: "a", Name: "b"}}}
		}
	}
	secrets := func(c *v1alpha1.EtcdCluster) {
		stores(bucket("to-"), bucket("from-"))(c)
		c.Spec.Backup.Encryption = &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "to-keys"}}
		c.Spec.Bootstrap.Restore.From.Encryption = &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "from-keys"}}
		c.Spec.TLS = &v1alpha1.TLSSpec{
			Client: &v1alpha1.ClientTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "client", ClientName: "client-client"}},
			Peer:   &v1alpha1.PeerTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "peer", ClientName: "peer-client"}},
		}
		c.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: "passwords"}}
	}
	directory := func(d v1alpha1.DirectoryStore) *v1alpha1.BackupStore { return &v1alpha1.BackupStore{Directory: &d} }
	names := []string{"to-credentials", "to-ca", "to-sse", "to-keys", "from-credentials", "from-ca", "from-sse", "from-keys", "passwords",
		"client", "client-client", "peer", "peer-client"}
	type request struct {
		spec  func(*v1alpha1.EtcdCluster)
		needs map[string]rbacv1.PolicyRule
	}
	claims := map[string]rbacv1.PolicyRule{}
	for _, name := range []string{"to-claim", "from-claim"} {
		claims[name] = rule("", "persistentvolumeclaims", []string{"update"}, name)
	}
	requests := []request{
		{secrets, map[string]rbacv1.PolicyRule{}},
		{stores(directory(v1alpha1.DirectoryStore{ClaimName: "to-claim"}), directory(v1alpha1.DirectoryStore{ClaimName: "from-claim"})), claims},
		{stores(directory(v1alpha1.DirectoryStore{HostPath: "/srv/a"}), directory(v1alpha1.DirectoryStore{HostPath: "/srv/b"})),
			map[string]rbacv1.PolicyRule{"pods": rule("", "pods", []string{"create"})}},
		{func(c *v1alpha1.EtcdCluster) {
			c.Spec.TLS = &v1alpha1.TLSSpec{Peer: &v1alpha1.PeerTLS{CertManager: &v1alpha1.CertManagerTLS{IssuerRef: v1alpha1.CertManagerIssuer{Name: "i"}}}}
		}, map[string]rbacv1.PolicyRule{"certificates": rule("cert-manager.io", "certificates", []string{"create"})}},
	}
	for _, name := range names {
		requests[0].needs[name] = rule("", "secrets", []string{"get"}, name)
	}
	create := func(as client.Client, r request) func() error {
		cluster := plain()
		cluster.ObjectMeta = metav1.ObjectMeta{Name: "new", Namespace: in.cluster.Namespace}
		r.spec(cluster)
		return func() error { return as.Create(t.Context(), cluster.DeepCopy(), client.DryRunAll) }
	}
	editor := in.userWith(t, "editor", edits)
	inForce(t, "druid-clusters", create(editor, requests[1]))
	mounts := in.userWith(t, "mounts", edits, rule("", "pods", []string{"create"}))
	answered(t, "druid-clusters", "create with a directory of the node in a namespace without the label", true, create(mounts, requests[2]))
	in.allowHostPath(t, in.cluster.Namespace)
	for _, r := range requests {
		all := []rbacv1.PolicyRule{edits}
		for lacks := range r.needs {
			all = append(all, r.needs[lacks])
			rules := []rbacv1.PolicyRule{edits}
			for name := range r.needs {
				if name != lacks {
					rules = append(rules, r.needs[name])
				}
			}
			answered(t, "druid-clusters", "create without the right to "+lacks, true, create(in.userWith(t, "lacks-"+lacks, rules...), r))
		}
		some := slices.Sorted(maps.Keys(r.needs))[0]
		answered(t, "druid-clusters", "create with all rights", false, create(in.userWith(t, "has-"+some, all...), r))
	}
}
