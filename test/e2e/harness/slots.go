package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// slotDial is how long a slot waits for its own member before it tries another one.
const slotDial = 500 * time.Millisecond

// Slots are addresses of this machine without TLS, one for each member of now, for a program that cannot dial into the rig. A connection to
// a slot goes to its member. If that member does not accept it, the connection goes to another member of then or of now: a watch through
// a slot sees all changes, also if its member is gone for good.
func (c *Cluster) Slots(t testing.TB) []string {
	t.Helper()
	members := c.MemberNames(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var g errgroup.Group
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("serve the slots of %s: %v", c, err)
		}
	})
	addresses := make([]string, len(members))
	for i := range members {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("listen for a slot of %s: %v", c, err)
		}
		addresses[i] = listener.Addr().String()
		order := append([]string{members[i]}, append(members[i+1:len(members):len(members)], members[:i]...)...)
		context.AfterFunc(ctx, func() { _ = listener.Close() })
		g.Go(func() error { return c.serveSlot(ctx, &g, listener, order) })
	}
	return addresses
}

func (c *Cluster) serveSlot(ctx context.Context, g *errgroup.Group, listener net.Listener, order []string) error {
	for {
		near, err := listener.Accept()
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			defer near.Close()
			far, err := c.dialSlot(ctx, order)
			if err != nil {
				return nil // no member accepts connections now, and the client dials again
			}
			defer far.Close()
			stop := context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
			defer stop()
			var both errgroup.Group
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				both.Go(func() error {
					_, err := io.Copy(way[0], way[1])
					_, _ = near.Close(), far.Close()
					return err
				})
			}
			_ = both.Wait() // a connection that broke is the client's to dial again
			return nil
		})
	}
	return nil //nolint:nilerr // the test ended, and its end closed the listener
}

// dialSlot connects to the first of the members that accepts the connection, with TLS if the cluster has it.
func (c *Cluster) dialSlot(ctx context.Context, order []string) (net.Conn, error) {
	conn, err := c.dialFirst(ctx, order)
	if err == nil {
		return conn, nil
	}
	record, unknown := c.Record(ctx)
	if unknown != nil {
		return nil, errors.Join(err, unknown)
	}
	return c.dialFirst(ctx, record.Members)
}

func (c *Cluster) dialFirst(ctx context.Context, members []string) (net.Conn, error) {
	var refused []error
	for _, member := range members {
		conn, err := c.dialMember(ctx, member)
		if err == nil {
			return conn, nil
		}
		refused = append(refused, err)
	}
	return nil, errors.Join(refused...)
}

func (c *Cluster) dialMember(ctx context.Context, member string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, slotDial)
	defer cancel()
	conn, err := c.dialer.dial(ctx, Endpoint(member))
	if err != nil || !c.secure {
		return conn, err
	}
	settings, err := c.tlsSettings()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	settings.NextProtos = []string{"h2"}
	settings.ServerName = strings.Split(Endpoint(member), ":")[0]
	secured := tls.Client(conn, settings)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}
