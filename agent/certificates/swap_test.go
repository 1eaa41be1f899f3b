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

// swap is a member whose certificates a user or cert-manager provides, and two authorities.
type swap struct {
	*bench
	plane    string
	old, new pki.Pair
	// oldPrint and newPrint are the fingerprints of the authorities.
	oldPrint, newPrint string
}

// source are the files of a plane: server and ca.crt come from one Secret, client from another.
type source struct {
	ca             []byte
	server, client pki.Pair
}

func newSwap(t *testing.T, plane string) *swap {
	t.Helper()
	cfg := config.Default()
	cfg.Namespace, cfg.ClientService = "ns", "c-client"
	if plane == PlanePeer {
		cfg.PeerTLS = config.TLSMutual
	} else {
		cfg.ClientTLS = config.TLSMutual
	}
	cfg.ConfigPath = filepath.Join(t.TempDir(), "config.yaml")
	s := &swap{bench: &bench{T: t, cfg: cfg}, plane: plane, old: newAuthority(t, "old"), new: newAuthority(t, "new")}
	s.oldPrint, s.newPrint = fingerprint(t, s.old), fingerprint(t, s.new)
	s.known(s.oldPrint)
	s.newPod()
	s.give(s.of(s.old))
	if err := s.certs.Begin(); err != nil {
		t.Fatal(err)
	}
	return s
}

func fingerprint(t *testing.T, authority pki.Pair) string {
	t.Helper()
	all, err := pki.Bundle(authority.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	return pki.Fingerprint(all[0])
}

// newPod is another Pod of the member: its memory volume is empty.
func (s *swap) newPod() {
	s.Helper()
	s.cfg.TLSSource, s.cfg.TLSDir = filepath.Join(s.TempDir(), "source"), filepath.Join(s.TempDir(), "dir")
	s.restart()
}

func (s *swap) restart() { s.certs = New(s.cfg, peerHost, slog.New(slog.DiscardHandler)) }

// known writes the authorities of status.tls into the configuration.
func (s *swap) known(all ...string) {
	s.Helper()
	content := "issuers: {" + s.plane + ": '" + strings.Join(all, ",") + "', provided: 'peer,client'}\n"
	if err := os.WriteFile(s.cfg.ConfigPath, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
}

// of returns what an authority issues.
func (s *swap) of(authority pki.Pair) source {
	s.Helper()
	r := server
	r.DNSNames = append([]string{peerHost}, r.DNSNames...)
	return source{authority.Certificate, s.issue(authority, r), s.issue(authority, pki.Request{CommonName: "agent", Client: true, Lifetime: time.Hour})}
}

// give replaces the mounted Secrets, and has the agent look at them.
func (s *swap) give(c source) {
	s.Helper()
	dir := filepath.Join(s.cfg.TLSSource, s.plane)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.Fatal(err)
	}
	for name, raw := range map[string][]byte{
		fileAuthorities: c.ca, fileServer: c.server.Certificate, fileServerKey: c.server.Key, fileClient: c.client.Certificate, fileClientKey: c.client.Key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			s.Fatal(err)
		}
	}
	s.certs.Load(s.Context())
}

// keeps says that the member uses certificates of the old authority, trusts it alone, is not to be restarted, and reports the problem.
func (s *swap) keeps(problem string) {
	s.Helper()
	state := s.certs.States()[0]
	if problem == "" && state.Problem != "" || !strings.Contains(state.Problem, problem) {
		s.Errorf("the problem is %q, want %q", state.Problem, problem)
	}
	if state.Issuer != s.oldPrint || strings.Join(state.Trusted, ",") != s.oldPrint || state.Staged != state.Running {
		s.Errorf("the member has %+v, want certificates of %s, and no restart", state, s.oldPrint)
	}
	if err := s.certs.Ready(); err != nil {
		s.Errorf("etcd could not start again: %v", err)
	}
}

