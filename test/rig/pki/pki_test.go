package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/etcd-druid/druid/test/rig/plan"
)

func TestClusterCertificatesVerify(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Name: "t", Dir: t.TempDir(), Nodes: []string{"n1"}, APIPort: 1234}
	if err := Cluster(p); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	caPEM, err := os.ReadFile(p.PKI("ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(caPEM) {
		t.Fatalf("read ca.crt: %v", err)
	}
	tests := map[string]struct{ file, name string }{
		"the apiserver serves its address":         {"apiserver", p.Network().ControlPlane},
		"the apiserver serves the host's loopback": {"apiserver", "127.0.0.1"},
		"the apiserver serves its Service":         {"apiserver", "kubernetes.default.svc"},
		"a kubelet serves its address":             {"n1", p.Network().Node(1)},
		"an administrator is only a client":        {"admin", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair, err := tls.LoadX509KeyPair(p.PKI(tt.file+".crt"), p.PKI(tt.file+".key"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = pair.Leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: tt.name,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	if b, err := os.ReadFile(filepath.Join(p.Dir, "pki", "sa.pub")); err != nil {
		t.Error(err)
	} else if block, _ := pem.Decode(b); block == nil || block.Type != "PUBLIC KEY" {
		t.Errorf("sa.pub is not a public key: %s", b)
	}
	if _, err := os.Stat(p.Path("kubeconfig")); err != nil {
		t.Error(err)
	}
}
