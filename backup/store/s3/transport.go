package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

const (
	// dialTimeout and keepIdle are net/http's own defaults for a dial and an idle connection.
	dialTimeout = 30 * time.Second
	keepIdle    = 90 * time.Second
	// idleConnections suit one upload, a parallel restore, and what runs next to them.
	idleConnections = 16
)

// httpClient speaks HTTP/1.1 over connections that break when they stall: a store behind a dead load balancer must cost one
// attempt and not the backup. A bundle of certificates is read at each new connection, so that it can be rotated.
func httpClient(bundle string, stall time.Duration) (*http.Client, error) {
	pool, err := roots(bundle)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stallConn{Conn: c, stall: stall}, nil
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: dial,
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialTLS(ctx, dial, network, address, bundle)
			},
			// Used behind a proxy alone, which leaves net/http to speak TLS.
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
			MaxIdleConnsPerHost: idleConnections,
			IdleConnTimeout:     keepIdle,
			DisableCompression:  true,
		},
		// A redirect is to another region, and must be signed for it: a sentence says so.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func dialTLS(ctx context.Context, dial dialFunc, network, address, bundle string) (net.Conn, error) {
	pool, err := roots(bundle)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	raw, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: pool})
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// roots reads the bundle; nil are the system's.
func roots(bundle string) (*x509.CertPool, error) {
	if bundle == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(bundle)
	if err != nil {
		return nil, fmt.Errorf("%w: s3.caBundle: %w", store.ErrInvalid, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: s3.caBundle %s holds no certificate in PEM", store.ErrInvalid, bundle)
	}
	return pool, nil
}

// stallConn fails when for a time no byte went in either direction. A write also moves on the deadline of the read that
// already waits for its answer.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (c *stallConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
