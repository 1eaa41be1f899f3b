package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/test/member"
)

func TestURL(t *testing.T) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	for name, test := range map[string]struct {
		transport    Transport
		host         string
		client, peer string
	}{
		"plain text":      {Transport{}, "demo-a.demo-peer", "http://demo-a.demo-peer:2379", "http://demo-a.demo-peer:2380"},
		"TLS of clients":  {Transport{Client: secure}, "demo-a", "https://demo-a:2379", "http://demo-a:2380"},
		"TLS of peers":    {Transport{Peer: secure}, "demo-a", "http://demo-a:2379", "https://demo-a:2380"},
		"an IPv6 address": {Transport{}, "::1", "http://[::1]:2379", "http://[::1]:2380"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.transport.ClientURL(test.host, 2379); got != test.client {
				t.Errorf("client URL %s, want %s", got, test.client)
			}
			if got := test.transport.PeerURL(test.host, 2380); got != test.peer {
				t.Errorf("peer URL %s, want %s", got, test.peer)
			}
		})
	}
}

// The agent's own API is plain text, whatever the members use.
func TestTheListenerSpeaksPlainText(t *testing.T) {
	transport := Transport{Client: &tls.Config{MinVersion: tls.VersionTLS12}, Peer: &tls.Config{MinVersion: tls.VersionTLS12}}
	listener, err := transport.Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	server := transport.Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	get(t, transport, "http://"+listener.Addr().String())
}

// The peers' list of members comes over TLS with the settings for peers.
func TestTheHTTPClientUsesTheSettingsForPeers(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	get(t, Transport{Peer: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13}}, server.URL)
}

func get(t *testing.T, transport Transport, url string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
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
}

// A watch with gathered reads loses nothing, whatever the size of the messages, and receives what follows an idle
// time.
func TestAListenerHearsEverything(t *testing.T) {
	m := member.Start(t, member.Minors[1], member.Options{Token: "listener"})
	client, err := Transport{}.Listener(t.Context(), m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watch := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1))
	last := int64(1)
	for _, size := range []int{1, 3000, 1 << 20, 200_000, 1} {
		const puts = 40
		for i := range puts {
			if _, err := m.Client.Put(ctx, fmt.Sprint("k", i), string(make([]byte, size))); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; n < puts; {
			response, ok := <-watch
			if err := response.Err(); !ok || err != nil {
				t.Fatalf("watch of %d bytes: %v", size, err)
			}
			for _, e := range response.Events {
				if e.Kv.ModRevision != last+1 || len(e.Kv.Value) != size {
					t.Fatalf("revision %d of %d bytes, want %d of %d", e.Kv.ModRevision, len(e.Kv.Value), last+1, size)
				}
				last = e.Kv.ModRevision
				n++
			}
		}
	}
}

// A status request each second must not open a connection each second.
func TestAMemberIsAskedOverOneConnection(t *testing.T) {
	m := member.Start(t, member.Minors[1], member.Options{Token: "one"})
	r := newRelay(t, m.Endpoint)
	endpoint := r.endpoint
	client, err := Transport{}.Etcd(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 3 {
		_, err := client.Status(ctx, endpoint)
		_, err2 := client.HashKV(ctx, endpoint, 0)
		_, err3 := client.Get(ctx, "key")
		_, err4 := client.MemberList(ctx)
		_, err5 := client.AlarmList(ctx)
		_, err6 := client.Defragment(ctx, endpoint)
		if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.accepted.Load(); n > 3 { // of nine calls that name the endpoint; a slow machine may break the one
		t.Errorf("%d connections were made", n)
	}
}

// A client that sends little, or nothing more, must not keep a connection of the agent, because each connection uses
// memory.
func TestAServerHasBoundedTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		within time.Duration
	}{
		"nothing":                {"", 5 * time.Second},
		"half a header":          {"GET / HTTP/1.1\r\nHo", 5 * time.Second},
		"half a body":            {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345", 10 * time.Second},
		"a request, and no more": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 2 * time.Minute},
		"a header without end":   {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 1<<20), 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := served(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				go func() { _, _ = io.WriteString(client, c.sent) }() // it is cut off
				start := time.Now()
				must(t, client.SetReadDeadline(start.Add(time.Hour)))
				if _, err := io.Copy(io.Discard, client); err != nil {
					t.Errorf("the connection was not closed: %v", err)
				}
				if took := time.Since(start); took > c.within {
					t.Errorf("the connection was closed after %s, want %s", took, c.within)
				}
			})
		})
	}
}

func TestWhoReadsNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrote := make(chan error, 1)
		client := served(t, func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 1<<20))
			wrote <- err
		})
		must(t, second(io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")))
		select {
		case err := <-wrote:
			if err == nil {
				t.Error("a megabyte was written that nothing read")
			}
		case <-time.After(time.Hour):
			t.Error("the answer is still being written")
		}
	})
}

// A backup on demand takes longer than any other response, and must not be cut off.
func TestAnAnswerMayBeGivenMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := served(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			if err := errors.Join(err, TakeUpTo(w, time.Hour)); err != nil {
				t.Error(err)
			}
			select {
			case <-r.Context().Done():
				t.Errorf("the request ended: %v", r.Context().Err())
			case <-time.After(time.Hour):
			}
			w.WriteHeader(http.StatusAccepted)
		})
		must(t, second(io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345")))
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		must(t, err)
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusAccepted {
			t.Errorf("answered %s", answer.Status)
		}
	})
}

// served returns an in-memory connection to a server of this package.
func served(t *testing.T, handler http.HandlerFunc) net.Conn {
	t.Helper()
	client, accepted := net.Pipe()
	listener := &one{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	listener.conn <- accepted
	server := Transport{}.Server(handler)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return client
}

// one is a listener with one connection.
type one struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *one) Close() error {
	close(l.closed)
	return nil
}

func (l *one) Addr() net.Addr { return &net.TCPAddr{} }

func second[T any](_ T, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
