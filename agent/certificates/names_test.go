package certificates

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/pki"
)

// The running etcds compare the names of peers with addresses, unless they were started with names. So a certificate gets names only with a
// new Pod, also when the agent was restarted meanwhile.
func TestACertificateForPeersGetsNoNamesWhileEtcdRuns(t *testing.T) {
	s := newSwap(t, PlanePeer)
	without := s.of(s.old)
	s.give(without)
	with := s.of(s.old)
	with.client = pki.Pair{} // the certificate of the members, which has names
	if s.certs.SkipPeerNames() {
		t.Error("etcd would not compare names although there are none")
	}
	const refused = "client certificate: it has subject alternative names"
	s.give(with)
	s.keeps(refused)
	s.restart()
	s.certs.Load(t.Context())
	s.keeps(refused)
	s.give(without)
	s.keeps("")

	s.newPod()
	s.give(with)
	if err := s.certs.Begin(); err != nil || !s.certs.SkipPeerNames() {
		t.Fatalf("etcd would compare the names of peers (%v)", err)
	}
	for _, next := range []source{s.of(s.old), with} {
		s.restart()
		s.give(next)
		s.keeps("")
	}
}

// Clients have names as they like: etcd does not compare them.
func TestACertificateForClientsMayGetNamesWhileEtcdRuns(t *testing.T) {
	s := newSwap(t, PlaneClient)
	next := s.of(s.old)
	next.client = s.issue(s.old, pki.Request{CommonName: "agent", DNSNames: []string{"agent.example.com"}, Client: true, Lifetime: time.Hour})
	s.give(next)
	if s.keeps(""); s.certs.SkipPeerNames() || strings.TrimSpace(s.certs.Identity()) == "" {
		t.Error("the certificate of the client plane changes how etcd treats peers")
	}
}
