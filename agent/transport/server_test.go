package transport

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Anyone who says little, or nothing more, must not keep a connection of the agent: there are as many as its memory has room for.
func TestAServerHasBoundedPatience(t *testing.T) {
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

// A backup on demand takes longer than any other answer, and must not be cut off.
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

// served returns a connection to a server of ours, in memory.
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
