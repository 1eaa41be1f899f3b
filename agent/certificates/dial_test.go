package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"testing"
	"time"
)

// TestDialingVerifiesTheMember has a server with a certificate for example.com, and a trusted authority or none.
func TestDialingVerifiesTheMember(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	none := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	for name, test := range map[string]struct {
		host string
		pool *x509.CertPool
		now  time.Time
		err  error
		ok   bool
	}{
		"its name and its authority": {host: "example.com", pool: pool, now: time.Now(), ok: true},
		"another name":               {host: "other.example", pool: pool, now: time.Now()},
		"another authority":          {host: "example.com", pool: x509.NewCertPool(), now: time.Now()},
		"an expired certificate":     {host: "example.com", pool: pool, now: server.Certificate().NotAfter.Add(time.Hour)},
		"no authority can be read":   {host: "example.com", pool: pool, now: time.Now(), err: errors.New("unread")},
	} {
		t.Run(name, func(t *testing.T) {
			settings := dialing(test.host, func() time.Time { return test.now }, func() (*x509.CertPool, error) { return test.pool, test.err }, none)
			dialer := tls.Dialer{Config: settings}
			connection, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			if err == nil {
				_ = connection.Close()
			}
			if (err == nil) != test.ok {
				t.Errorf("connected: %t, want %t: %v", err == nil, test.ok, err)
			}
		})
	}
}
