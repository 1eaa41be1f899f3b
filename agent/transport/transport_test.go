package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestURL(t *testing.T) {
	for name, test := range map[string]struct {
		transport Transport
		host      string
		want      string
	}{
		"plain text":      {Transport{}, "demo-a.demo-peer", "http://demo-a.demo-peer:2379"},
		"TLS":             {Transport{TLS: &tls.Config{}}, "demo-a", "https://demo-a:2379"},
		"an IPv6 address": {Transport{}, "::1", "http://[::1]:2379"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.transport.URL(test.host, 2379); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// One value makes both sides speak TLS: there is no second path.
func TestListenerAndClientSpeakWhatTheTransportSays(t *testing.T) {
	keys := httptest.NewTLSServer(http.NotFoundHandler())
	defer keys.Close()
	roots := x509.NewCertPool()
	roots.AddCert(keys.Certificate())
	for name, transport := range map[string]Transport{
		"plain text": {},
		"TLS":        {TLS: &tls.Config{Certificates: keys.TLS.Certificates, RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13}},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := transport.Listen(t.Context(), "127.0.0.1", 0)
			if err != nil {
				t.Fatal(err)
			}
			server := transport.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if (r.TLS != nil) != (transport.TLS != nil) {
					w.WriteHeader(http.StatusTeapot)
				}
			}))
			done := make(chan error, 1)
			go func() { done <- server.Serve(listener) }()
			t.Cleanup(func() {
				_ = server.Close()
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("serve: %v", err)
				}
			})
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, transport.Scheme()+"://"+listener.Addr().String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.HTTPClient().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusOK {
				t.Errorf("status %d, want 200", response.StatusCode)
			}
		})
	}
}
