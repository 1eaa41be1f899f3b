package druid

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/certmanager"
	"github.com/etcd-druid/druid/test/env"
)

// The Certificates of a cluster called demo with a client called kine.
var requestedNames = []string{"demo-client-tls", "demo-agent-tls", "demo-client-kine", "demo-connection", "demo-peer-tls", "demo-peer-client-tls"}

// createRequesting creates a cluster called demo, of one member, whose certificates cert-manager issues. It renews them after half a
// minute.
func (s *stage) createRequesting() {
	s.Helper()
	source := &v1alpha1.CertManagerTLS{
		IssuerRef: v1alpha1.CertManagerIssuer{Name: "issuer"}, LeafLifetime: &metav1.Duration{Duration: time.Hour},
		RenewBefore: &metav1.Duration{Duration: 59*time.Minute + 30*time.Second},
	}
	cluster := s.newCluster("demo", 1)
	cluster.Spec.TLS = &v1alpha1.TLSSpec{
		Client: &v1alpha1.ClientTLS{
			CertManager: source, ExtraSANs: []string{"etcd.example.com", "192.0.2.1"},
			Clients: []v1alpha1.TLSClient{{Name: "kine", CommonName: "kine", Organizations: []string{"apps"}}},
		},
		Peer: &v1alpha1.PeerTLS{CertManager: source},
	}
	if err := s.Create(s.Context(), cluster); err != nil {
		s.Fatal(err)
	}
}

func newCertificate(namespace, name string) *unstructured.Unstructured {
	c := &unstructured.Unstructured{}
	c.SetGroupVersionKind(manifests.CertificateKind)
	c.SetNamespace(namespace)
	c.SetName(name)
	return c
}

// certificatesRequested says which Certificates are missing.
func (s *stage) certificatesRequested() error {
	var errs []error
	for _, name := range requestedNames {
		errs = append(errs, s.fetch(name, newCertificate(s.namespace, name)))
	}
	return errors.Join(errs...)
}

// Without cert-manager druid says so, works on, and asks seldom. When cert-manager is there, it issues what members, agents, peers and
// clients need, and renews it with another key.
func TestCertManagerIssuesOnceItIsInstalled(t *testing.T) {
	t.Parallel()
	s := stageOn(t, env.OwnAPIServer(t))
	s.startDruid()
	s.createRequesting()
	c := s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonCertManagerNotInstalled)
	if !strings.Contains(c.Message, "Install cert-manager") {
		t.Errorf("the message is %q", c.Message)
	}
	s.members("demo", 1)
	s.eventually("druid rests", func() error {
		n := s.calls.count()
		<-time.After(restTime)
		if calls := s.calls.since(n); len(calls) > 4 {
			return fmt.Errorf("%q", calls)
		}
		return nil
	})
	certmanager.Install(t, s)
	installed := time.Now()
	authority := certmanager.MakeIssuer(t, s, s.namespace, "issuer")
	certmanager.Start(t, s.kubeconfigOf(""))
	s.eventually("the Certificates exist", s.certificatesRequested)
	t.Logf("the Certificates exist after %s", time.Since(installed).Round(time.Second))
	trusted, err := pki.Bundle(authority.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range requestedNames {
		s.checkIssuedByCertManager(name, trusted[0].Subject.CommonName)
	}
	before := s.secret("demo-client-tls", "")
	s.eventually("the certificate is renewed", func() error {
		after := s.secret("demo-client-tls", before.ResourceVersion)
		was, is := pairIn(&before), pairIn(&after)
		old, err := pki.Leaf(was)
		renewed, problem := pki.Leaf(is)
		if err := errors.Join(err, problem); err != nil {
			return err
		}
		if !renewed.NotAfter.After(old.NotAfter) || string(was.Key) == string(is.Key) {
			return errors.New("certificate and key are as before")
		}
		return nil
	})
	s.checkIssuedByCertManager("demo-client-tls", "issuer")
	// cert-manager renews all Certificates at the same time. While it does, the message names one of them.
	s.eventually("the message is about the members", func() error {
		c := s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending)
		if !strings.Contains(c.Message, "not in place yet") {
			return fmt.Errorf("with all Certificates issued the message is %q", c.Message)
		}
		return nil
	})
}

