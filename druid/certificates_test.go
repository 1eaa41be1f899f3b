package druid

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// createSecured creates a cluster called demo, of one member, whose certificates druid issues.
func (s *stage) createSecured() {
	s.Helper()
	cluster := s.newCluster("demo", 1)
	cluster.Spec.TLS = &v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}}, Peer: &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}}}
	if err := s.Create(s.Context(), cluster); err != nil {
		s.Fatal(err)
	}
}

// issued says what is missing of the Secrets of both planes.
func (s *stage) issued() error {
	var errs []error
	for _, name := range []string{
		manifests.AuthorityName("demo", manifests.PlaneClient, 1), manifests.AuthorityName("demo", manifests.PlanePeer, 1),
		manifests.CertificatesName("demo", manifests.PlaneClient), manifests.CertificatesName("demo", manifests.PlanePeer), manifests.ConnectionName("demo"),
	} {
		errs = append(errs, s.fetch(name, &corev1.Secret{}))
	}
	return errors.Join(errs...)
}

// secret waits for a Secret of the cluster that is not as before.
func (s *stage) secret(name, before string) corev1.Secret {
	s.Helper()
	var secret corev1.Secret
	s.eventually("Secret "+name, func() error {
		if err := s.fetch(name, &secret); err != nil {
			return err
		}
		if secret.ResourceVersion == before {
			return errors.New("it is as before")
		}
		return nil
	})
	return secret
}

// reportCertificates is what the agents report when they use what the Secrets contain.
func (s *stage) reportCertificates(names []string, problem string) {
	s.Helper()
	secret := s.secret(manifests.CertificatesName("demo", manifests.PlaneClient), "")
	authorities, err := pki.Bundle(secret.Data[manifests.KeyAuthorities])
	if err != nil {
		s.Fatal(err)
	}
	plane := leases.TLSPlane{Trusted: pki.Fingerprint(authorities[0]), NotAfter: time.Now().Add(time.Hour).Truncate(time.Second), Problem: problem}
	peer := plane
	peer.Trusted, peer.Problem = "", ""
	for _, name := range names {
		patch := leases.MemberPatch{Member: leases.Member{TLS: leases.TLS{}.With("client", plane).With("peer", peer)}}
		s.eventually("report "+name, func() error {
			_, err := s.store("demo").PatchMember(s.Context(), name, patch)
			return err
		})
	}
}

func TestDruidIssuesCertificatesAndRestsThen(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createSecured()
	names := s.members("demo", 1)
	for _, plane := range []manifests.Plane{manifests.PlaneClient, manifests.PlanePeer} {
		s.checkIssued(plane)
	}
	s.form("demo", names)
	s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending)
	s.reportCertificates(names, "")
	s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid)
	s.eventually("the status shows the certificates", func() error {
		var c v1alpha1.EtcdCluster
		if err := s.fetch("demo", &c); err != nil {
			return err
		}
		if want := "https://demo-client." + s.namespace + ".svc:2379"; !slices.Equal(c.Status.Endpoints, []string{want}) {
			return fmt.Errorf("endpoints are %q, want %s", c.Status.Endpoints, want)
		}
		if c.Status.TLS == nil || c.Status.TLS.Client.Authority == "" || c.Status.TLS.Peer.AuthorityNotAfter == nil || c.Status.TLS.Client.NotAfter == nil {
			return fmt.Errorf("status.tls is %+v", c.Status.TLS)
		}
		return nil
	})
	s.reportCertificates(names, "tls.key is missing; add it")
	c := s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonCertificatesRejected)
	if !strings.Contains(c.Message, names[0]) || !strings.Contains(c.Message, "tls.key is missing") {
		t.Errorf("the message is %q", c.Message)
	}
	s.eventually("druid makes no calls", func() error {
		n := s.calls.count()
		<-time.After(restTime)
		if calls := s.calls.since(n); len(calls) > 0 {
			return fmt.Errorf("%q", calls)
		}
		return nil
	})
	if calls := s.calls.matching("GET", "/secrets"); len(calls) > 0 {
		t.Errorf("druid reads Secrets: %q", calls)
	}
}

