package crash_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/membership"
)

// secured has what the members of a cluster with TLS on both planes need.
type secured struct {
	c *cluster
	// authorities are by plane.
	authorities map[string]pki.Authority
	// certificates are those of the authorities, as PEM.
	certificates map[string][]byte
}

// secureAll gives all members TLS before their first start: on the client plane in this mode, and between peers. The clients of the
// test show the certificate of the agents if the members require one.
func (c *cluster) secureAll(mode config.TLSMode) *secured {
	c.t.Helper()
	s := &secured{c: c, authorities: map[string]pki.Authority{}, certificates: map[string][]byte{}}
	for _, plane := range []string{"client", "peer"} {
		pair, err := pki.NewAuthority(plane, time.Now(), time.Hour)
		c.must(err)
		s.authorities[plane], err = pki.ParseAuthority(pair, time.Now())
		c.must(err)
		s.certificates[plane] = pair.Certificate
	}
	for _, name := range c.names {
		p := c.pods[name]
		dir := filepath.Dir(p.config.VolumePath)
		p.config.ClientTLS, p.config.PeerTLS, p.config.ClientService = mode, config.TLSMutual, clusterName+"-client"
		p.config.TLSSource, p.config.TLSDir = filepath.Join(dir, "secrets"), filepath.Join(dir, "tls")
		s.mount(p)
		p.certify()
	}
	c.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pki.Pool([]*x509.Certificate{s.authorities["client"].Certificate})}
	if mode == config.TLSMutual {
		c.tls.Certificates = []tls.Certificate{s.login("druid-agent")}
	}
	return s
}

// issue returns a certificate of the authority of a plane.
func (s *secured) issue(plane string, r pki.Request) pki.Pair {
	s.c.t.Helper()
	r.Lifetime = time.Hour
	pair, err := s.authorities[plane].Issue(r, time.Now())
	s.c.must(err)
	return pair
}

// login returns the certificate of a client.
func (s *secured) login(commonName string) tls.Certificate {
	s.c.t.Helper()
	pair := s.issue("client", pki.Request{CommonName: commonName, Client: true})
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	s.c.must(err)
	return certificate
}

