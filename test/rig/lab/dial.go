package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/plan"
)

// DialContext connects to an address of the rig from outside it: the
// apiserver's, a Pod's or a Service's, by number or by a name that the
// cluster's DNS knows. The signature is that of http.Transport, rest.Config
// and gRPC dialers.
func (l *Lab) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s in rig %q: %w", address, l.plan.Name, err)
	}
	addrs := []string{host}
	if net.ParseIP(host) == nil {
		if addrs, err = l.LookupHost(ctx, host); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, a := range addrs {
		c, err := l.dialIP(ctx, network, net.JoinHostPort(a, port))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("dial %s in rig %q: %w", address, l.plan.Name, errors.Join(errs...))
}

// LookupHost asks the cluster's DNS. Names must be full, up to .svc at least.
func (l *Lab) LookupHost(ctx context.Context, host string) ([]string, error) {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return l.dialIP(ctx, network, net.JoinHostPort(l.plan.Network().ControlPlane, "53"))
	}}
	var errs []error
	for _, name := range candidates(host) {
		addrs, err := r.LookupHost(ctx, name)
		if err == nil {
			return addrs, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// candidates completes a name as a Pod's resolver would, with a final dot that
// keeps this machine's own search list out of it.
func candidates(host string) []string {
	if host[len(host)-1] == '.' {
		return []string{host}
	}
	return []string{host + "." + plan.ClusterDomain + ".", host + "."}
}

// dialIP connects from inside the rig's network namespace.
func (l *Lab) dialIP(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = l.inNetwork(func() (err error) {
		// With a numeric address the socket is made on this very thread.
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	if err != nil && conn != nil {
		_ = conn.Close()
		conn = nil
	}
	return conn, err
}

// Listen waits for connections from the nodes and their Pods, at a free port
// of the control plane's address.
func (l *Lab) Listen(ctx context.Context) (listener net.Listener, err error) {
	err = l.inNetwork(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(l.plan.Network().ControlPlane, "0"))
		return err
	})
	if err != nil && listener != nil {
		_ = listener.Close()
		listener = nil
	}
	if err != nil {
		return nil, fmt.Errorf("listen in rig %q: %w", l.plan.Name, err)
	}
	return listener, nil
}

// inNetwork makes a socket in the rig's network namespace. A socket belongs to
// the namespace in which it was made, for good; so a thread visits the
// namespace to make it. The visit is the errgroup's goroutine: should the
// thread not find its way back, it stays locked and dies with the goroutine.
func (l *Lab) inNetwork(open func() error) error {
	var g errgroup.Group
	g.Go(func() error {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			return err
		}
		defer home.Close()
		rig, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", l.pid))
		if err != nil {
			runtime.UnlockOSThread()
			return fmt.Errorf("the rig is not running: %w", err)
		}
		defer rig.Close()
		if err := unix.Setns(int(rig.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			return fmt.Errorf("enter the rig's network: %w; it needs root", err)
		}
		err = open()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			return errors.Join(err, fmt.Errorf("leave the rig's network: %w", back))
		}
		runtime.UnlockOSThread()
		return err
	})
	return g.Wait()
}