// checkIssued checks the Secrets of a plane, which exist before the Pods.
func (s *stage) checkIssued(plane manifests.Plane) {
	s.Helper()
	authority, secret := s.secret(manifests.AuthorityName("demo", plane, 1), ""), s.secret(manifests.CertificatesName("demo", plane), "")
	if authority.Immutable == nil || !*authority.Immutable {
		s.Errorf("the authority of plane %s can be changed", plane)
	}
	for _, made := range []corev1.Secret{authority, secret} {
		if made.Type != corev1.SecretTypeTLS || len(made.OwnerReferences) != 1 || made.OwnerReferences[0].Name != "demo" {
			s.Errorf("Secret %s is of type %s and owned by %v", made.Name, made.Type, made.OwnerReferences)
		}
	}
	trusted, err := pki.Bundle(secret.Data[manifests.KeyAuthorities])
	if err != nil {
		s.Fatal(err)
	}
	host := "demo-aaaaa.demo-peer." + s.namespace + ".svc"
	if _, err := pki.Check(pairIn(&secret), trusted, pki.Needs{Server: true, Client: true, Names: []string{host}}, time.Now()); err != nil {
		s.Errorf("the server certificate of plane %s: %v", plane, err)
	}
	client := pki.Pair{Certificate: secret.Data[manifests.KeyClient], Key: secret.Data[manifests.KeyClientKey]}
	if _, err := pki.Check(client, trusted, pki.Needs{Client: true}, time.Now()); err != nil {
		s.Errorf("the client certificate of plane %s: %v", plane, err)
	}
	if plane == manifests.PlanePeer {
		return
	}
	connection := s.secret(manifests.ConnectionName("demo"), "")
	if _, err := pki.Check(pairIn(&connection), trusted, pki.Needs{Client: true}, time.Now()); err != nil {
		s.Errorf("the certificate for clients: %v", err)
	}
	if string(connection.Data[manifests.KeyEndpoints]) != "https://demo-client."+s.namespace+".svc:2379" ||
		string(connection.Data[manifests.KeyAuthorities]) != string(secret.Data[manifests.KeyAuthorities]) ||
		string(connection.Data[manifests.KeyType]) != "etcd" {
		s.Errorf("Secret %s has the endpoints %q and the type %q", connection.Name, connection.Data[manifests.KeyEndpoints], connection.Data[manifests.KeyType])
	}
	if binding := s.cluster().Status.Binding; binding == nil || binding.Name != connection.Name {
		s.Errorf("status.binding is %v", binding)
	}
}

// TestEditedNamesIssueCertificates: an edit of the names issues new certificates.
// A name that is added is in the next certificate, by the same authority, and no Pod is replaced for it.
func TestEditedNamesIssueCertificates(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createSecured()
	names := s.members("demo", 1)
	s.form("demo", names)
	pods := s.uids(names, &corev1.Pod{})
	before := s.secret(manifests.CertificatesName("demo", manifests.PlaneClient), "")
	var cluster v1alpha1.EtcdCluster
	s.edit("demo", &cluster, func() { cluster.Spec.TLS.Client.ExtraSANs = []string{"etcd.example.com"} })
	after := s.secret(before.Name, before.ResourceVersion)
	if string(after.Data[manifests.KeyAuthorities]) != string(before.Data[manifests.KeyAuthorities]) {
		t.Error("the authority changed")
	}
	leaf, err := pki.Leaf(pairIn(&after))
	if err != nil || leaf.VerifyHostname("etcd.example.com") != nil {
		t.Errorf("the new certificate is for %v (%v)", leaf.DNSNames, err)
	}
	if now := s.uids(names, &corev1.Pod{}); now[names[0]] != pods[names[0]] {
		t.Error("the Pod was replaced")
	}
}

