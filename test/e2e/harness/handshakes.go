package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// handshakePace is the time between two connections that begin with the same member.
const handshakePace = 100 * time.Millisecond

// Handshaker are clients that follow the docs: for each connection they read the Secret again, and they try the next member when one
// does not serve. Each client begins with another member.
type Handshaker struct {
	connect func(context.Context, string) error
	end     context.CancelFunc
	group   errgroup.Group

	mu    sync.Mutex
	count Handshakes
	last  time.Time // of a connection that succeeded
}

// Handshakes are the connections that a Handshaker made.
type Handshakes struct {
	// Made are all connections, and Failed those that no member served.
	Made, Failed int
	// Missed are the attempts at a single member that failed, and Refused those of them that failed because of a certificate. A member that
	// restarts is missed. etcd reads certificate and key one after the other, so a renewal between the two refuses one attempt.
	Missed, Refused int
	// Gap is the longest time without a connection.
	Gap time.Duration
	// Why are the errors of the attempts that failed.
	Why error
}

func (h Handshakes) String() string {
	return fmt.Sprintf("%d connections were made, %d failed; %d attempts at one member failed, %d of them because of a certificate; longest "+
		"time without a connection %s",
		h.Made, h.Failed, h.Missed, h.Refused, h.Gap.Round(time.Millisecond))
}

// Handshake begins to connect with TLS, ten times a second with each of the named members as the first. Other clients of the cluster need
// not use TLS yet.
func (c *Cluster) Handshake(t testing.TB, members []string) *Handshaker {
	t.Helper()
	settings, err := c.connection.settings()
	if err != nil {
		t.Fatal(err)
	}
	connect := func(ctx context.Context, member string) error {
		// Without the API server, the client uses what it read last.
		_ = c.connection.read(ctx)
		return c.handshake(ctx, member, settings)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := &Handshaker{connect: connect, end: cancel, last: time.Now()}
	for i := range members {
		h.group.Go(func() error {
			inOrder := slices.Concat(members[i:], members[:i])
			for pause(ctx, handshakePace) {
				h.once(ctx, inOrder)
			}
			return nil
		})
	}
	t.Cleanup(h.stop)
	return h
}

// once makes one connection, to the first of the members that serves.
func (h *Handshaker) once(ctx context.Context, members []string) {
	for _, member := range members {
		err := h.connect(ctx, member)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			h.served()
			return
		}
		h.missed(fmt.Errorf("%s at %s: %w", member, time.Now().Format(time.TimeOnly), err))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count.Made++
	h.count.Failed++
}

func (h *Handshaker) served() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count.Made++
	h.count.Gap = max(h.count.Gap, time.Since(h.last))
	h.last = time.Now()
}

func (h *Handshaker) missed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count.Missed++
	if isRefused(err) {
		h.count.Refused++
	}
	h.count.Why = errors.Join(h.count.Why, err)
}

func (h *Handshaker) stop() {
	h.end()
	_ = h.group.Wait() // the errors are counted
}

// Stop ends it and returns the connections.
func (h *Handshaker) Stop() Handshakes {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count.Gap = max(h.count.Gap, time.Since(h.last))
	return h.count
}

// HandshakesFor connects as Handshake does, for a time.
func (c *Cluster) HandshakesFor(t testing.TB, members []string, d time.Duration) Handshakes {
	t.Helper()
	h := c.Handshake(t, members)
	Consistently(t, d, "connecting", func(context.Context) error { return nil })
	return h.Stop()
}

// isRefused says whether one side did not take the certificate of the other, so that the member was reached.
func isRefused(err error) bool {
	_, verified := errors.AsType[*tls.CertificateVerificationError](err)
	// The alerts of a server have a type that crypto/tls does not export.
	return verified || strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
}
