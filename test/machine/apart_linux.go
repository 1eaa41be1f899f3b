package machine

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// isApart is set in the process of a test that runs apart.
const isApart = "DRUID_TEST_APART"

// Apart repeats the test in a process of its own with new namespaces, unix.CLONE_NEWNS and unix.CLONE_NEWNET for instance, and returns
// false in the process that did so. The kernel removes the namespaces with their last process. The test must run as root, and is parallel.
func Apart(t *testing.T, namespaces uintptr) (inside bool) {
	t.Helper()
	if os.Getenv(isApart) != "" {
		return true
	}
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inner := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^"+t.Name()+"$")
	inner.Env = append(os.Environ(), isApart+"=1")
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	output, err := inner.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Fatal("only root may make namespaces: run this test as root")
	}
	if t.Logf("%s", output); err != nil {
		t.Fatal(err)
	}
	return false
}

// Loopback starts the loopback interface of a new network namespace, and gives it the IPv6 addresses: there is one without that.
func Loopback(t *testing.T, addresses ...string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("start the loopback interface: %v", err)
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
	for _, address := range addresses {
		// struct in6_ifreq of linux/ipv6.h
		added := struct {
			ip     [16]byte
			prefix uint32
			index  int32
		}{netip.MustParseAddr(address).As16(), 128, int32(lo.Index)}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&added))); errno != 0 {
			t.Fatalf("add %s to the loopback interface: %v", address, errno)
		}
	}
}
