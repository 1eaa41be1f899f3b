package machine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"
)

const (
	// firstPort and lastPort bound the ports that are given away. The kernel takes ports for outgoing connections, and for
	// listeners that ask for any, from a range of its own (net.ipv4.ip_local_port_range, 32768 to 60999 unless someone
	// changed it): a port from there can be gone between the moment it is found free and the moment a server listens.
	firstPort, lastPort = 10000, 29999
	// attempts at a port. A handful of servers run at once, so the second one succeeds.
	attempts = 1000
)

// kernelPorts is the file in which the kernel reports its own range.
const kernelPorts = "/proc/sys/net/ipv4/ip_local_port_range"

// Port reserves a TCP port of 127.0.0.1 until the test ends. A server that the test starts after the call, and ends
// before the test does, finds it free.
func Port(tb testing.TB) int {
	tb.Helper()
	port, release, err := Reserve(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	return port
}

// Address is 127.0.0.1 with a port that is reserved until the test ends.
func Address(tb testing.TB) string {
	tb.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Port(tb)))
}

// Network reserves a network of loopback addresses, like "127.16.1.", until the test ends. Every port of each of its 254
// addresses is the test's own.
func Network(tb testing.TB) string {
	tb.Helper()
	var err error
	for range attempts {
		network := fmt.Sprintf("127.%d.%d.", 16+rand.IntN(200), rand.IntN(256))
		var release func()
		if release, err = mark(tb.Context(), network); err == nil {
			tb.Cleanup(release)
			return network
		}
	}
	tb.Fatalf("no free network below 127.0.0.0/8: %v", err)
	return ""
}

// Reserve is Port for what outlives a test.
func Reserve(ctx context.Context) (port int, release func(), err error) {
	low, high := kernelRange()
	for range attempts {
		port = firstPort + rand.IntN(lastPort-firstPort+1)
		if low <= port && port <= high && !(low <= firstPort && lastPort <= high) {
			continue
		}
		if release, err = reserve(ctx, port); err == nil {
			return port, release, nil
		}
	}
	return 0, nil, fmt.Errorf("no free port from %d to %d of 127.0.0.1: %w", firstPort, lastPort, err)
}

// reserve takes a port from all other tests, then looks whether anybody else has it.
func reserve(ctx context.Context, port int) (release func(), err error) {
	release, err = mark(ctx, strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	probe, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		err = probe.Close()
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// mark takes a name from all other tests of this machine: an abstract unix socket belongs to a network namespace, as
// ports do, and goes with the process that holds it.
func mark(ctx context.Context, name string) (release func(), err error) {
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "unix", "@druid-test-"+name)
	if err != nil {
		return nil, err
	}
	return func() { _ = socket.Close() }, nil
}

// kernelRange is the range of the kernel's own ports; where it cannot be read, the usual one, which is not ours.
func kernelRange() (low, high int) {
	raw, err := os.ReadFile(kernelPorts)
	if err == nil {
		_, err = fmt.Sscan(string(raw), &low, &high)
	}
	if err != nil {
		return 32768, 60999
	}
	return low, high
}
