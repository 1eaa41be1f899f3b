package manifests

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// requesting is a cluster whose certificates cert-manager issues.
func requesting() *v1alpha1.EtcdCluster {
	cluster := plain()
	cluster.Spec.TLS = &v1alpha1.TLSSpec{
		Client: &v1alpha1.ClientTLS{
			CertManager: &v1alpha1.CertManagerTLS{
				IssuerRef: v1alpha1.CertManagerIssuer{Name: "i", Kind: "ClusterIssuer", Group: "cert-manager.io"}, RenewBefore: &metav1.Duration{Duration: time.Hour},
			},
			Clients: []v1alpha1.TLSClient{{Name: "app", CommonName: "application", Organizations: []string{"apps"}}},
		},
		Peer: &v1alpha1.PeerTLS{CertManager: &v1alpha1.CertManagerTLS{
			IssuerRef: v1alpha1.CertManagerIssuer{Name: "i"}, LeafLifetime: &metav1.Duration{Duration: 2 * time.Hour},
		}},
	}
	return cluster
}

// TestCertManagerCertificatesSuffice: certificates of cert-manager are what members and clients need.
func TestCertManagerCertificatesSuffice(t *testing.T) {
	cluster := requesting()
	name := cluster.Name
	all := map[string]map[string]any{}
	var names []string
	for _, p := range IssuedByCertManager(cluster) {
		certificates, err := CertManagerCertificates(cluster, p, "example.local")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range certificates {
			fields, err := tree(c.Configuration)
			if err != nil {
				t.Fatal(err)
			}
			names, all[c.Name] = append(names, c.Name), fields["spec"].(map[string]any)
			if c.Kind != CertificateKind || all[c.Name]["secretName"] != c.Name {
				t.Errorf("%s is a %s for Secret %v", c.Name, c.Kind, all[c.Name]["secretName"])
			}
		}
	}
	want := []string{
		name + "-client-tls", name + "-agent-tls", name + "-client-app", name + "-connection", name + "-peer-tls", name + "-peer-client-tls",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("the Certificates (-want +got)\n%s", diff)
	}
	both, client := []any{"digital signature", "key encipherment", "server auth", "client auth"}, []any{"digital signature", "key encipherment", "client auth"}
	for certificate, usages := range map[string][]any{
		want[0]: both, want[1]: client, want[2]: client, want[3]: client, want[4]: both, want[5]: client,
	} {
		if diff := cmp.Diff(usages, all[certificate]["usages"]); diff != "" {
			t.Errorf("usages of %s (-want +got)\n%s", certificate, diff)
		}
	}
	for field, value := range map[string]any{
		"commonName": "application", "subject": map[string]any{"organizations": []any{"apps"}}, "isCA": false, "duration": "2160h0m0s", "renewBefore": "1h0m0s",
		"issuerRef":  map[string]any{"name": "i", "kind": "ClusterIssuer", "group": "cert-manager.io"},
		"privateKey": map[string]any{"algorithm": "ECDSA", "size": 256.0, "encoding": "PKCS8", "rotationPolicy": "Always"},
	} {
		if diff := cmp.Diff(value, all[want[2]][field]); diff != "" {
			t.Errorf("%s of %s (-want +got)\n%s", field, want[2], diff)
		}
	}
	if all[want[4]]["duration"] != "2h0m0s" || all[want[4]]["renewBefore"] != nil {
		t.Errorf("the times of %s are %v and %v", want[4], all[want[4]]["duration"], all[want[4]]["renewBefore"])
	}
}

// The Pods mount what cert-manager writes, and only that decides about their replacement.
func TestPodsMountTheSecretsOfCertManager(t *testing.T) {
	cluster := requesting()
	pod, err := Pod(cluster, member, options())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volumeSecrets })
	var mounted []string
	for _, source := range pod.Spec.Volumes[i].Projected.Sources {
		mounted = append(mounted, source.Secret.Name)
	}
	name := cluster.Name
	if want := []string{name + "-client-tls", name + "-agent-tls", name + "-peer-tls", name + "-peer-client-tls"}; !slices.Equal(mounted, want) {
		t.Errorf("mounted are %q, want %q", mounted, want)
	}
	before, err := SpecHash(cluster)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Spec.TLS.Peer.CertManager.LeafLifetime = &metav1.Duration{Duration: 3 * time.Hour}
	if after, err := SpecHash(cluster); err != nil || after != before {
		t.Errorf("another lifetime replaces the Pods (%v)", err)
	}
}

// What someone adds to the names or usages of a Certificate is not druid's, and is removed.
func TestAnAdditionToACertificateIsFound(t *testing.T) {
	certificates, err := CertManagerCertificates(requesting(), PlaneClient, "example.local")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"dnsNames", "ipAddresses", "usages"} {
		raw, err := json.Marshal(certificates[0].Configuration)
		if err != nil {
			t.Fatal(err)
		}
		var live map[string]any
		if err := json.Unmarshal(raw, &live); err != nil {
			t.Fatal(err)
		}
		if !holdsMap(live, live) {
			t.Fatal("a Certificate does not hold itself")
		}
		want, err := tree(certificates[0].Configuration)
		if err != nil {
			t.Fatal(err)
		}
		spec := live["spec"].(map[string]any)
		spec[field] = append(spec[field].([]any), "more")
		if holdsMap(live, want) {
			t.Errorf("an addition to %s is not found", field)
		}
	}
}
