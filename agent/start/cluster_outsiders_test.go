package start

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/pki"
	processes "github.com/etcd-druid/druid/test/member"
)

// Who has no certificate of the peers' authority gets nothing from the peer port, and neither does a member of another cluster that has
// the names of the members and an authority of its own.
func TestPeersOfNoOneElseGetIn(t *testing.T) {
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			names := []string{"c-a", "c-b", "c-c"}
			c := newCluster(t, version, names...)
			c.withTLS()
			for _, m := range c.members {
				m.start()
			}
			before := c.voters(names...)
			c.put("c-a", "color", "blue")
			c.outsidersStayOut()
			c.outsidersReachNoPeer()
			c.impostorStaysOut()
			if after := c.voters(names...); !equalIDs(before, after) || c.get("c-b", "color") != "blue" {
				t.Errorf("the members are %v, before %v", after, before)
			}
		})
	}
}

// outsidersReachNoPeer asks a peer for the members in each manner that must fail, and once as a peer.
func (c *cluster) outsidersReachNoPeer() {
	c.t.Helper()
	foreign, err := pki.NewAuthority(certificates.PlanePeer, time.Now(), time.Hour) // it has the name of the real one
	if err != nil {
		c.t.Fatal(err)
	}
	peers, clients := c.secure.authorities[certificates.PlanePeer], c.secure.authorities[certificates.PlaneClient]
	peer := pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour}
	expired, server, elsewhere := peer, peer, peer
	expired.Lifetime = -time.Minute
	server.Client, server.Server = false, true
	elsewhere.IPs = []net.IP{net.ParseIP("192.0.2.1")}
	_, early := c.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "peer"}, NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, c.issuerOf(certificates.PlanePeer))
	for name, o := range map[string]struct {
		pair   pki.Pair
		plain  bool
		enters bool
	}{
		"as a peer":                              {c.issue(peers, peer), false, true},
		"plain text":                             {pki.Pair{}, true, false},
		"no certificate":                         {pki.Pair{}, false, false},
		"an expired certificate":                 {c.issue(peers, expired), false, false},
		"a certificate that is not valid yet":    {early, false, false},
		"a certificate for servers":              {c.issue(peers, server), false, false},
		"a certificate of clients":               {c.issue(clients, peer), false, false},
		"an authority of the same name":          {c.issue(foreign, peer), false, false},
		"the address of another one in its name": {c.issue(peers, elsewhere), false, false},
	} {
		settings := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // it is about what etcd verifies
		if len(o.pair.Certificate) > 0 {
			pair, err := tls.X509KeyPair(o.pair.Certificate, o.pair.Key)
			if err != nil {
				c.t.Fatal(err)
			}
			// As an attacker does: whatever the server asks for, it gets.
			settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		if answer, err := c.membersOf("c-b", o.plain, settings); (err == nil) != o.enters {
			c.t.Errorf("%s: the peer answered %q, %v", name, answer, err)
		}
	}
}

// membersOf asks the peer port of a member for the members.
func (c *cluster) membersOf(name string, plain bool, settings *tls.Config) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	url := transport.URL(!plain, c.members[name].cfg.ListenHost, config.PeerPort) + "/members"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answered %s", response.Status)
	}
	return response.Status, nil
}

// impostorStaysOut runs c-a of another cluster, whose c-b and c-c have the addresses of the real ones. It has its own authority.
func (c *cluster) impostorStaysOut() {
	c.t.Helper()
	foreign, err := pki.NewAuthority(certificates.PlanePeer, time.Now(), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	host := c.net + "200"
	pair := c.issue(foreign, pki.Request{CommonName: "etcd", IPs: []net.IP{net.ParseIP(host)}, Server: true, Client: true, Lifetime: time.Hour})
	dir := c.t.TempDir()
	for name, content := range map[string][]byte{"ca": foreign.Certificate, "crt": pair.Certificate, "key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	peer := func(host string) string { return transport.URL(true, host, config.PeerPort) }
	own, clients := peer(host), transport.URL(false, host, config.ClientPort)
	impostor := exec.CommandContext(c.t.Context(), c.binary,
		"--name=c-a", "--data-dir="+filepath.Join(dir, "data"), "--listen-peer-urls="+own, "--initial-advertise-peer-urls="+own,
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients, "--listen-metrics-urls="+transport.URL(false, host, config.MetricsPort),
		"--initial-cluster=c-a="+own+",c-b="+peer(c.members["c-b"].cfg.ListenHost)+",c-c="+peer(c.members["c-c"].cfg.ListenHost),
		"--peer-cert-file="+filepath.Join(dir, "crt"), "--peer-key-file="+filepath.Join(dir, "key"), "--peer-client-cert-auth=true",
		"--peer-trusted-ca-file="+filepath.Join(dir, "ca"))
	var output processes.Buffer
	impostor.Stdout, impostor.Stderr = &output, &output
	impostor.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := impostor.Start(); err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = impostor.Process.Kill(); _ = impostor.Wait() }()
	c.eventually("the impostor does not trust the members, and they refuse it", func() error {
		log := output.String()
		for _, name := range []string{"c-b", "c-c"} {
			if address := c.members[name].cfg.ListenHost; !strings.Contains(log, address) {
				return fmt.Errorf("it has not tried %s", address)
			}
		}
		if !strings.Contains(log, "certificate signed by unknown authority") {
			return fmt.Errorf("it says %s", tail(log, 400))
		}
		return nil
	})
	if log := output.String(); strings.Contains(log, "became leader") || strings.Contains(log, "request cluster ID mismatch") {
		c.t.Errorf("the impostor got through: %s", tail(log, 800))
	}
}
