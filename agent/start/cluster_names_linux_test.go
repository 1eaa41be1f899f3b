package start

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/machine"
)

// ownNames is set in the process of a test that has a name server of its own.
const ownNames = "DRUID_TEST_OWN_NAMES"

// nameServer answers as the DNS of a Kubernetes cluster without reverse lookup: it knows the members and their headless Service, and
// no name of any address.
type nameServer struct {
	mu        sync.Mutex
	addresses map[string][]string // by name
	// reverse counts the questions for the name of an address.
	reverse atomic.Int64
}

// withNames repeats the test in a process with its own name server, and returns false in the process that did so. etcd and the agents
// take the address of that server from /etc/resolv.conf, which only a mount namespace can replace for one test.
func withNames(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv(ownNames) != "" {
		return true
	}
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inner := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^"+t.Name()+"$")
	inner.Env = append(os.Environ(), ownNames+"=1")
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	output, err := inner.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Fatal("only root may replace /etc/resolv.conf for one process, and listen on port 53: run this test as root")
	}
	if t.Logf("%s", output); err != nil {
		t.Fatal(err)
	}
	return false
}

// named is newCluster whose members connect to each other by their names.
func (s *nameServer) named(t *testing.T, version string, names ...string) *cluster {
	t.Helper()
	c := newCluster(t, version, names...)
	c.named = true
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range c.members {
		host := PeerHost(m.cfg, m.name)
		service := strings.TrimPrefix(host, m.name+".")
		s.addresses[host] = []string{m.cfg.ListenHost}
		s.addresses[service] = append(s.addresses[service], m.cfg.ListenHost)
	}
	return c
}

// serveNames answers questions until the test ends.
func serveNames(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{addresses: map[string][]string{}}
	address := machine.Network(t) + "53"
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(t.Context(), "udp", net.JoinHostPort(address, "53"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer, err := s.answer(buffer[:n]); err == nil {
				_, _ = conn.WriteTo(answer, from) // the one who asks asks again
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-served })
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, "")
	}
	if err != nil {
		t.Fatalf("replace /etc/resolv.conf: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/etc/resolv.conf", unix.MNT_DETACH) })
	return s
}

func (s *nameServer) answer(raw []byte) ([]byte, error) {
	var question dnsmessage.Message
	if err := question.Unpack(raw); err != nil || len(question.Questions) != 1 {
		return nil, errors.Join(err, errors.New("want one question"))
	}
	q := question.Questions[0]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: question.ID, Response: true, Authoritative: true, RecursionDesired: question.RecursionDesired},
		Questions: question.Questions,
	}
	addresses := s.of(strings.TrimSuffix(q.Name.String(), "."))
	if q.Type == dnsmessage.TypePTR {
		s.reverse.Add(1)
	}
	if len(addresses) == 0 {
		answer.RCode = dnsmessage.RCodeNameError
	}
	if q.Type == dnsmessage.TypeA {
		for _, address := range addresses {
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(address).To4())},
			})
		}
	}
	return answer.Pack()
}

// of returns the addresses of a member, or of all for the name of their Service.
func (s *nameServer) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.addresses[name])
}

// TestFormAndHealWithoutReverseLookup: members form and heal without reverse lookup.
// Members whose addresses have no names form a cluster with TLS of peers, and one that lost its disk joins it again. etcd compares the
// names in a certificate with the names of the address that it comes from, and there are none.
func TestFormAndHealWithoutReverseLookup(t *testing.T) {
	if !withNames(t) {
		return
	}
	server := serveNames(t)
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		for name, onePair := range map[string]bool{"peers have a certificate without names": false, "peers show the certificate of the members": true} {
			t.Run(version+": "+name, func(t *testing.T) {
				t.Parallel()
				c := server.named(t, version, "c-a", "c-b", "c-c")
				c.withTLS()
				c.secure.onePair = onePair
				c.formsAndHeals()
				for _, m := range c.members {
					if _, err := net.DefaultResolver.LookupAddr(context.WithoutCancel(t.Context()), m.cfg.ListenHost); err == nil {
						t.Errorf("the address of %s has a name", m.name)
					}
				}
				if server.reverse.Load() == 0 {
					t.Error("the name server was asked nothing")
				}
				view, err := c.view("c-a")
				if err != nil || !strings.Contains(view.Members[0].PeerURLs[0], ".c-peer.") {
					t.Errorf("the members are not listed by name: %+v, %v", view.Members, err)
				}
				c.outsidersStayOut()
			})
		}
	}
}
