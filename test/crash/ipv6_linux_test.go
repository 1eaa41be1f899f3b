package crash_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

// ownNetwork is set in the process of a test that has a network of its own.
const ownNetwork = "DRUID_TEST_OWN_NETWORK"

// withNetwork repeats the test in a process with its own network, and returns false in the process that did so. IPv6 has one loopback
// address, and each member needs one. The kernel removes the network with its last process.
func withNetwork(t *testing.T, hosts []string) (inside bool) {
	t.Helper()
	if os.Getenv(ownNetwork) != "" {
		interfaceUp(t, hosts)
		return true
	}
	t.Parallel()
	// A build can need the network of the machine.
	if _, err := built(); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inner := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^"+t.Name()+"$")
	inner.Env = append(os.Environ(), ownNetwork+"=1")
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	output, err := inner.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Fatal("only root may create a network: run this test as root")
	}
	if t.Logf("%s", output); err != nil {
		t.Fatal(err)
	}
	return false
}

// interfaceUp gives the addresses to the loopback interface, which is down in a new network.
func interfaceUp(t *testing.T, hosts []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	socket, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	defer func() { must(unix.Close(socket)) }()
	request, err := unix.NewIfreq("lo")
	must(err)
	request.SetUint16(unix.IFF_UP)
	must(unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request))
	lo, err := net.InterfaceByName("lo")
	must(err)
	for _, host := range hosts {
		// struct in6_ifreq of linux/ipv6.h
		address := struct {
			ip     [16]byte
			prefix uint32
			index  int32
		}{netip.MustParseAddr(host).As16(), 128, int32(lo.Index)}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&address))); errno != 0 {
			t.Fatalf("add %s: %v", host, errno)
		}
	}
}

// Members whose addresses are all of IPv6 form a cluster, back up, and replace a member that lost its disk.
func TestMembersOfIPv6(t *testing.T) {
	// Unique local addresses, as the Pods of a cluster of IPv6 have.
	hosts := []string{"fd00:7::1", "fd00:7::2", "fd00:7::3"}
	if !withNetwork(t, hosts) {
		return
	}
	c := newClusterAt(t, hosts...)
	c.form()
	c.advertises(hosts)

	lost := c.follower()
	before, err := c.store.Member(t.Context(), lost.name)
	c.must(err)
	lost.loseDisk()
	c.heals()
	if now, err := c.store.Member(t.Context(), lost.name); err != nil || now.ID == before.ID {
		t.Errorf("the member that lost its disk has the ID %x, and had %x: %v", now.ID, before.ID, err)
	}
	c.keeps("born", "yes")
	c.advertises(hosts)

	path := t.TempDir()
	c.snapshotLeases()
	for _, p := range c.pods {
		p.backups = path
		p.configureBackups()
	}
	c.follower().savesOn()
}

// advertises checks that all URLs of all members have one of the hosts.
func (c *cluster) advertises(hosts []string) {
	c.t.Helper()
	c.must(c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			for _, text := range slices.Concat(m.ClientURLs, m.PeerURLs) {
				if u, err := url.Parse(text); err != nil || !slices.Contains(hosts, u.Hostname()) {
					c.t.Errorf("%s has the URL %s, want one of %v: %v", m.Name, text, hosts, err)
				}
			}
		}
		return nil
	}))
}

// loseDisk ends the member as a power cut does, and starts it again with an empty volume.
func (p *pod) loseDisk() {
	p.c.t.Helper()
	p.powerOff()
	p.c.must(os.RemoveAll(p.config.VolumePath))
	p.c.must(os.Mkdir(p.config.VolumePath, 0o700))
	p.startLaunch()
	p.startAgent("")
}