// A client that is added gets a Secret of its own, and the certificates of the others stay as they are valid.
func TestEachClientHasACertificateOfItsOwn(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createSecured()
	s.members("demo", 1)
	s.secret(manifests.ConnectionName("demo"), "")
	var cluster v1alpha1.EtcdCluster
	s.edit("demo", &cluster, func() {
		cluster.Spec.TLS.Client.Clients = []v1alpha1.TLSClient{{Name: "kine", CommonName: "kine", Organizations: []string{"apps"}}}
	})
	made := s.secret("demo-client-kine", "")
	leaf, err := pki.Leaf(pairIn(&made))
	if err != nil || leaf.Subject.CommonName != "kine" || !slices.Equal(leaf.Subject.Organization, []string{"apps"}) {
		t.Errorf("the certificate is for %v (%v)", leaf.Subject, err)
	}
	s.eventually("druid issues nothing more", func() error {
		before := s.secret(made.Name, "")
		<-time.After(restTime)
		if after := s.secret(made.Name, ""); after.ResourceVersion != before.ResourceVersion {
			return errors.New("the Secret was written again")
		}
		return nil
	})
}

// What someone damaged in the Secret of the members is issued again, and an authority that someone added is not trusted.
func TestADamagedSecretIsIssuedAgain(t *testing.T) {
	for name, damage := range map[string]map[string][]byte{
		"the key of the agents":        {manifests.KeyClientKey: []byte("none")},
		"the authority":                {manifests.KeyAuthorities: []byte("none")},
		"the certificate":              {corev1.TLSCertKey: []byte("none")},
		"an authority of someone else": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			stop := s.startDruid()
			s.createSecured()
			s.members("demo", 1)
			s.secret(manifests.ConnectionName("demo"), "")
			secret := s.secret(manifests.CertificatesName("demo", manifests.PlaneClient), "")
			stop()
			good := secret.Data[manifests.KeyAuthorities]
			maps.Copy(secret.Data, damage)
			if damage == nil {
				pair, err := pki.NewAuthority("someone", time.Now(), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				secret.Data[manifests.KeyAuthorities] = slices.Concat(good, pair.Certificate)
			}
			if err := s.Update(t.Context(), &secret); err != nil {
				t.Fatal(err)
			}
			s.startDruid()
			after := s.secret(secret.Name, secret.ResourceVersion)
			if string(after.Data[manifests.KeyAuthorities]) != string(good) {
				t.Error("the authorities are not the cluster's")
			}
			s.checkIssued(manifests.PlaneClient)
		})
	}
}

// TestOldClientSecretGetsType: the Secret for clients that an earlier version of druid wrote gets the type.
func TestOldClientSecretGetsType(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	s.createSecured()
	s.members("demo", 1)
	secret := s.secret(manifests.ConnectionName("demo"), "")
	stop()
	delete(secret.Data, manifests.KeyType)
	if err := s.Update(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	s.startDruid()
	after := s.secret(secret.Name, secret.ResourceVersion)
	if string(after.Data[manifests.KeyType]) != manifests.ConnectionType {
		t.Errorf("the type is %q", after.Data[manifests.KeyType])
	}
}

// TestForeignClientSecretBlocksNoOther: a foreign Secret of a client hinders no other.
// The Secret of a client that belongs to someone else does not keep druid from renewing the certificates of the members.
func TestForeignClientSecretBlocksNoOther(t *testing.T) {
	s := newStage(t)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: manifests.ConnectionName("demo")}}
	if err := s.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.startDruid()
	s.createSecured()
	s.members("demo", 1)
	s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonObjectNotOwned)
	before := s.secret(manifests.CertificatesName("demo", manifests.PlaneClient), "")
	var cluster v1alpha1.EtcdCluster
	s.edit("demo", &cluster, func() { cluster.Spec.TLS.Client.ExtraSANs = []string{"etcd.example.com"} })
	s.secret(before.Name, before.ResourceVersion)
	s.checkForeign(foreign)
}

