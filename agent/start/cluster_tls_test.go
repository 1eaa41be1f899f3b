package start

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/membership"
)

// secured has what a cluster with mutual TLS on both planes needs: the authority of each plane, and the settings with
// which the test dials.
type secured struct {
	authorities map[string]pki.Pair
	dial        transport.Transport
	// onePair: those who connect show the certificate of the members, as with a secretRef without clientName.
	onePair bool
}

// withTLS makes every member of the cluster, also those that are added later, use TLS.
func (c *cluster) withTLS() {
	c.t.Helper()
	c.secure = &secured{authorities: map[string]pki.Pair{}}
	for _, plane := range []string{certificates.PlaneClient, certificates.PlanePeer} {
		pair, err := pki.NewAuthority(plane, time.Now(), 24*time.Hour)
		if err != nil {
			c.t.Fatal(err)
		}
		c.secure.authorities[plane] = pair
	}
	c.secure.dial.Client = c.clientOf(c.secure.authorities[certificates.PlaneClient], pki.Request{CommonName: "root", Client: true, Lifetime: time.Hour})
}

// clientOf returns the settings of a client with a certificate of the authority, which trusts the cluster.
func (c *cluster) clientOf(authority pki.Pair, r pki.Request) *tls.Config {
	c.t.Helper()
	pair := c.issue(authority, r)
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	return &tls.Config{RootCAs: c.pool(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
}

func (c *cluster) pool() *x509.CertPool {
	c.t.Helper()
	authorities, err := pki.Bundle(c.secure.authorities[certificates.PlaneClient].Certificate)
	if err != nil {
		c.t.Fatal(err)
	}
	return pki.Pool(authorities)
}

func (c *cluster) issue(authority pki.Pair, r pki.Request) pki.Pair {
	c.t.Helper()
	signer, err := pki.ParseAuthority(authority, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := signer.Issue(r, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	return pair
}

// dial is how the test connects to members.
func (c *cluster) dial() transport.Transport {
	if c.secure == nil {
		return transport.Transport{}
	}
	return c.secure.dial
}

// secure returns the certificates of the member's Pod, mounted and checked, and how its agent dials.
func (m *member) secure() (*certificates.Certificates, transport.Transport) {
	m.c.t.Helper()
	if m.c.secure == nil {
		return nil, transport.Transport{}
	}
	if m.cfg.ClientTLS == config.TLSOff && !m.renewed {
		m.cfg.ClientTLS, m.cfg.PeerTLS, m.cfg.ClientService = config.TLSMutual, config.TLSMutual, "c-client"
		m.cfg.TLSSource, m.cfg.TLSDir = m.c.t.TempDir(), m.c.t.TempDir()
		m.mount()
	}
	certs := certificates.New(m.cfg, PeerHost(m.cfg, m.name), slog.New(slog.NewTextHandler(m, nil)))
	certs.Load(m.c.t.Context())
	return certs, transport.Transport{Client: certs.Client(), Peer: certs.Peer(), Plaintext: m.cfg.ClientPlaintext, Identity: certs.Identity}
}

// request is for the certificate of the member on a plane. Its names are those that druid requests.
func (m *member) request(plane string) pki.Request {
	r := pki.Request{
		CommonName: "etcd", Server: true, Client: true, Lifetime: time.Hour,
		DNSNames: []string{"*.c-peer." + m.c.ns + ".svc", "c-client." + m.c.ns + ".svc"}, IPs: []net.IP{net.ParseIP(m.cfg.ListenHost)},
	}
	if m.c.named && plane == certificates.PlanePeer {
		r.IPs = nil
	}
	return r
}

// mount writes new certificates to where the Secrets of the Pod are mounted.
func (m *member) mount() {
	m.c.t.Helper()
	for plane, authority := range m.c.secure.authorities {
		server := m.c.issue(authority, m.request(plane))
		client := m.c.issue(authority, pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour})
		if m.c.secure.onePair {
			client = pki.Pair{}
		}
		dir := filepath.Join(m.cfg.TLSSource, plane)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			m.c.t.Fatal(err)
		}
		for name, raw := range map[string][]byte{
			"ca.crt": authority.Certificate, "tls.crt": server.Certificate, "tls.key": server.Key,
			"client.crt": client.Certificate, "client.key": client.Key,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
				m.c.t.Fatal(err)
			}
		}
	}
}

// Three members of each minor version form a cluster with TLS on both planes, and a member whose disk is lost joins it
// again. Who has no certificate of the authority does not get in.
func TestMembersFormAndHealWithTLS(t *testing.T) {
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, version, "c-a", "c-b", "c-c")
			c.withTLS()
			c.formsAndHeals()
			c.outsidersStayOut()
		})
	}
}