// TestCertManagerOnlyForOwnClusters: druid requests only certificates of its clusters.
// druid makes no deputy of cert-manager: it names no Secret of others, keeps no key, and asks for no authority.
func TestCertManagerOnlyForOwnClusters(t *testing.T) {
	s := newStage(t)
	certmanager.Install(t, s)
	s.install("admission.yaml")
	s.createRequesting()
	druid := s.as(druidUser, serviceAccounts...)
	wanted, err := manifests.CertManagerCertificates(s.cluster(), manifests.PlaneClient, "cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	request := func(change func(c *unstructured.Unstructured)) error {
		raw, err := json.Marshal(wanted[0].Configuration)
		c := &unstructured.Unstructured{}
		if err := errors.Join(err, json.Unmarshal(raw, &c.Object)); err != nil {
			t.Fatal(err)
		}
		change(c)
		return druid.Create(t.Context(), c, client.DryRunAll)
	}
	set := func(value any, fields ...string) func(c *unstructured.Unstructured) {
		return func(c *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(c.Object, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, forge := range map[string]func(c *unstructured.Unstructured){
		"for a Secret of others": set("foreign", "spec", "secretName"),
		"with the key as it is":  set("Never", "spec", "privateKey", "rotationPolicy"),
		"for an authority":       set(true, "spec", "isCA"),
		"without an owner":       func(c *unstructured.Unstructured) { c.SetOwnerReferences(nil) },
	} {
		s.answers("druid requests a certificate "+name, "druid requests no certificates but those of an EtcdCluster", func() error { return request(forge) })
	}
	if err := request(func(*unstructured.Unstructured) {}); err != nil {
		t.Errorf("druid cannot request a certificate of the cluster: %v", err)
	}
}

// checkIssuedByCertManager checks a Secret as the agents and clients will.
func (s *stage) checkIssuedByCertManager(name, issuer string) {
	s.Helper()
	secret := s.secret(name, "")
	trusted, err := pki.Bundle(secret.Data[manifests.KeyAuthorities])
	if err != nil {
		s.Fatalf("Secret %s: %v", name, err)
	}
	member := "demo-aaaaa.demo-peer." + s.namespace + ".svc"
	needs := map[string]pki.Needs{
		"demo-client-tls": {Server: true, Client: true, Names: []string{member, "demo-client." + s.namespace + ".svc", "etcd.example.com"}},
		"demo-peer-tls":   {Server: true, Client: true, Names: []string{member}},
	}
	need, ok := needs[name]
	if !ok {
		need = pki.Needs{Client: true}
	}
	checked, err := pki.Check(pairIn(&secret), trusted, need, time.Now())
	if err != nil {
		s.Fatalf("Secret %s: %v", name, err)
	}
	if checked.Root.Subject.CommonName != issuer {
		s.Errorf("Secret %s is signed by %s, want %s", name, checked.Root.Subject, issuer)
	}
	leaf := checked.Certificate
	names := map[string]string{
		"demo-client-tls": "etcd", "demo-agent-tls": "druid-agent", "demo-client-kine": "kine", "demo-connection": "client", "demo-peer-tls": "peer",
		"demo-peer-client-tls": "peer",
	}
	if leaf.Subject.CommonName != names[name] {
		s.Errorf("Secret %s is for %s, want %s", name, leaf.Subject, names[name])
	}
	if name == "demo-client-kine" && !slices.Equal(leaf.Subject.Organization, []string{"apps"}) {
		s.Errorf("Secret %s is for %s", name, leaf.Subject)
	}
	// etcd compares the names of a peer's client certificate with the address of the peer.
	if name == "demo-peer-client-tls" && len(leaf.DNSNames)+len(leaf.IPAddresses) > 0 {
		s.Errorf("Secret %s is for %v and %v", name, leaf.DNSNames, leaf.IPAddresses)
	}
}

// Someone changes, extends and deletes Certificates of a cluster. druid writes them again.
func TestCertificatesOfCertManagerAreRepaired(t *testing.T) {
	s := newStage(t)
	certmanager.Install(t, s)
	stop := s.startDruid()
	s.createRequesting()
	s.eventually("the Certificates exist", s.certificatesRequested)
	stop()
	set := func(name string, value any, fields ...string) {
		t.Helper()
		c := newCertificate(s.namespace, name)
		s.edit(name, c, func() {
			if err := unstructured.SetNestedField(c.Object, value, fields...); err != nil {
				t.Fatal(err)
			}
		})
	}
	set("demo-agent-tls", "root", "spec", "commonName")
	set("demo-peer-tls", true, "spec", "isCA")
	c := newCertificate(s.namespace, "demo-client-tls")
	if err := s.fetch(c.GetName(), c); err != nil {
		t.Fatal(err)
	}
	names, _, _ := unstructured.NestedStringSlice(c.Object, "spec", "dnsNames")
	more := []any{"intruder.example.com"}
	for _, name := range names {
		more = append(more, name)
	}
	set("demo-client-tls", more, "spec", "dnsNames")
	if err := s.Delete(t.Context(), newCertificate(s.namespace, "demo-connection")); err != nil {
		t.Fatal(err)
	}
	s.startDruid()
	s.eventually("the Certificates are as before", func() error {
		if err := s.certificatesRequested(); err != nil {
			return err
		}
		agent, peer, server := newCertificate(s.namespace, ""), newCertificate(s.namespace, ""), newCertificate(s.namespace, "")
		if err := errors.Join(s.fetch("demo-agent-tls", agent), s.fetch("demo-peer-tls", peer), s.fetch("demo-client-tls", server)); err != nil {
			return err
		}
		name, _, _ := unstructured.NestedString(agent.Object, "spec", "commonName")
		authority, _, _ := unstructured.NestedBool(peer.Object, "spec", "isCA")
		has, _, _ := unstructured.NestedStringSlice(server.Object, "spec", "dnsNames")
		if name != "druid-agent" || authority || !slices.Equal(has, names) {
			return fmt.Errorf("commonName is %s, isCA is %v, dnsNames are %q", name, authority, has)
		}
		return nil
	})
}

// A Certificate of someone else, and a Secret that cert-manager would overwrite, stay as they are. druid says so, requests the others,
// and continues when the name is free.
func TestWhatBelongsToOthersIsNotRequested(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	certmanager.Install(t, s)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.namespace, Name: name} }
	secret := &corev1.Secret{ObjectMeta: meta("demo-connection"), Data: map[string][]byte{"password": []byte("planted")}}
	certificate := newCertificate(s.namespace, "demo-agent-tls")
	spec := map[string]any{"secretName": "other", "commonName": "other", "issuerRef": map[string]any{"name": "other"}}
	if err := unstructured.SetNestedField(certificate.Object, spec, "spec"); err != nil {
		t.Fatal(err)
	}
	// What cert-manager issued for an earlier Certificate of this cluster is not someone else's.
	own := &corev1.Secret{ObjectMeta: meta("demo-peer-tls"), Type: corev1.SecretTypeTLS, Data: manifests.PairData(pki.Pair{})}
	own.Labels, own.Annotations = manifests.Labels("demo"), map[string]string{manifests.AnnotationCertificateName: "demo-peer-tls"}
	if err := errors.Join(s.Create(t.Context(), secret), s.Create(t.Context(), certificate), s.Create(t.Context(), own)); err != nil {
		t.Fatal(err)
	}
	s.startDruid()
	s.createRequesting()
	s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonObjectNotOwned)
	for _, name := range []string{"demo-client-tls", "demo-client-kine", "demo-peer-tls", "demo-peer-client-tls"} {
		s.eventually("Certificate "+name, func() error { return s.fetch(name, newCertificate(s.namespace, name)) })
	}
	s.checkForeign(secret)
	live := newCertificate(s.namespace, "")
	if err := s.fetch("demo-agent-tls", live); err != nil || live.GetResourceVersion() != certificate.GetResourceVersion() {
		t.Errorf("the Certificate of someone else was changed (%v)", err)
	}
	if err := s.fetch("demo-connection", newCertificate(s.namespace, "")); !apierrors.IsNotFound(err) {
		t.Errorf("cert-manager is asked to overwrite the Secret of someone else (%v)", err)
	}
	if err := errors.Join(s.Delete(t.Context(), secret), s.Delete(t.Context(), certificate)); err != nil {
		t.Fatal(err)
	}
	s.eventually("the Certificates exist", s.certificatesRequested)
}

// An issuer that does not exist is named, as cert-manager reports it.
func TestWhyACertificateIsNotIssuedIsReported(t *testing.T) {
	s := newStage(t)
	certmanager.Install(t, s)
	stop := s.startDruid()
	s.createRequesting()
	s.eventually("the Certificates exist", s.certificatesRequested)
	stop()
	c := newCertificate(s.namespace, "demo-client-tls")
	if err := s.fetch(c.GetName(), c); err != nil {
		t.Fatal(err)
	}
	before := client.MergeFrom(c.DeepCopy())
	condition := map[string]any{
		"type": "Ready", "status": "False", "reason": "DoesNotExist", "message": "Issuing certificate as Secret does not exist",
		"lastTransitionTime": "2026-11-24T12:00:00Z",
	}
	if err := unstructured.SetNestedSlice(c.Object, []any{condition}, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := s.Status().Patch(t.Context(), c, before); err != nil {
		t.Fatal(err)
	}
	s.startDruid()
	s.eventually("the condition says why", func() error {
		c := s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending)
		if !strings.Contains(c.Message, "Certificate demo-client-tls: Issuing certificate as Secret does not exist") {
			return errors.New(c.Message)
		}
		return nil
	})
}
