package certificates

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
)

const peerHost = "c-aaaaa.c-peer.ns.svc"

// bench is a member with mutual TLS of clients, and an authority that signs for it.
type bench struct {
	*testing.T
	cfg   config.Config
	certs *Certificates
	ca    pki.Pair
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cfg := config.Default()
	cfg.Namespace, cfg.ClientService, cfg.ClientTLS = "ns", "c-client", config.TLSMutual
	cfg.TLSSource, cfg.TLSDir = filepath.Join(t.TempDir(), "source"), filepath.Join(t.TempDir(), "dir")
	b := &bench{T: t, cfg: cfg, ca: newAuthority(t, "ca")}
	b.restart()
	return b
}

// restart is another process of the agent in the same Pod.
func (b *bench) restart() { b.certs = New(b.cfg, peerHost, slog.New(slog.DiscardHandler)) }

func newAuthority(t *testing.T, name string) pki.Pair {
	t.Helper()
	pair, err := pki.NewAuthority(name, time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

var server = pki.Request{CommonName: "server", DNSNames: []string{"c-client.ns.svc"}, Server: true, Client: true, Lifetime: time.Hour}

func (b *bench) issue(ca pki.Pair, r pki.Request) pki.Pair {
	b.Helper()
	authority, err := pki.ParseAuthority(ca, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	pair, err := authority.Issue(r, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	return pair
}

// mount replaces the mounted Secret and has the agent look at it.
func (b *bench) mount(ca []byte, pair pki.Pair) {
	b.Helper()
	dir := filepath.Join(b.cfg.TLSSource, PlaneClient)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	for name, raw := range map[string][]byte{fileAuthorities: ca, fileServer: pair.Certificate, fileServerKey: pair.Key} {
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			b.Fatal(err)
		}
		if raw == nil {
			continue
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	b.certs.Load(b.Context())
}

// inEffect is what etcd reads at the next handshake.
func (b *bench) inEffect() string {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join(b.cfg.TLSDir, PlaneClient, linkCurrent, fileServer))
	if err != nil {
		b.Fatal(err)
	}
	return string(raw)
}

// TestBadCertificateNamedAndOldKept: what is bad is named and the member keeps what it has.
func TestBadCertificateNamedAndOldKept(t *testing.T) {
	other := newAuthority(t, "other")
	for name, c := range map[string]struct {
		mount func(b *bench)
		want  string
	}{
		"the Secret is deleted": {func(b *bench) { b.mount(nil, pki.Pair{}) }, "ca.crt is missing"},
		"no authority":          {func(b *bench) { b.mount(nil, b.issue(b.ca, server)) }, "ca.crt is missing"},
		"no certificate":        {func(b *bench) { b.mount(b.ca.Certificate, pki.Pair{Key: b.ca.Key}) }, "tls.crt is missing"},
		"no key": {func(b *bench) { b.mount(b.ca.Certificate, pki.Pair{Certificate: b.issue(b.ca, server).Certificate}) },
			"tls.key is missing"},
		"the key of another certificate":  {func(b *bench) { p := b.issue(b.ca, server); p.Key = b.ca.Key; b.mount(b.ca.Certificate, p) }, "does not belong"},
		"a certificate as authority":      {func(b *bench) { p := b.issue(b.ca, server); b.mount(p.Certificate, p) }, "not a certificate authority"},
		"signed by an unlisted authority": {func(b *bench) { b.mount(b.ca.Certificate, b.issue(other, server)) }, "not signed by"},
		"not for this cluster": {func(b *bench) {
			r := server
			r.DNSNames = []string{"other-client.ns.svc"}
			b.mount(b.ca.Certificate, b.issue(b.ca, r))
		}, "c-client.ns.svc"},
		"not for clients": {func(b *bench) {
			r := server
			r.Client = false
			b.mount(b.ca.Certificate, b.issue(b.ca, r))
		}, "client auth"},
		"expired": {func(b *bench) {
			r := server
			r.Lifetime = -time.Minute
			b.mount(b.ca.Certificate, b.issue(b.ca, r))
		}, "expired"},
		"another authority while etcd runs": {func(b *bench) { b.mount(other.Certificate, b.issue(other, server)) }, "unknown to the running etcd"},
		"both authorities, and the new one signs, while etcd runs": {func(b *bench) {
			b.mount(append(append([]byte{}, b.ca.Certificate...), other.Certificate...), b.issue(other, server))
		}, "unknown to the running etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			good := b.issue(b.ca, server)
			b.mount(b.ca.Certificate, good)
			if err := b.certs.Begin(); err != nil {
				t.Fatal(err)
			}
			c.mount(b)
			state := b.certs.States()[0]
			if !strings.Contains(state.Problem, c.want) {
				t.Errorf("the problem is %q, want it to say %q", state.Problem, c.want)
			}
			if b.inEffect() != string(good.Certificate) || b.certs.Ready() != nil {
				t.Errorf("the good certificate is not in effect any more (ready: %v)", b.certs.Ready())
			}
			renewed := b.issue(b.ca, server)
			b.mount(b.ca.Certificate, renewed)
			if state := b.certs.States()[0]; state.Problem != "" || b.inEffect() != string(renewed.Certificate) {
				t.Errorf("a good certificate after it is not in effect: %q", state.Problem)
			}
		})
	}
}

// A new Pod has started no etcd yet: the configuration says which authorities the members use.
func TestNewPodTakesNoOtherAuthority(t *testing.T) {
	b := newBench(t)
	b.cfg.ConfigPath = filepath.Join(t.TempDir(), "config.yaml")
	authorities, err := pki.Bundle(b.ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	content := "issuers: {client: '" + pki.Fingerprint(authorities[0]) + "'}\n"
	if err := os.WriteFile(b.cfg.ConfigPath, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	b.restart()
	other := newAuthority(t, "other")
	b.mount(other.Certificate, b.issue(other, server))
	if err := b.certs.Ready(); err == nil || !strings.Contains(err.Error(), "unknown to the running etcd") {
		t.Errorf("a certificate of another authority is taken: %v", err)
	}
	b.mount(b.ca.Certificate, b.issue(b.ca, server))
	if err := b.certs.Ready(); err != nil {
		t.Error(err)
	}
}

// A running member takes a certificate of another authority when a user provides it and every member trusts it, and not before.
func TestUserCertificateWaitsForMembers(t *testing.T) {
	b := newBench(t)
	b.cfg.ConfigPath = filepath.Join(t.TempDir(), "config.yaml")
	other := newAuthority(t, "other")
	both := append(append([]byte{}, b.ca.Certificate...), other.Certificate...)
	authorities, err := pki.Bundle(both)
	if err != nil {
		t.Fatal(err)
	}
	known := func(all ...string) {
		content := "issuers: {client: '" + strings.Join(all, ",") + "', provided: 'peer,client'}\n"
		if err := os.WriteFile(b.cfg.ConfigPath, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, second := pki.Fingerprint(authorities[0]), pki.Fingerprint(authorities[1])
	known(first)
	b.restart()
	b.mount(b.ca.Certificate, b.issue(b.ca, server))
	if err := b.certs.Begin(); err != nil {
		t.Fatal(err)
	}
	b.mount(both, b.issue(b.ca, server))
	if s := b.certs.States()[0]; s.Problem != "" || s.Staged == s.Running || len(s.Trusted) != 1 {
		t.Fatalf("both authorities are not staged: %+v", s)
	}
	if err := b.certs.Begin(); err != nil { // etcd is started again
		t.Fatal(err)
	}
	if s := b.certs.States()[0]; s.Staged != s.Running || len(s.Trusted) != 2 {
		t.Fatalf("etcd runs with %+v", s)
	}
	b.mount(both, b.issue(other, server))
	if s := b.certs.States()[0]; !strings.Contains(s.Problem, "unknown to the running etcd") || s.Issuer != first {
		t.Errorf("a certificate is used that another member does not trust: %+v", s)
	}
	known(first, second)
	b.certs.Load(t.Context())
	if s := b.certs.States()[0]; s.Problem != "" || s.Issuer != second {
		t.Errorf("a certificate that all members trust is not used: %+v", s)
	}
}

// What is in effect is checked again and again: it expires without any change.
func TestAnExpiredCertificateIsReported(t *testing.T) {
	b := newBench(t)
	b.mount(b.ca.Certificate, b.issue(b.ca, server))
	if problem := b.certs.States()[0].Problem; problem != "" {
		t.Fatal(problem)
	}
	b.certs.client.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	b.certs.Load(t.Context())
	if problem := b.certs.States()[0].Problem; !strings.Contains(problem, "expired") {
		t.Errorf("the problem is %q", problem)
	}
	if err := b.certs.Ready(); err != nil {
		t.Errorf("what was in effect is taken away: %v", err)
	}
}

func TestEtcdWaitsForGoodCertificates(t *testing.T) {
	b := newBench(t)
	b.certs.Load(t.Context())
	if err := b.certs.Ready(); err == nil || !strings.Contains(err.Error(), "client certificates: ca.crt is missing") {
		t.Errorf("Ready without certificates returned %v", err)
	}
	if err := b.certs.Begin(); err == nil {
		t.Error("Begin without certificates returned nil")
	}
	b.mount(b.ca.Certificate, b.issue(b.ca, server))
	if err := b.certs.Ready(); err != nil {
		t.Error(err)
	}
}

func TestAnotherProcessOfTheAgentContinues(t *testing.T) {
	b := newBench(t)
	good := b.issue(b.ca, server)
	b.mount(b.ca.Certificate, good)
	reported := 0
	b.certs.Checked = func() { reported++ }
	if err := b.certs.Begin(); err != nil {
		t.Fatal(err)
	}
	if reported != 1 {
		t.Errorf("what etcd trusts was reported %d times", reported)
	}
	b.restart()
	b.mount(nil, pki.Pair{})
	if err := b.certs.Ready(); err != nil {
		t.Errorf("what the earlier process put in place is not in effect: %v", err)
	}
	authorities, err := pki.Bundle(b.ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if trusted := b.certs.States()[0].Trusted; len(trusted) != 1 || trusted[0] != pki.Fingerprint(authorities[0]) {
		t.Errorf("trusted are %q", trusted)
	}
}

func TestOldGenerationsAreDeleted(t *testing.T) {
	b := newBench(t)
	for range 5 {
		b.mount(b.ca.Certificate, b.issue(b.ca, server))
	}
	entries, err := os.ReadDir(filepath.Join(b.cfg.TLSDir, PlaneClient))
	if err != nil {
		t.Fatal(err)
	}
	generations := 0
	for _, entry := range entries {
		if entry.IsDir() {
			generations++
		}
	}
	if generations != 2 {
		t.Errorf("%d generations, want the current and the previous one", generations)
	}
}

func TestArgs(t *testing.T) {
	cfg := config.Default()
	if args := Args(cfg); args != nil {
		t.Errorf("without TLS etcd gets %q", args)
	}
	cfg.ClientTLS, cfg.TLSDir = config.TLSServer, "/tls"
	if args := strings.Join(Args(cfg), " "); strings.Contains(args, "client-cert-auth") || strings.Contains(args, "trusted-ca") {
		// --trusted-ca-file alone makes etcd demand certificates.
		t.Errorf("a server that demands no certificates gets %s", args)
	}
	cfg.ClientTLS, cfg.PeerTLS = config.TLSMutual, config.TLSMutual
	args := strings.Join(Args(cfg), " ")
	for _, want := range []string{
		"--client-cert-auth=true", "--trusted-ca-file=/tls/client/trust.crt", "--cert-file=/tls/client/current/tls.crt",
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file=/tls/peer/trust.crt", "--peer-client-cert-file=/tls/peer/current/client.crt",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("etcd does not get %s", want)
		}
	}
}
