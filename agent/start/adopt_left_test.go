package start

import (
	"crypto/tls"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
)

// Members join a cluster whose peers use TLS, with certificates of its authority, and the external members leave. Then a user replaces that
// authority in the three edits of the guide. No member trusts it any more, the Secret for the clients of the source is not needed, and a
// member that lost its disk heals.
func TestTheTrustOfASourceEndsAfterItLeft(t *testing.T) {
	names := []string{"c-a", "c-b", "c-c"}
	c := newCluster(t, "3.7.3", names...)
	c.withTLS()
	s := c.secureSource("3.7", 1, "https")
	c.secure.authorities[certificates.PlanePeer] = s.peers
	secret := c.joiningSecurely(s)
	for _, name := range names {
		c.members[name].start()
	}
	c.lists(s.members[0].Client, append(slices.Clone(names), "etcd-0")...)
	c.adopted(s.members)
	c.put("c-a", "here", "before")
	c.sourceLeaves(s, names...)
	if err := os.RemoveAll(secret); err != nil {
		t.Fatal(err)
	}

	next, err := pki.NewAuthority("peers of the EtcdCluster", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	both := slices.Concat(s.peers.Certificate, next.Certificate)
	c.usesForPeers(files{"ca.crt": both}, s.peers, true)
	c.usesForPeers(files{"ca.crt": both}, next, false)
	if !c.peerEnters("c-a", s.peers) {
		t.Error("a peer with a certificate of the source does not get in before its authority is removed")
	}
	c.usesForPeers(files{"ca.crt": next.Certificate}, next, true)
	for _, name := range names {
		if c.peerEnters(name, s.peers) || !c.peerEnters(name, next) {
			t.Errorf("%s admits a peer of the source, or none of its own authority", name)
		}
	}
	c.secure.authorities[certificates.PlanePeer] = next
	lost := c.members["c-b"]
	before := c.voters(names...)
	lost.halt()
	lost.wipe()
	lost.start()
	c.eventually("c-b votes under a new ID", func() error {
		if after := c.voters(names...); after["c-b"] == before["c-b"] {
			return errors.New("it has its former ID")
		}
		return nil
	})
	if got := c.get("c-b", "here"); got != "before" {
		t.Errorf("the member that healed holds %q", got)
	}
}

// sourceLeaves removes the members of the source, as the leader's agent does, and ends them.
func (c *cluster) sourceLeaves(s source, names ...string) {
	c.t.Helper()
	client := c.client(names[0])
	defer func() { _ = client.Close() }()
	list, err := client.MemberList(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range list.Members {
		if slices.Contains(names, m.Name) {
			continue
		}
		c.eventually(m.Name+" is removed", func() error {
			_, err := client.MemberRemove(c.t.Context(), m.ID)
			return err
		})
	}
	s.members[0].Stop(c.t)
	left := c.voters(names...)
	c.changeRecord("the record lists the members that are left", func(r leases.Record) (leases.Record, error) {
		r.MemberList = &leases.MemberList{}
		for _, name := range slices.Sorted(maps.Keys(left)) {
			r.MemberList.Members = append(r.MemberList.Members,
				leases.ListedMember{ID: leases.FormatID(left[name]), Name: name, PeerURL: c.members[name].b.peerURL(name)})
		}
		return r, nil
	})
}

// usesForPeers gives each member certificates of the authority for peers, and other files of the Secret. With restarts,
// the etcds start again in their Pods, one after the other.
func (c *cluster) usesForPeers(with files, authority pki.Pair, restarts bool) {
	c.t.Helper()
	names := slices.Sorted(maps.Keys(c.members))
	for _, name := range names {
		m := c.members[name]
		pairs := pairOf(c.issue(authority, m.request(certificates.PlanePeer))).
			with(clientOf(c.issue(authority, pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour})))
		m.write(certificates.PlanePeer, pairs.with(with))
		if problem := m.problem(certificates.PlanePeer); problem != "" {
			c.t.Fatalf("%s does not use the certificates: %s", name, problem)
		}
	}
	for _, name := range names {
		if restarts {
			c.members[name].halt()
			c.members[name].start()
		}
		c.voters(names...)
	}
}

// peerEnters says whether the peer port of a member admits a certificate of the authority.
func (c *cluster) peerEnters(name string, authority pki.Pair) bool {
	c.t.Helper()
	issued := c.issue(authority, pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour})
	pair, err := tls.X509KeyPair(issued.Certificate, issued.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = c.membersOf(name, false, &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // it is about what etcd verifies
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	})
	return err == nil
}
