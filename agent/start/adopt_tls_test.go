package start

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
	etcd "github.com/etcd-druid/druid/test/member"
)

// source is a running cluster that uses TLS, and that druid does not run.
type source struct {
	members []*etcd.Member
	// clients and peers are the authorities of its two kinds of connections.
	clients, peers pki.Pair
}

// secureSource runs etcds that demand certificates of their clients, and of their peers too if peerScheme is https.
func (c *cluster) secureSource(minor string, members int, peerScheme string) source {
	c.t.Helper()
	var s source
	var err error
	if s.clients, err = pki.NewAuthority("clients of the source", time.Now(), 24*time.Hour); err != nil {
		c.t.Fatal(err)
	}
	if s.peers, err = pki.NewAuthority("peers of the source", time.Now(), 24*time.Hour); err != nil {
		c.t.Fatal(err)
	}
	dir := c.t.TempDir()
	file := func(name string, raw []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			c.t.Fatal(err)
		}
		return path
	}
	local := pki.Request{CommonName: "etcd", Server: true, Client: true, Lifetime: time.Hour, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	server, peer := c.issue(s.clients, local), c.issue(s.peers, local)
	args := []string{
		"--client-cert-auth", "--trusted-ca-file=" + file("clients.crt", s.clients.Certificate),
		"--cert-file=" + file("server.crt", server.Certificate), "--key-file=" + file("server.key", server.Key),
	}
	if peerScheme == "https" {
		args = append(args, "--peer-client-cert-auth", "--peer-trusted-ca-file="+file("peers.crt", s.peers.Certificate),
			"--peer-cert-file="+file("peer.crt", peer.Certificate), "--peer-key-file="+file("peer.key", peer.Key))
	}
	s.members = etcd.StartClusterWith(c.t, minor, members, peerScheme, etcd.Options{Args: args, TLS: c.settings(s, "test")})
	return s
}

