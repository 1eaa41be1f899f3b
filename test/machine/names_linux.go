package machine

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// NameServer responds as the DNS of a Kubernetes cluster without reverse lookup: it knows the names that it was given, and no name of any
// address.
type NameServer struct {
	mu        sync.Mutex
	addresses map[string][]string // by name
	// Reverse counts the questions for the name of an address.
	Reverse atomic.Int64
}

// ServeNames starts a name server on an address, and has the process and those that it starts use it until the test ends. They take its
// address from /etc/resolv.conf, which only a mount namespace can replace for one test: see Apart.
func ServeNames(t *testing.T, address string) *NameServer {
	t.Helper()
	s := &NameServer{addresses: map[string][]string{}}
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(t.Context(), "udp", net.JoinHostPort(address, "53"))
	if err != nil {
		t.Fatal(err)
	}
	var served errgroup.Group
	served.Go(func() error {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return nil
			} else if err != nil {
				return err
			}
			if answer, err := s.answer(buffer[:n]); err == nil {
				_, _ = conn.WriteTo(answer, from) // the resolver repeats its question
			}
		}
	})
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), served.Wait()); err != nil {
			t.Errorf("serve names: %v", err)
		}
	})
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

// Add gives an address to a name, beside those that it has.
func (s *NameServer) Add(name, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses[name] = append(s.addresses[name], address)
}

func (s *NameServer) answer(raw []byte) ([]byte, error) {
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
		s.Reverse.Add(1)
	}
	if len(addresses) == 0 {
		answer.RCode = dnsmessage.RCodeNameError
	}
	for _, address := range addresses {
		if body := record(net.ParseIP(address), q.Type); body != nil {
			header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header, Body: body})
		}
	}
	return answer.Pack()
}

// record returns the address as a record of the type, or nil if it is of the other family.
func record(ip net.IP, kind dnsmessage.Type) dnsmessage.ResourceBody {
	v4 := ip.To4()
	switch {
	case kind == dnsmessage.TypeA && v4 != nil:
		return &dnsmessage.AResource{A: [4]byte(v4)}
	case kind == dnsmessage.TypeAAAA && v4 == nil:
		return &dnsmessage.AAAAResource{AAAA: [16]byte(ip)}
	default:
		return nil
	}
}

// of returns the addresses of a name.
func (s *NameServer) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.addresses[name])
}
