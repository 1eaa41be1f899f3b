package connect

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/pages"
)

// contentRef, keyPair and dataStore have the fields of DataStore in kamaji.clastix.io/v1alpha1 that etcd needs:
// api/v1alpha1/datastore_types.go of Kamaji v1.0.0. The rules of that type require certificateAuthority.privateKey and
// both fields of clientCertificate for the driver etcd, and internal/datastore splits each endpoint into host and port.
type contentRef struct {
	SecretReference struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		KeyPath   string `json:"keyPath"`
	} `json:"secretReference"`
}

type keyPair struct {
	Certificate contentRef `json:"certificate"`
	PrivateKey  contentRef `json:"privateKey"`
}

type dataStore struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Driver    string   `json:"driver"`
		Endpoints []string `json:"endpoints"`
		TLSConfig struct {
			CertificateAuthority keyPair `json:"certificateAuthority"`
			ClientCertificate    keyPair `json:"clientCertificate"`
		} `json:"tlsConfig"`
	} `json:"spec"`
}

// TestKamajiDataStoreFitsSecrets: the data store for Kamaji fits the Secrets and the authority.
func TestKamajiDataStoreFitsSecrets(t *testing.T) {
	d := serve(t)
	var cluster v1alpha1.EtcdCluster
	if err := yaml.Unmarshal([]byte(blockWith(t, "how-to/connect/kamaji.md", pages.YAML, "clients:")), &cluster); err != nil {
		t.Fatal(err)
	}
	cluster.ObjectMeta = d.cluster.ObjectMeta
	var store dataStore
	if err := yaml.UnmarshalStrict([]byte(blockWith(t, "how-to/connect/kamaji.md", pages.YAML, "kind: DataStore")), &store); err != nil {
		t.Fatalf("the DataStore has a field that Kamaji does not have: %v", err)
	}
	if store.APIVersion != "kamaji.clastix.io/v1alpha1" || store.Kind != "DataStore" || store.Metadata.Name == "" || store.Spec.Driver != "etcd" {
		t.Errorf("it is %+v", store)
	}
	var endpoints []string
	for _, endpoint := range manifests.Endpoints(&cluster) {
		endpoints = append(endpoints, strings.TrimPrefix(endpoint, "https://"))
	}
	if !slices.Equal(store.Spec.Endpoints, endpoints) {
		t.Errorf("endpoints are %q, want %q", store.Spec.Endpoints, endpoints)
	}
	clients := slices.Collect(maps.Keys(manifests.CertificatesOf(&cluster, manifests.PlaneClient, "cluster.local").Connections))
	authority, client := store.Spec.TLSConfig.CertificateAuthority, store.Spec.TLSConfig.ClientCertificate
	for _, pair := range []struct {
		keyPair
		from []string
	}{{authority, []string{manifests.AuthorityName(cluster.Name, manifests.PlaneClient, 1)}}, {client, clients}} {
		certificate, key := pair.Certificate.SecretReference, pair.PrivateKey.SecretReference
		if !slices.Contains(pair.from, certificate.Name) || certificate.Name != key.Name || certificate.Namespace != cluster.Namespace ||
			key.Namespace != cluster.Namespace {
			t.Errorf("it has a pair of %+v and %+v, want both from one of %q", certificate, key, pair.from)
		}
		data := manifests.PairData(pki.Pair{Certificate: []byte("certificate"), Key: []byte("key")})
		if string(data[certificate.KeyPath]) != "certificate" || string(data[key.KeyPath]) != "key" {
			t.Errorf("the Secret has no %s or no %s", certificate.KeyPath, key.KeyPath)
		}
	}
	if !strings.Contains(client.Certificate.SecretReference.Name, "kamaji") {
		t.Errorf("Kamaji connects with the certificate in %s, want one of its own", client.Certificate.SecretReference.Name)
	}
	d.acceptsTenant(t)
}

// acceptsTenant connects as a control plane of Kamaji, with a certificate that Kamaji would sign with the authority.
func (d demo) acceptsTenant(t *testing.T) {
	t.Helper()
	signer, err := pki.ParseAuthority(d.authority, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Issue(pki.Request{CommonName: "default_tenant", Organizations: []string{"system:masters"}, Client: true, Server: true,
		Lifetime: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(signed.Certificate, signed.Key)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(d.authority.Certificate) {
		t.Fatal("the Secret of the authority has no certificate")
	}
	tenant, err := clientv3.New(clientv3.Config{
		Endpoints: []string{d.etcd.Endpoint}, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trust, Certificates: []tls.Certificate{certificate}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tenant.Close() }()
	if _, err := tenant.Put(t.Context(), "/default_tenant/key", "value"); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "/default_tenant/key", "value")
}