// settings of a client of the source whose certificate names a user.
func (c *cluster) settings(s source, user string) *tls.Config {
	c.t.Helper()
	authorities, err := pki.Bundle(s.clients.Certificate)
	if err != nil {
		c.t.Fatal(err)
	}
	pair := c.issue(s.clients, pki.Request{CommonName: user, Client: true, Lifetime: time.Hour})
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	return &tls.Config{RootCAs: pki.Pool(authorities), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
}

// joiningSecurely configures every member of c to join the source. The Secret is the same for all.
func (c *cluster) joiningSecurely(s source) (secret string) {
	c.t.Helper()
	c.joining(s.members)
	secret = c.t.TempDir()
	for _, m := range c.members {
		m.cfg.JoinTLS = secret
	}
	c.fill(secret, s.clients.Certificate, c.issue(s.clients, pki.Request{CommonName: "druid", Client: true, Lifetime: time.Hour}))
	return secret
}

// fill writes the Secret for the client port of the source.
func (c *cluster) fill(secret string, authorities []byte, pair pki.Pair) {
	c.t.Helper()
	for name, raw := range map[string][]byte{"ca.crt": authorities, "tls.crt": pair.Certificate, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(secret, name), raw, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
}

// The members and the source have one authority for peers, and each has its own one for clients.
func TestARunningClusterThatUsesTLSIsJoined(t *testing.T) {
	for _, version := range versions {
		t.Run("etcd "+version[:3], func(t *testing.T) {
			c := newCluster(t, version, "c-a", "c-b")
			c.withTLS()
			s := c.secureSource(version[:3], 3, "https")
			c.secure.authorities[certificates.PlanePeer] = s.peers
			c.joiningSecurely(s)
			there := s.members[0].Client
			if _, err := there.Put(t.Context(), "here", "before"); err != nil {
				t.Fatal(err)
			}
			for _, m := range c.members {
				m.start()
			}
			c.lists(there, "etcd-0", "etcd-1", "etcd-2", "c-a", "c-b")
			c.adopted(s.members)
			if deeds := adoptedBy(c.members["c-a"]); !slices.Equal(deeds, []string{"intend-to-join", "add-learner"}) {
				t.Errorf("the seed decided by %v", deeds)
			}
			if got := c.get("c-b", "here"); got != "before" {
				t.Errorf("the members that joined hold %q", got)
			}
			// A member that lost its disk learns from both kinds of members that it is not listed as one with data.
			lost := c.members["c-b"]
			lost.halt()
			lost.wipe()
			lost.start()
			c.eventually("it holds the data again", func() error {
				client, err := c.dial().Etcd(t.Context(), c.endpoint("c-b"))
				if err != nil {
					return err
				}
				defer func() { _ = client.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err = client.Get(ctx, "here", clientv3.WithSerializable())
				return err
			})
			c.lists(there, "etcd-0", "etcd-1", "etcd-2", "c-a", "c-b")
		})
	}
}

// TestJoinRunningTLSCluster: a running cluster whose clients use TLS is joined.
// Only the clients of the source use TLS.
func TestJoinRunningTLSCluster(t *testing.T) {
	c := newCluster(t, "3.6.16", "c-a")
	s := c.secureSource("3.6", 1, "http")
	c.joiningSecurely(s)
	c.members["c-a"].start()
	c.lists(s.members[0].Client, "etcd-0", "c-a")
	c.adopted(s.members)
}

// seedWaits checks that the seed decides by the rule, for a reason that contains all words, and that the source is unchanged.
func (c *cluster) seedWaits(rule string, s source, words ...string) {
	c.t.Helper()
	c.decides("c-a", rule)
	c.eventually("it says why", func() error { return c.members["c-a"].says(words...) })
	list, err := s.members[0].Client.MemberList(c.t.Context())
	if err != nil || len(list.Members) != len(s.members) {
		c.t.Errorf("the source lists %v, %v", list, err)
	}
}

// TestJoinTLSClusterObstacles: what prevents a member from joining a cluster that uses TLS is named.
// What is wrong is named, changes nothing, and is corrected without a restart if it is in the Secret.
func TestJoinTLSClusterObstacles(t *testing.T) {
	c := newCluster(t, "3.6.16", "c-a")
	c.withTLS()
	s := c.secureSource("3.6", 1, "https")
	seed, there := c.members["c-a"], s.members[0].Client
	secret := c.joiningSecurely(s)
	good := c.issue(s.clients, pki.Request{CommonName: "druid", Client: true, Lifetime: time.Hour})
	other := c.secure.authorities[certificates.PlaneClient]
	for _, wrong := range []struct {
		authorities []byte
		pair        pki.Pair
		words       string
	}{
		{other.Certificate, good, "certificate signed by unknown authority"},
		{s.clients.Certificate, c.issue(other, pki.Request{CommonName: "druid", Client: true, Lifetime: time.Hour}), "certificate"},
		{s.clients.Certificate, c.issue(s.clients, pki.Request{CommonName: "druid", Client: true, Lifetime: -time.Minute}), "expired on"},
		{s.clients.Certificate, pki.Pair{Certificate: good.Certificate, Key: other.Key}, pki.ErrKeyMismatch.Error()},
		{s.clients.Certificate, pki.Pair{}, "certificate required"},
		{nil, pki.Pair{}, "ca.crt is missing"},
	} {
		c.fill(secret, wrong.authorities, wrong.pair)
		if seed.stop == nil {
			seed.start()
		}
		c.seedWaits("source-silent", s, wrong.words)
	}

	// The authority of the peers is not that of the source.
	c.fill(secret, s.clients.Certificate, good)
	c.seedWaits("source-unhealthy", s, "as a peer with the certificates of spec.tls.peer", "certificate")

	c.secure.authorities[certificates.PlanePeer] = s.peers
	seed.halt()
	seed.mount()
	seed.cfg.PeerTLS = config.TLSOff
	seed.renewed = true
	seed.start()
	c.seedWaits("source-unfit", s, "its peers connect to https://", "spec.tls.peer.secretRef")
	seed.halt()
	seed.cfg.PeerTLS = config.TLSMutual
	seed.cfg.TLSDir = t.TempDir()

	// The certificate names a user of a cluster with authentication.
	c.fill(secret, s.clients.Certificate, c.issue(s.clients, pki.Request{CommonName: "root", Client: true, Lifetime: time.Hour}))
	for _, step := range []func() error{
		func() error {
			_, err := there.UserAddWithOptions(t.Context(), "root", "", &clientv3.UserAddOptions{NoPassword: true})
			return err
		},
		func() error { _, err := there.RoleAdd(t.Context(), "root"); return err },
		func() error { _, err := there.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := there.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	administrator, err := clientv3.New(clientv3.Config{Endpoints: []string{s.members[0].Endpoint}, TLS: c.settings(s, "root")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = administrator.Close() }()
	s.members[0].Client = administrator
	seed.start()
	c.seedWaits("source-unfit", s, "authentication is enabled")
	if _, err := administrator.AuthDisable(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.lists(administrator, "etcd-0", "c-a")
}

// says returns an error unless the reason of the last decision contains all words.
func (m *member) says(words ...string) error {
	reason := m.last().Reason
	for _, part := range words {
		if !strings.Contains(reason, part) {
			return fmt.Errorf("it says %q, want %q", reason, part)
		}
	}
	return nil
}
