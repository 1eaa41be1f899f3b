package certificates

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/pki"
)

// TestPeerNamesFixedWhileEtcdRuns: a certificate for peers gets no names while etcd runs.
// The running etcds compare the names of peers with addresses, unless they were started with names. So a certificate gets names only with a
// new Pod, also when the agent was restarted meanwhile.
func TestPeerNamesFixedWhileEtcdRuns(t *testing.T) {
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

// The other members run without names. A certificate with names that a new Pod has put in place already is taken back, and none gets there.
func TestNewPodUsesNoNamesOthersCompare(t *testing.T) {
	s := newSwap(t, PlanePeer)
	without, with := s.of(s.old), s.of(s.old)
	with.client = pki.Pair{}
	if state := s.certs.States()[0]; !state.ComparesNames || s.certs.NamesDepend() {
		t.Errorf("a member that runs without names has %+v, and depends on others: %t", state, s.certs.NamesDepend())
	}
	refuses := func() {
		t.Helper()
		if err := s.certs.Ready(); err == nil || !strings.Contains(err.Error(), "client certificate: it has subject alternative names") || !s.certs.NamesDepend() {
			t.Errorf("etcd could start with names that the others compare: %v", err)
		}
	}
	s.newPod()
	s.give(with)
	if err := s.certs.Ready(); err != nil || !s.certs.NamesDepend() {
		t.Fatalf("the certificate depends on the others: %t (%v)", s.certs.NamesDepend(), err)
	}
	s.certs.OthersCompareNames(true)
	refuses()
	s.certs.Load(t.Context())
	refuses()
	s.give(without)
	s.certs.OthersCompareNames(true)
	if err := s.certs.Ready(); err != nil {
		t.Errorf("etcd does not start without names: %v", err)
	}
	s.give(with)
	if state := s.certs.States()[0]; !strings.Contains(state.Problem, "subject alternative names") || s.certs.SkipPeerNames() {
		t.Errorf("a certificate with names takes the place of one without: %+v", state)
	}
	s.certs.OthersCompareNames(false)
	s.certs.Load(t.Context())
	if err := s.certs.Begin(); err != nil || !s.certs.SkipPeerNames() || s.certs.NamesDepend() {
		t.Errorf("etcd starts with names that the others do not compare: %v", err)
	}
	if state := s.certs.States()[0]; state.ComparesNames {
		t.Errorf("a member that runs with names has %+v", state)
	}
}

// TestClientNamesMayGrowWhileEtcdRuns: a certificate for clients may get names while etcd runs.
// Clients have names as they like: etcd does not compare them.
func TestClientNamesMayGrowWhileEtcdRuns(t *testing.T) {
	s := newSwap(t, PlaneClient)
	next := s.of(s.old)
	next.client = s.issue(s.old, pki.Request{CommonName: "agent", DNSNames: []string{"agent.example.com"}, Client: true, Lifetime: time.Hour})
	s.give(next)
	if s.keeps(""); s.certs.SkipPeerNames() || strings.TrimSpace(s.certs.Identity()) == "" {
		t.Error("the certificate of the client plane changes how etcd treats peers")
	}
}
