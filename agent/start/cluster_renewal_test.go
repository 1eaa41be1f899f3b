package start

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/loop"
)

// New certificates of the same authority take effect without a restart of any etcd, while clients connect all the time.
func TestNewCertificatesRestartNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a", "c-b", "c-c")
	c.withTLS()
	for _, m := range c.members {
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	var handshakes, refused, failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	names := slices.Sorted(maps.Keys(c.members))
	for i := range names {
		group.Go(func() error {
			for ctx.Err() == nil {
				handshakes.Add(1)
				if !c.serves(ctx, slices.Concat(names[i:], names[:i]), &refused) && ctx.Err() == nil {
					failed.Add(1)
				}
				loop.Sleep(ctx, 10*time.Millisecond)
			}
			return nil
		})
	}
	defer func() { stop(); _ = group.Wait() }()
	for round := range 5 {
		for _, m := range c.members {
			c.replaceCertificates(m)
		}
		c.eventually("clients connect", func() error {
			if n := handshakes.Load(); n < int64(round+1)*100 {
				return fmt.Errorf("%d handshakes", n)
			}
			return nil
		})
	}
	c.put("c-a", "color", "blue")
	stop()
	_ = group.Wait()
	// etcd reads certificate and key one after the other: a handshake that meets the moment of the change fails once.
	if failed.Load() > 0 || refused.Load() > 2 {
		t.Errorf("of %d clients, %d were served by no member, and %d handshakes failed", handshakes.Load(), failed.Load(), refused.Load())
	}
	t.Logf("%d clients, %d handshakes failed", handshakes.Load(), refused.Load())
	for name, m := range c.members {
		if rules := m.rules(); len(slices.Compact(slices.Clone(rules))) != len(rules) || slices.Contains(rules, "resume") {
			t.Errorf("%s started again: %v", name, rules)
		}
	}
}

// serves connects to the members in order, as a client does, until one serves. It counts those that do not.
func (c *cluster) serves(ctx context.Context, names []string, refused *atomic.Int64) bool {
	for _, name := range names {
		_, err := serialOf(ctx, c.members[name], c.secure.dial.Client)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			refused.Add(1)
			c.t.Logf("handshake with %s: %v", name, err)
		}
	}
	return false
}

// replaceCertificates mounts new certificates for the member, and checks that its etcd shows the new one at once.
func (c *cluster) replaceCertificates(m *member) {
	c.t.Helper()
	before, err := serialOf(c.t.Context(), m, c.secure.dial.Client)
	if err != nil {
		c.t.Fatal(err)
	}
	m.mount()
	m.b.certs.Load(c.t.Context())
	after, err := serialOf(c.t.Context(), m, c.secure.dial.Client)
	if err != nil || after == before {
		c.t.Errorf("%s shows the certificate %s as before (%v)", m.name, after, err)
	}
}

// serialOf returns the serial number of the certificate that the member shows in a fresh handshake.
func serialOf(ctx context.Context, m *member, settings *tls.Config) (serial string, err error) {
	dialer := &tls.Dialer{Config: settings}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(m.cfg.ListenHost, fmt.Sprint(config.ClientPort)))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}
