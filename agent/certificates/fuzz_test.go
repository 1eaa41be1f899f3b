package certificates

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
)

// Whatever is mounted, what etcd reads afterwards is a pair that a TLS server can use.
func FuzzStage(f *testing.F) {
	ca, err := pki.NewAuthority("ca", time.Now(), 24*time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	authority, err := pki.ParseAuthority(ca, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	good, err := authority.Issue(server, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.Certificate, good.Certificate, good.Key)
	f.Add(ca.Certificate, good.Certificate, ca.Key)
	f.Add(good.Certificate, append(bytes.Clone(good.Certificate), good.Certificate...), good.Key)
	f.Add([]byte("\n"), good.Certificate[:40], []byte("-----BEGIN EC PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, bundle, certificate, key []byte) {
		cfg := config.Default()
		cfg.Namespace, cfg.ClientService, cfg.ClientTLS = "ns", "c-client", config.TLSMutual
		cfg.TLSSource, cfg.TLSDir = t.TempDir(), t.TempDir()
		source := filepath.Join(cfg.TLSSource, PlaneClient)
		if err := os.Mkdir(source, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, raw := range map[string][]byte{fileAuthorities: bundle, fileServer: certificate, fileServerKey: key} {
			if err := os.WriteFile(filepath.Join(source, name), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		certs := New(cfg, peerHost, slog.New(slog.DiscardHandler))
		certs.Load(t.Context())
		current := filepath.Join(cfg.TLSDir, PlaneClient, linkCurrent)
		_, err := tls.LoadX509KeyPair(filepath.Join(current, fileServer), filepath.Join(current, fileServerKey))
		if ready := certs.Ready() == nil; ready != (err == nil) {
			t.Errorf("ready is %t, and the pair in effect: %v", ready, err)
		}
	})
}
