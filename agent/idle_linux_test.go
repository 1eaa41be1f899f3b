package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/test/machine"
)

// secure gives the Pod TLS of clients with certificates of the authority. It is called before the agent starts.
func (p *pod) secure(authority pki.Pair) {
	p.t.Helper()
	p.config.ClientTLS, p.config.ClientService = config.TLSMutual, "demo-client"
	p.config.TLSSource, p.config.TLSDir, p.config.APIPort = p.t.TempDir(), p.t.TempDir(), machine.Port(p.t)
	p.issue(authority)
}

// issue writes new certificates to where the Secret of the Pod is mounted.
func (p *pod) issue(authority pki.Pair) {
	p.t.Helper()
	signer, err := pki.ParseAuthority(authority, time.Now())
	p.must(err)
	dir := filepath.Join(p.config.TLSSource, certificates.PlaneClient)
	p.must(os.MkdirAll(dir, 0o700))
	p.must(os.WriteFile(filepath.Join(dir, "ca.crt"), authority.Certificate, 0o600))
	for name, r := range map[string]pki.Request{
		"tls":    {CommonName: "etcd", DNSNames: []string{"demo-client." + p.namespace + ".svc"}, Server: true, Client: true, Lifetime: time.Hour},
		"client": {CommonName: "druid-agent", Client: true, Lifetime: time.Hour},
	} {
		pair, err := signer.Issue(r, time.Now())
		p.must(err)
		p.must(os.WriteFile(filepath.Join(dir, name+".crt"), pair.Certificate, 0o600))
		p.must(os.WriteFile(filepath.Join(dir, name+".key"), pair.Key, 0o600))
	}
}

// connections are those to the client port of the Pod, by the port of the client.
type connections struct {
	// seen has all, also those that were closed during the last minute. The kernel remembers them in the state TIME_WAIT.
	seen map[uint64]bool
	// ours are the open ones of this process, and so of the agent.
	ours map[uint64]bool
}

// connections reads what the kernel lists (man 5 proc_pid_net).
func (p *pod) connections() connections {
	p.t.Helper()
	found := connections{seen: map[uint64]bool{}, ours: map[uint64]bool{}}
	own := p.sockets()
	raw, err := os.ReadFile("/proc/self/net/tcp")
	p.must(err)
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 10 || !strings.Contains(f[2], ":") {
			continue // the header
		}
		local, remote := p.portOf(f[1]), p.portOf(f[2])
		switch port := uint64(p.config.ClientPort); {
		case local == port && remote != 0:
			found.seen[remote] = true
		case remote == port:
			found.seen[local] = true
			if own["socket:["+f[9]+"]"] {
				found.ours[local] = true
			}
		}
	}
	return found
}

func (p *pod) portOf(address string) uint64 {
	p.t.Helper()
	_, port, _ := strings.Cut(address, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	p.must(err)
	return n
}

// sockets of this process, as the links in its list of open files.
func (p *pod) sockets() map[string]bool {
	p.t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	p.must(err)
	own := map[string]bool{}
	for _, entry := range entries {
		if link, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name())); err == nil { // otherwise it was closed
			own[link] = true
		}
	}
	return own
}

// without returns what is in a and not in b.
func without(a, b map[uint64]bool) (rest []uint64) {
	for port := range a {
		if !b[port] {
			rest = append(rest, port)
		}
	}
	return rest
}

// Each connection costs a TLS handshake, which was half of the CPU time of an agent at rest. The leader's agent asks
// its etcd every few seconds, over connections that it has.
func TestAnIdleAgentMakesNoConnections(t *testing.T) {
	p := newPod(t, quick())
	authority, err := pki.NewAuthority("clients", time.Now(), time.Hour)
	p.must(err)
	p.secure(authority)
	a, stop := p.startAgent()
	p.formed()
	p.eventually("the agent leads and its etcd is healthy", func() error {
		if s := a.Status(); !s.Etcd.Healthy || !s.Leading {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	pause(t.Context(), 10*time.Second) // until each task has asked once

	// A minute has twelve looks of the leader's duties, as many at the quorum, two at the users of etcd, and one at the
	// size of its database.
	const rest = time.Minute
	before := p.connections()
	if len(before.ours) == 0 {
		t.Fatal("the agent has no connection to its etcd")
	}
	after := before
	for begun := time.Now(); time.Since(begun) < rest; pause(t.Context(), time.Second) {
		after = p.connections()
		for port := range before.seen {
			after.seen[port] = true
		}
		if n := without(after.seen, before.seen); len(n) > 0 {
			t.Fatalf("after %s at rest, %d connections were made, want none", time.Since(begun), len(n))
		}
	}
	t.Logf("%d connections are open", len(after.ours))

	p.issue(authority)
	p.eventually("after a renewal the agent dials again", func() error {
		if now := p.connections(); len(without(now.ours, after.ours)) == 0 || len(without(after.ours, now.ours)) == 0 {
			return fmt.Errorf("it has the connections %v, and had %v", now.ours, after.ours)
		}
		return nil
	})

	stop()
	p.eventually("an agent that ended has no connection", func() error {
		if now := p.connections(); len(now.ours) > 0 {
			return fmt.Errorf("it has %d", len(now.ours))
		}
		return nil
	})
}
