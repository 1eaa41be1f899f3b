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
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/loop"
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
				t.Error("the key is lost")
			}
			c.outsidersStayOut()
		})
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
		"a certificate of the authority":        {c.secure.dial.Client, true},
		"plain text":                            {nil, false},
		"no certificate":                        {&tls.Config{RootCAs: c.pool(), MinVersion: tls.VersionTLS12}, false},
		"a certificate of another authority":    {c.clientOf(foreign, pki.Request{CommonName: "test", Client: true, Lifetime: time.Hour}), false},
		"a certificate of the peers' authority": {c.clientOf(c.secure.authorities[certificates.PlanePeer], pki.Request{CommonName: "test", Client: true, Lifetime: time.Hour}), false},
		"an expired certificate":                {c.clientOf(own, pki.Request{CommonName: "test", Client: true, Lifetime: -time.Minute}), false},
		"a certificate for servers":             {c.clientOf(own, pki.Request{CommonName: "test", Server: true, Lifetime: time.Hour}), false},
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

// New certificates of the same authority take effect without a restart of any etcd, while clients connect all the time.
func TestNewCertificatesRestartNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a", "c-b", "c-c")
	c.withTLS()
	for _, m := range c.members {
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	var handshakes, failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	for _, m := range c.members {
		group.Go(func() error {
			for ctx.Err() == nil {
				handshakes.Add(1)
				if _, err := serialOf(ctx, m, c.secure.dial.Client); err != nil && ctx.Err() == nil {
					failed.Add(1)
					t.Logf("handshake with %s: %v", m.name, err)
				}
				loop.Sleep(ctx, 10*time.Millisecond)
			}
			return nil
		})
	}
	defer func() { stop(); _ = group.Wait() }()
	for round := range 5 {
		for _, m := range c.members {
			c.replaceCertificates(m)
		}
		c.eventually("clients connect", func() error {
			if n := handshakes.Load(); n < int64(round+1)*100 {
				return fmt.Errorf("%d handshakes", n)
			}
			return nil
		})
	}
	c.put("c-a", "color", "blue")
	stop()
	_ = group.Wait()
	// etcd reads certificate and key one after the other: a handshake that meets the moment of the change fails once.
	if n := failed.Load(); n > 2 {
		t.Errorf("%d of %d handshakes failed", n, handshakes.Load())
	}
	t.Logf("%d handshakes, %d failed", handshakes.Load(), failed.Load())
	for name, m := range c.members {
		if rules := m.rules(); len(slices.Compact(slices.Clone(rules))) != len(rules) || slices.Contains(rules, "resume") {
			t.Errorf("%s started again: %v", name, rules)
		}
	}
}

// replaceCertificates mounts new certificates for the member, and checks that its etcd shows the new one at once.
func (c *cluster) replaceCertificates(m *member) {
	c.t.Helper()
	before, err := serialOf(c.t.Context(), m, c.secure.dial.Client)
	if err != nil {
		c.t.Fatal(err)
	}
	m.mount()
	m.b.certs.Load(c.t.Context())
	after, err := serialOf(c.t.Context(), m, c.secure.dial.Client)
	if err != nil || after == before {
		c.t.Errorf("%s shows the certificate %s as before (%v)", m.name, after, err)
	}
}

// serialOf returns the serial number of the certificate that the member shows in a fresh handshake.
func serialOf(ctx context.Context, m *member, settings *tls.Config) (serial string, err error) {
	dialer := &tls.Dialer{Config: settings}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(m.cfg.ListenHost, fmt.Sprint(config.ClientPort)))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}