// TestAuthoritySwappedAtOnceNotUsed: an authority that is replaced at once is not used.
// Certificates and ca.crt are replaced at once by those of another root. This is what happens in each plane, with a secretRef and with
// cert-manager, which renews the Secrets one after another.
func TestAuthoritySwappedAtOnceNotUsed(t *testing.T) {
	const unknown, unlisted = "unknown to the running etcd of a member", "not signed by a certificate authority in ca.crt"
	for _, plane := range []string{PlaneClient, PlanePeer} {
		for name, c := range map[string]struct {
			give    func(s *swap) source
			problem string
		}{
			"all Secrets": {func(s *swap) source { return s.of(s.new) }, "server certificate: its authority is " + unknown},
			"all Secrets, with both authorities in ca.crt": {func(s *swap) source {
				c := s.of(s.new)
				c.ca = append(append([]byte{}, s.old.Certificate...), s.new.Certificate...)
				return c
			}, "server certificate: its authority is " + unknown},
			"only that of the members": {func(s *swap) source {
				c := s.of(s.new)
				c.client = s.of(s.old).client
				return c
			}, "client certificate: the certificate is " + unlisted},
			"only that of those who connect": {func(s *swap) source {
				c := s.of(s.old)
				c.client = s.of(s.new).client
				return c
			}, "client certificate: the certificate is " + unlisted},
		} {
			t.Run(plane+": "+name, func(t *testing.T) {
				s := newSwap(t, plane)
				before := s.of(s.old)
				s.give(before)
				s.give(c.give(s))
				s.keeps(c.problem)
				s.restart() // the agent, in the same Pod
				s.certs.Load(t.Context())
				s.keeps(c.problem)
				third := s.of(newAuthority(t, "third"))
				s.give(third)
				s.keeps(unknown)
				s.give(before)
				s.keeps("")

				// A user adds the new authority, and keeps or restores a certificate of the old one.
				before.ca = append(append([]byte{}, s.old.Certificate...), s.new.Certificate...)
				s.give(before)
				if state := s.certs.States()[0]; state.Problem != "" || state.Issuer != s.oldPrint || state.Staged == state.Running {
					t.Errorf("the member has %+v, want both authorities to be staged", state)
				}
			})
		}
	}
}

// TestNewPodWaitsAfterAuthoritySwap: a new Pod waits after an authority is replaced at once.
// A Pod that is created again has no certificate of the old authority. It does not start before the others trust the new one.
func TestNewPodWaitsAfterAuthoritySwap(t *testing.T) {
	for _, plane := range []string{PlaneClient, PlanePeer} {
		t.Run(plane, func(t *testing.T) {
			s := newSwap(t, plane)
			next := s.of(s.new)
			s.newPod()
			s.give(next)
			if err := s.certs.Ready(); err == nil || !strings.Contains(err.Error(), "unknown to the running etcd of a member") {
				t.Errorf("a member whose certificates the others do not trust starts: %v", err)
			}
			s.known(s.oldPrint, s.newPrint)
			s.certs.Load(t.Context())
			if err := s.certs.Ready(); err != nil {
				t.Errorf("a member whose certificates all others trust does not start: %v", err)
			}
		})
	}
}

// TestExpiringCertsKeepTheirAuthority: certificates that end are not replaced by those of another authority.
// The certificates in effect end while the new ones are not trusted. The running etcd keeps them, and no later one can start with them.
func TestExpiringCertsKeepTheirAuthority(t *testing.T) {
	for _, plane := range []string{PlaneClient, PlanePeer} {
		t.Run(plane, func(t *testing.T) {
			s := newSwap(t, plane)
			r := server
			r.DNSNames, r.Lifetime = append([]string{peerHost}, r.DNSNames...), 24*time.Hour
			next := s.of(s.new)
			next.server = s.issue(s.new, r)
			next.client = next.server
			late := func() { s.certs.planes[0].now = func() time.Time { return time.Now().Add(2 * time.Hour) } }
			late()
			s.give(next)
			s.keeps("unknown to the running etcd of a member")
			s.restart()
			late()
			s.certs.Load(t.Context())
			if err := s.certs.Ready(); err == nil {
				t.Error("etcd starts again with a certificate that has expired")
			}
		})
	}
}
