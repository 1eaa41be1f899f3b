package agent

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// port is a port of actions of an agent, with its real limits and times.
type port struct {
	t        *testing.T
	address  string
	settings *tls.Config
}

func serveActions(t *testing.T) port {
	t.Helper()
	a := complete(t, io.Discard)
	return port{t, net.JoinHostPort("127.0.0.1", strconv.Itoa(a.serves(t, a.actions()))), a.certificates.Client()}
}

// dial connects with the certificate of an agent.
func (p port) dial() net.Conn {
	p.t.Helper()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Minute}, Config: p.settings}).DialContext(p.t.Context(), "tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// send writes to the connection and returns the status of the response.
func (p port) send(conn net.Conn, text string) int {
	p.t.Helper()
	go func() { _, _ = io.WriteString(conn, text) }() // the agent can close the connection before it read all
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode
}

// closes checks that the agent ends a connection within the time, and not before.
func (p port) closes(conn net.Conn, after time.Duration) {
	p.t.Helper()
	began := time.Now()
	if err := conn.SetReadDeadline(began.Add(after + 20*time.Second)); err != nil {
		p.t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Errorf("the connection is open after %s", time.Since(began))
	}
	if took := time.Since(began); took < after-time.Second {
		p.t.Errorf("the connection was closed after %s, want %s", took, after)
	}
}

const head = "POST " + defragPath + " HTTP/1.1\r\nHost: a\r\n"

// Each row of the page Use the HTTP API of the agents that has a limit.
func TestTheAPIKeepsItsLimits(t *testing.T) {
	t.Run("a header that is sent slowly", func(t *testing.T) {
		t.Parallel()
		p := serveActions(t)
		conn := p.dial()
		go func() {
			_, err := io.WriteString(conn, head)
			for range time.Tick(50 * time.Millisecond) {
				if err != nil {
					return
				}
				_, err = io.WriteString(conn, "X: a\r\n")
			}
		}()
		p.closes(conn, 5*time.Second)
	})
	t.Run("a body that is sent slowly", func(t *testing.T) {
		t.Parallel()
		p := serveActions(t)
		if code := p.send(p.dial(), head+"Content-Length: 15\r\n\r\n{\"mem"); code != http.StatusBadRequest {
			t.Errorf("answered %d, want 400", code)
		}
	})
	t.Run("an idle connection", func(t *testing.T) {
		t.Parallel()
		p := serveActions(t)
		conn := p.dial()
		if code := p.send(conn, head+"Content-Length: 2\r\n\r\n{}"); code != http.StatusBadRequest {
			t.Errorf("answered %d, want 400", code)
		}
		p.closes(conn, 5*time.Second)
	})
	t.Run("a header that is too large", func(t *testing.T) {
		t.Parallel()
		p := serveActions(t)
		if code := p.send(p.dial(), head+"X: "+strings.Repeat("x", 32<<10)+"\r\n\r\n"); code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %d, want 431", code)
		}
	})
	t.Run("a body that is too large", func(t *testing.T) {
		t.Parallel()
		p := serveActions(t)
		if code := p.send(p.dial(), head+"Content-Length: 1025\r\n\r\n"+strings.Repeat(" ", 1025)); code != http.StatusBadRequest {
			t.Errorf("answered %d, want 400", code)
		}
	})
	t.Run("too many requests", func(t *testing.T) {
		t.Parallel()
		p := serveActions(t)
		codes := map[int]int{}
		for range 20 {
			codes[p.send(p.dial(), head+"Connection: close\r\nContent-Length: 2\r\n\r\n{}")]++
		}
		if codes[http.StatusTooManyRequests] == 0 || codes[http.StatusBadRequest] < 5 || len(codes) != 2 {
			t.Errorf("answers by status: %v, want 400 and 429", codes)
		}
	})
}

// connections is the limit on the page Use the HTTP API of the agents.
const connections = 64

// The next connection above the limit waits, and is served when another one ends.
func TestTheAPIHasFewConnections(t *testing.T) {
	a, arrived, release := complete(t, io.Discard), make(chan struct{}), make(chan struct{})
	p := port{t, net.JoinHostPort("127.0.0.1", strconv.Itoa(a.serves(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})))), a.certificates.Client()}
	request := func(conn net.Conn) {
		t.Helper()
		if _, err := io.WriteString(conn, head+"Connection: close\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	for range connections {
		request(p.dial())
		<-arrived
	}
	next, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.address) // the kernel accepts it
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	done := make(chan error, 1)
	secured := tls.Client(next, p.settings)
	go func() { done <- secured.HandshakeContext(t.Context()) }()
	select {
	case err := <-done:
		t.Fatalf("connection %d is served: %v", connections+1, err)
	case <-time.After(time.Second):
	}
	close(release)
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("the next connection: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the next connection is not served when the others ended")
	}
	request(secured)
	<-arrived
}
