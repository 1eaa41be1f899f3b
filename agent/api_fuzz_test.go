package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/config"
)

// accepted is what the agent logs before it acts.
const accepted = "request to act accepted"

// caller is what an agent knows of a connection before it reads a request.
type caller struct {
	secure   bool   // it came over TLS
	name     string // the common name of its certificate, empty without one
	loopback bool
	mayAct   bool
}

var callers = []caller{
	{},
	{loopback: true},
	{secure: true},
	{secure: true, name: "app"},
	{secure: true, name: "druid-agent", mayAct: true},
}

// script is a connection whose peer sends what it was given and then closes its end.
type script struct {
	in     *strings.Reader
	caller caller

	mu     sync.Mutex
	out    bytes.Buffer
	closed chan struct{}
	once   sync.Once
}

func (s *script) Read(p []byte) (int, error) { return s.in.Read(p) }

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *script) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *script) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8443} }

func (s *script) RemoteAddr() net.Addr {
	if s.caller.loopback {
		return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}
	}
	return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 40000}
}

func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }

// Accept makes a script a listener of one connection.
type scriptListener struct {
	conns chan net.Conn
	end   <-chan struct{}
}

func (l scriptListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	default:
	}
	<-l.end
	return nil, net.ErrClosed
}
func (scriptListener) Close() error   { return nil }
func (scriptListener) Addr() net.Addr { return &net.TCPAddr{} }

// words is a log that several goroutines write.
type words struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// take returns what was written since the last call.
func (w *words) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.buf.Reset()
	return w.buf.String()
}

// complete is an agent with all its parts. Neither Kubernetes nor its etcd responds.
func complete(t testing.TB, written io.Writer) *Agent {
	t.Helper()
	c, dir := secured(t, newCA(t, "ours"), config.TLSMutual).options.Config, t.TempDir()
	c.ClusterUID, c.PodUID, c.PeerService, c.EtcdVersion, c.EtcdPath, c.ListenHost = "cluster-uid", "pod-uid", "demo-peer", "3.6.16", "/absent", "127.0.0.1"
	c.VolumePath, c.SocketPath, c.ConfigPath = filepath.Join(dir, "volume"), filepath.Join(dir, "s"), filepath.Join(dir, "config.yaml")
	a, err := New(Options{
		Config: c, Kubernetes: &rest.Config{Host: "https://127.0.0.1:1"}, Registry: prometheus.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(written, nil)), Version: "v1", Host: func(string) string { return "127.0.0.1" },
	})
	if err != nil {
		t.Fatal(err)
	}
	a.certificates.Load(t.Context())
	if err := a.certificates.Ready(); err != nil {
		t.Fatal(err)
	}
	return a
}

// responds has the agent's real servers serve one connection, and returns all that they wrote to it. An action has actionTime: without
// an etcd, one that waits for an answer would take its own timeout.
func (a *Agent) responds(t testing.TB, from caller, sent string, faults io.Writer) string {
	t.Helper()
	handler := a.handler()
	if from.secure {
		actions := a.actions()
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.TLS = &tls.ConnectionState{}
			if from.name != "" {
				r.TLS.VerifiedChains = [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: from.name}}}}
			}
			ctx, cancel := context.WithTimeout(r.Context(), actionTime)
			defer cancel()
			actions.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	server := a.transport.Server(handler)
	server.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(faults, nil), slog.LevelError)
	conn := &script{in: strings.NewReader(sent), caller: from, closed: make(chan struct{})}
	listener := scriptListener{conns: make(chan net.Conn, 1), end: conn.closed}
	listener.conns <- conn
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		if !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	case <-time.After(inputTime):
		t.Fatalf("the connection of %+v is open after %s", from, inputTime)
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.out.String()
}

const (
	actionTime = 50 * time.Millisecond
	// inputTime is far above what a server needs for an input. The fuzzer has no deadline for one, and does not keep an input that hangs.
	inputTime = 30 * time.Second
)

// FuzzAPI: whatever a caller sends to an agent, it answers, and does nothing for a caller that it does not know.
func FuzzAPI(f *testing.F) {
	for _, request := range []string{
		"POST /v1/snapshots HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nContent-Length: 15\r\n\r\n{\"type\":\"Full\"}",
		"POST /v1/step-down HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"POST /v1/step-down/to HTTP/1.1\r\nHost: a\r\nDruid-Forwarded-By: demo-b\r\nContent-Length: 14\r\n\r\n{\"member\":\"b\"}",
		"POST /v1/defragment HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{\"member\":\"b\"}\r\n0\r\n\r\n",
		"POST //v1/../v1/snapshots?x=%2f HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nnoGET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /readyz HTTP/1.0\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n",
		"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n", "PUT /v1/snapshots HTTP/1.1\r\nHost: a\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
		"POST /v1/snapshots HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n",
		"POST /v1/defragment HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + strings.Repeat(" ", 2000),
		strings.Repeat("POST /v1/step-down HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 5), // five actions on one connection
		"POST /v1/snapshots HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n1",
	} {
		for i := range callers {
			f.Add(request, byte(i))
		}
	}
	var written words
	agent := complete(f, &written)
	f.Fuzz(func(t *testing.T, sent string, by byte) {
		if _, err := http.ReadRequest(bufio.NewReader(strings.NewReader(sent))); err != nil {
			return // net/http rejects it, and waits half a second
		}
		from := callers[int(by)%len(callers)]
		var err error
		if agent.access, err = agent.newAccess(); err != nil { // its limits would leave nothing for the next request
			t.Fatal(err)
		}
		written.take()
		var faults words
		answers := bufio.NewReader(strings.NewReader(agent.responds(t, from, sent, &faults)))
		if strings.Contains(faults.String(), "panic") {
			t.Fatalf("it panics: %s", faults.String())
		}
		if said := written.take(); strings.Contains(said, accepted) && !from.mayAct {
			t.Errorf("it acts for %+v: %s", from, said)
		}
		for {
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			why := refusal{Error: strings.TrimSpace(string(body))}
			_ = json.Unmarshal(body, &why) // probes answer in words
			if response.StatusCode >= http.StatusInternalServerError && why.Error == "" {
				t.Errorf("it answers %s without a cause: %s", response.Status, body)
			}
			if response.StatusCode == http.StatusInternalServerError && !from.mayAct {
				t.Errorf("a caller that may not act makes it fail: %s", body)
			}
		}
	})
}