// formsAndHeals starts all members. One of them loses its disk, and votes again under a new ID.
func (c *cluster) formsAndHeals() {
	c.t.Helper()
	for _, m := range c.members {
		m.start()
	}
	before := c.voters("c-a", "c-b", "c-c")
	c.put("c-a", "color", "blue")
	lost := c.members["c-b"]
	lost.halt()
	lost.wipe()
	lost.start()
	c.eventually("it votes under a new ID", func() error {
		view, err := c.view("c-a")
		if m, ok := view.Find("c-b", ""); !ok || m.ID == before["c-b"] || m.Learner || !m.Started() {
			return fmt.Errorf("c-a sees %+v, err %w", view.Members, err)
		}
		return nil
	})
	if c.voters("c-a", "c-b", "c-c"); c.get("c-b", "color") != "blue" {
		c.t.Error("the key is lost")
	}
}

// outsidersStayOut tries to read from a member in each way that must fail, and once in the way that works.
func (c *cluster) outsidersStayOut() {
	c.t.Helper()
	foreign, err := pki.NewAuthority("foreign", time.Now(), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	own := c.secure.authorities[certificates.PlaneClient]
	for name, o := range map[string]struct {
		settings *tls.Config
		enters   bool
	}{
		"a certificate of the authority":     {c.secure.dial.Client, true},
		"plain text":                         {nil, false},
		"no certificate":                     {&tls.Config{RootCAs: c.pool(), MinVersion: tls.VersionTLS12}, false},
		"a certificate of another authority": {c.clientOf(foreign, pki.Request{CommonName: "test", Client: true, Lifetime: time.Hour}), false},
		"a certificate of the peers' authority": {
			c.clientOf(c.secure.authorities[certificates.PlanePeer], pki.Request{CommonName: "test", Client: true, Lifetime: time.Hour}), false},
		"an expired certificate":    {c.clientOf(own, pki.Request{CommonName: "test", Client: true, Lifetime: -time.Minute}), false},
		"a certificate for servers": {c.clientOf(own, pki.Request{CommonName: "test", Server: true, Lifetime: time.Hour}), false},
	} {
		dial := transport.Transport{Client: o.settings}
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		if o.enters {
			ctx, cancel = context.WithTimeout(c.t.Context(), maxWait)
		}
		_, err := membership.Observe(ctx, transport.NewClients(dial).Dial, membership.Query{
			Endpoints: []string{dial.ClientURL(c.members["c-a"].cfg.ListenHost, config.ClientPort)}, Timeout: 2 * time.Second,
		})
		cancel()
		if (err == nil) != o.enters {
			c.t.Errorf("%s: the member list returned %v", name, err)
		}
	}
}

// enableAuth does what an administrator does who lets the agents in.
func (c *cluster) enableAuth(name string) {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	var errs []error
	_, err := client.RoleAdd(c.t.Context(), "root")
	errs = append(errs, err)
	for _, user := range []string{"root", "druid-agent"} {
		_, err := client.UserAddWithOptions(c.t.Context(), user, "", &clientv3.UserAddOptions{NoPassword: true})
		_, granted := client.UserGrantRole(c.t.Context(), user, "root")
		errs = append(errs, err, granted)
	}
	_, err = client.AuthEnable(c.t.Context())
	if err := errors.Join(append(errs, err)...); err != nil {
		c.t.Fatal(err)
	}
}

// With authentication on, the agents log in with their certificate: members resume, heal and are promoted as without.
func TestMembersHealWithAuthentication(t *testing.T) {
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, version, "c-a", "c-b", "c-c")
			c.withTLS()
			for _, m := range c.members {
				m.start()
			}
			before := c.voters("c-a", "c-b", "c-c")
			c.enableAuth("c-a")
			c.put("c-a", "color", "blue")
			for _, name := range []string{"c-b", "c-a"} { // the seed too
				lost := c.members[name]
				lost.halt()
				lost.wipe()
				lost.start()
				c.eventually(name+" votes under a new ID", func() error {
					view, err := c.view("c-c")
					if m, ok := view.Find(name, ""); !ok || m.ID == before[name] || m.Learner || !m.Started() {
						return fmt.Errorf("c-c sees %+v, err %w", view.Members, err)
					}
					return nil
				})
			}
			if c.voters("c-a", "c-b", "c-c"); c.get("c-b", "color") != "blue" {
				t.Error("the key is lost")
			}
		})
	}
}

// A member whose certificates are bad waits, and says why. With good ones it starts, without a new Pod.
func TestAMemberWithBadCertificatesWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a")
	c.withTLS()
	seed := c.members["c-a"]
	seed.secure()
	server := filepath.Join(seed.cfg.TLSSource, certificates.PlanePeer, "tls.crt")
	if err := os.Remove(server); err != nil {
		t.Fatal(err)
	}
	seed.cfg.TLSDir = t.TempDir()
	seed.start()
	c.decides("c-a", RuleCertificates)
	if reason := seed.last().Reason; reason != "peer certificates: server certificate: tls.crt is missing; add it" {
		t.Errorf("it says %q", reason)
	}
	seed.mount()
	seed.b.certs.Load(t.Context())
	c.voters("c-a")
}