// TestSecretlessPlaneKeepsAuthority: a plane without Secrets gets no other authority.
// If all Secrets of a plane are lost, no Secret has certificates that the members trust, and druid makes no others.
func TestSecretlessPlaneKeepsAuthority(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	s.createSecured()
	names := s.members("demo", 1)
	s.form("demo", names)
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonQuorate)
	stop()
	lost := manifests.AuthorityName("demo", manifests.PlaneClient, 1)
	for _, secret := range []string{lost, manifests.CertificatesName("demo", manifests.PlaneClient), manifests.ConnectionName("demo")} {
		if err := s.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: secret}}); err != nil {
			t.Fatal(err)
		}
	}
	s.startDruid()
	c := s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonAuthorityLost)
	if !strings.Contains(c.Message, lost) {
		t.Errorf("the message does not name the Secret: %s", c.Message)
	}
	if err := s.fetch(manifests.CertificatesName("demo", manifests.PlaneClient), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("other certificates were issued (%v)", err)
	}
}

// With the admission policy of the installation, druid touches no Secret of anyone else, and makes no token.
func TestDruidTouchesNoOtherSecrets(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	druid := s.as(druidUser, serviceAccounts...)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.namespace, Name: name} }
	foreign := &corev1.Secret{ObjectMeta: meta(manifests.CertificatesName("demo", manifests.PlaneClient)), Data: map[string][]byte{"password": []byte("planted")}}
	if err := s.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.eventually("the policy is in force", func() error {
		err := druid.Patch(t.Context(), &corev1.Secret{ObjectMeta: meta(foreign.Name)}, emptyPatch)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("druid reads a Secret of someone else: %w", err)
		}
		return nil
	})
	token := &corev1.Secret{ObjectMeta: meta("token"), Type: corev1.SecretTypeServiceAccountToken}
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	adopt := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"druid"}}}`))
	for name, err := range map[string]error{
		"create a token":    druid.Create(t.Context(), token),
		"create any Secret": druid.Create(t.Context(), &corev1.Secret{ObjectMeta: meta("any"), Type: corev1.SecretTypeTLS, Data: manifests.PairData(pki.Pair{})}),
		"adopt a Secret":    druid.Patch(t.Context(), &corev1.Secret{ObjectMeta: meta(foreign.Name)}, adopt),
		"get a Secret":      druid.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: foreign.Name}, &corev1.Secret{}),
		"list Secrets":      druid.List(t.Context(), &corev1.SecretList{}, client.InNamespace(s.namespace)),
		"delete a Secret":   druid.Delete(t.Context(), &corev1.Secret{ObjectMeta: meta(foreign.Name)}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want Forbidden", name, err)
		}
	}
	s.readsWhatCertManagerIssued(druid)
	s.startDruid()
	s.createSecured()
	c := s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonObjectNotOwned)
	if !strings.Contains(c.Message, foreign.Name) {
		t.Errorf("the message does not name the Secret: %s", c.Message)
	}
	s.checkForeign(foreign)
	if err := s.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.secret(foreign.Name, "") // and it goes on by itself
}

// readsWhatCertManagerIssued tries to read Secrets to which cert-manager added a certificate.
func (s *stage) readsWhatCertManagerIssued(druid client.Client) {
	s.Helper()
	pair := manifests.PairData(pki.Pair{})
	for name, c := range map[string]struct {
		kind    corev1.SecretType
		more    string
		issued  string
		allowed bool
	}{
		"issued":       {corev1.SecretTypeTLS, "ca.crt", "issued", true},
		"opaque":       {corev1.SecretTypeOpaque, "ca.crt", "opaque", false},
		"more":         {corev1.SecretTypeTLS, "password", "more", false},
		"another-name": {corev1.SecretTypeTLS, "ca.crt", "mine", false},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name, Labels: manifests.Labels("demo"), Annotations: map[string]string{manifests.AnnotationCertificateName: c.issued},
		}, Type: c.kind, Data: maps.Clone(pair)}
		secret.Data[c.more] = []byte("planted")
		if err := s.Create(s.Context(), secret); err != nil {
			s.Fatal(err)
		}
		err := druid.Patch(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, emptyPatch)
		if c.allowed && err != nil || !c.allowed && !apierrors.IsForbidden(err) {
			s.Errorf("druid reads Secret %s: allowed should be %t: %v", name, c.allowed, err)
		}
	}
}

// Who may create Secrets and not read them gets no authority of their own trusted.
func TestOnlyWhoMayReadAnAuthorityWritesOne(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	s.createSecured()
	cluster := s.cluster()
	pair, err := pki.NewAuthority("planted", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	planted := func(name string) *corev1.Secret { return manifests.TLSSecret(cluster, name, manifests.PairData(pair)) }
	writes := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}}
	finalizes := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters/finalizers"}, Verbs: []string{"update"}}
	reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}
	writer := s.userWith("writer", "writer-"+s.namespace, writes, finalizes)
	reader := s.userWith("reader", "reader-"+s.namespace, writes, finalizes, reads)
	authority := manifests.AuthorityName("demo", manifests.PlaneClient, 2)
	s.eventually("the policy is in force", func() error {
		if err := writer.Create(t.Context(), planted(authority), client.DryRunAll); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "only if you may get it") {
			return fmt.Errorf("plant an authority: %w", err)
		}
		return nil
	})
	generated := planted("")
	generated.GenerateName = strings.TrimSuffix(authority, "2")
	if err := writer.Create(t.Context(), generated, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("the API server draws the name of an authority: %v", err)
	}
	for name, create := range map[string]func() error{
		"another Secret of the user":         func() error { return writer.Create(t.Context(), planted("demo-app"), client.DryRunAll) },
		"restore an authority as its reader": func() error { return reader.Create(t.Context(), planted(authority), client.DryRunAll) },
	} {
		s.eventually(name, create)
	}
}

func (s *stage) checkForeign(foreign *corev1.Secret) {
	s.Helper()
	version := foreign.ResourceVersion
	if err := s.fetch(foreign.Name, foreign); err != nil || foreign.ResourceVersion != version {
		s.Errorf("the Secret of someone else was changed (%v)", err)
	}
}

// TestCertificatesDueAtThirdOfLifetime: certificates are due when a third of their lifetime is left.
func TestCertificatesDueAtThirdOfLifetime(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) *x509.Certificate { return &x509.Certificate{NotAfter: now.Add(d)} }
	for name, c := range map[string]struct {
		authority *x509.Certificate
		leaves    []*x509.Certificate
		due       bool
		left      time.Duration
	}{
		"new":                        {at(100 * time.Hour), []*x509.Certificate{at(90 * time.Minute)}, false, time.Hour},
		"a third is left":            {at(100 * time.Hour), []*x509.Certificate{at(30 * time.Minute)}, true, 0},
		"the second one is older":    {at(100 * time.Hour), []*x509.Certificate{at(90 * time.Minute), at(60 * time.Minute)}, false, 30 * time.Minute},
		"expired":                    {at(100 * time.Hour), []*x509.Certificate{at(-time.Minute)}, true, 0},
		"it ends with its authority": {at(20 * time.Minute), []*x509.Certificate{at(20 * time.Minute)}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if due, left := dueOf(c.leaves, c.authority, 90*time.Minute, now); due != c.due || left != c.left {
				t.Errorf("due is %t, left %s, want %t and %s", due, left, c.due, c.left)
			}
		})
	}
}

func TestClusterDomain(t *testing.T) {
	for name, c := range map[string]struct{ flag, resolver, want string }{
		"the flag":                {"example.org", "search ns.svc.cluster.local svc.cluster.local cluster.local\n", "example.org"},
		"the resolver of a Pod":   {"", "nameserver 10.0.0.10\nsearch ns.svc.k8s.example svc.k8s.example k8s.example\noptions ndots:5\n", "k8s.example"},
		"a resolver without it":   {"", "search example.com\n", "cluster.local"},
		"no resolver, not in Pod": {"", "", "cluster.local"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Options{ClusterDomain: c.flag}).clusterDomain(c.resolver); got != c.want {
				t.Errorf("the domain is %s, want %s", got, c.want)
			}
		})
	}
}