// mount writes new certificates to where the Secrets of the Pod are mounted.
func (s *secured) mount(p *pod) {
	s.c.t.Helper()
	for plane, authority := range s.certificates {
		server := s.issue(plane, pki.Request{
			CommonName: "etcd", Server: true, Client: true, IPs: []net.IP{net.ParseIP(p.config.ListenHost)},
			DNSNames: []string{"*.demo-peer." + p.config.Namespace + ".svc", clusterName + "-client." + p.config.Namespace + ".svc"},
		})
		client := s.issue(plane, pki.Request{CommonName: "druid-agent", Client: true})
		dir := filepath.Join(p.config.TLSSource, plane)
		s.c.must(os.MkdirAll(dir, 0o700))
		for name, content := range map[string][]byte{
			"ca.crt": authority, "tls.crt": server.Certificate, "tls.key": server.Key, "client.crt": client.Certificate, "client.key": client.Key,
		} {
			s.c.must(os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
	}
}

// refuses checks that no member lets a client in that connects in this manner.
func (s *secured) refuses(how string, settings *tls.Config) {
	s.c.t.Helper()
	dial := transport.Transport{Client: settings}
	for _, name := range s.c.names {
		ctx, cancel := context.WithTimeout(s.c.t.Context(), 2*time.Second)
		_, err := membership.Observe(ctx, transport.NewClients(dial).Dial, membership.Query{
			Endpoints: []string{dial.ClientURL(s.c.addresses[name], config.ClientPort)}, Timeout: 2 * time.Second,
		})
		cancel()
		if err == nil {
			s.c.t.Errorf("%s lets a client in with %s", name, how)
		}
	}
}

// serial returns the serial number of the certificate that a member shows in a new handshake.
func (s *secured) serial(name string) (serial string, err error) {
	ctx, cancel := context.WithTimeout(s.c.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: s.c.tls}).DialContext(ctx, "tcp", net.JoinHostPort(s.c.addresses[name], fmt.Sprint(config.ClientPort)))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// status returns what an agent reports of itself and its etcd.
func (p *pod) status() (status agent.Status, err error) {
	err = p.ask("/v1/status", func(response *http.Response) error { return json.NewDecoder(response.Body).Decode(&status) })
	return status, err
}

// ask sends a request to the plain port of the agent. A response other than 200 is an error.
func (p *pod) ask(path string, read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(p.c.t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, transport.URL(false, p.config.ListenHost, p.config.AgentPort)+path, nil)
	p.c.must(err)
	response, err := transport.Transport{}.HTTPClient().Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s answered %s", path, p.name, response.Status)
	}
	return read(response)
}

// processes waits until every agent reports a healthy etcd, and returns the process IDs of the etcds.
func (c *cluster) processes() map[string]int {
	c.t.Helper()
	all := map[string]int{}
	for _, name := range c.names {
		c.eventually("the agent of "+name+" reports a healthy etcd", func() error {
			status, err := c.pods[name].status()
			if err == nil && (!status.Etcd.Healthy || status.Launch.PID == 0) {
				err = fmt.Errorf("it reports %+v", status)
			}
			all[name] = status.Launch.PID
			return errors.Join(err, c.pods[name].ask("/readyz", func(*http.Response) error { return nil }))
		})
	}
	return all
}

// renewed mounts new certificates for all members, waits until each shows its new one, and checks that no etcd was restarted.
func (s *secured) renewed() {
	s.c.t.Helper()
	before := s.c.processes()
	for _, name := range s.c.names {
		var old string
		s.c.eventually("connect", func() (err error) { old, err = s.serial(name); return err })
		s.mount(s.c.pods[name])
		s.c.eventually(name+" shows its new certificate", func() error {
			serial, err := s.serial(name)
			if err == nil && serial == old {
				err = errors.New("it shows the former one")
			}
			return err
		})
	}
	after := s.c.processes()
	for _, name := range s.c.names {
		if before[name] != after[name] {
			s.c.t.Errorf("the etcd of %s was process %d, and is process %d after its certificate was renewed", name, before[name], after[name])
		}
	}
}

// works checks that the agents do the work of a leader and of a member: they defragment, remove a member and prove it, replace one whose
// data differs, and back up on demand. directory is where the backups are.
func (c *cluster) works(directory string) {
	c.t.Helper()
	for _, name := range c.names {
		c.eventually("the Lease of "+name+" reports its certificates and its role", func() error {
			lease, err := c.store.Member(c.t.Context(), name)
			if err == nil && (lease.TLS.Client.Issuer == "" || lease.TLS.Client.Problem != "" || lease.TLS.Peer.Issuer == "" || lease.Role == "") {
				err = fmt.Errorf("it reports %+v", lease)
			}
			return err
		})
	}
	c.fragment()
	for _, name := range c.names {
		c.defragmented(name)
	}
	c.backsUp(directory)
	p := c.leader()
	c.ask(c.other(p))
	c.drained(p)
	c.heals()
	differing := c.pods[c.other(c.leader())]
	c.flip(differing)
	c.replaced(differing.name)
}

// backsUp requests a full backup from the secure port of each agent. One of a follower names the leader, or forwards the request.
func (c *cluster) backsUp(directory string) {
	c.t.Helper()
	client := transport.Transport{Peer: c.tls}.HTTPClient()
	client.Timeout = maxWait
	leader := c.leader()
	c.eventually("a full backup on demand", func() error {
		code, body, err := demand(client, leader, "Full")
		if err != nil || code != http.StatusOK || !strings.Contains(string(body), `"type":"Full"`) {
			return fmt.Errorf("%s answered %d %s: %w", leader.name, code, body, err)
		}
		return nil
	})
	leader.backups = directory
	leader.savesOn()
}

// configureAll writes the configuration of all agents, with backups into a directory.
func (c *cluster) configureAll(directory string, auth *config.Auth, generation int64) {
	c.t.Helper()
	for _, p := range c.pods {
		p.backups = directory
		r := p.withBackups()
		r.Generation, r.Auth = generation, auth
		content, err := r.YAML()
		c.must(err)
		c.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
	}
}

// served writes a key and waits until every member returns it.
func (c *cluster) served(key string) {
	c.t.Helper()
	c.put(key, "yes")
	for _, name := range c.names {
		c.eventually("read "+key+" from "+name, func() error {
			return c.etcd(name, func(ctx context.Context, client *clientv3.Client) error {
				got, err := client.Get(ctx, key)
				if err == nil && got.Count != 1 {
					err = errors.New("it is missing")
				}
				return err
			})
		})
	}
}
