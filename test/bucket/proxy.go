package bucket

import (
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Proxy stands before a server and lets a rule decide about each request.
type Proxy struct {
	Endpoint string
	forward  *httputil.ReverseProxy

	mu   sync.Mutex
	rule func(operation string, r *http.Request) Fault
	seen map[string]int
}

// Fault handles a request in its own way; nil hands it on.
type Fault func(w http.ResponseWriter, r *http.Request, forward http.Handler)

// Before starts a proxy that ends with the test and, until Break, hands on everything.
func (s *Server) Before(tb testing.TB) *Proxy {
	tb.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	p := newProxy(target)
	p.run(tb, httptest.NewServer(p))
	return p
}

// BeforeTLS is Before, and speaks TLS with a certificate of its own for 127.0.0.1, which it returns in PEM.
func (s *Server) BeforeTLS(tb testing.TB) (p *Proxy, certificate []byte) {
	tb.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	p = newProxy(target)
	server := httptest.NewTLSServer(p)
	p.run(tb, server)
	return p, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func newProxy(target *url.URL) *Proxy {
	p := &Proxy{seen: map[string]int{}}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // which is signed
		},
		Transport:     &http.Transport{DisableCompression: true},
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) },
	}
	return p
}

func (p *Proxy) run(tb testing.TB, server *httptest.Server) {
	tb.Helper()
	p.Endpoint = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
}

// Break sets the rule; nil repairs everything.
func (p *Proxy) Break(rule func(operation string, r *http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// First breaks the first n requests of an operation and hands on all else.
func First(n int, operation string, f Fault) func(string, *http.Request) Fault {
	return func(op string, _ *http.Request) Fault {
		if op != operation || n == 0 {
			return nil
		}
		n--
		return f
	}
}

// Seen counts the requests of an operation, broken ones too.
func (p *Proxy) Seen(operation string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[operation]
}

// Operations are the counts of all operations that were seen.
func (p *Proxy) Operations() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	op := operation(r)
	p.seen[op]++
	var f Fault
	if p.rule != nil {
		f = p.rule(op, r)
	}
	p.mu.Unlock()
	if f == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	f(w, r, p.forward)
}

// operation is S3's name of a request, as far as the stores use it.
func operation(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		return "CreateMultipartUpload"
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return "CompleteMultipartUpload"
	case r.Method == http.MethodPut && q.Has("uploadId"):
		return "UploadPart"
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return "AbortMultipartUpload"
	case r.Method == http.MethodPut:
		return "PutObject"
	case r.Method == http.MethodHead:
		return "HeadObject"
	case r.Method == http.MethodDelete:
		return "DeleteObject"
	case q.Has("uploads"):
		return "ListMultipartUploads"
	case q.Has("list-type"):
		return "ListObjectsV2"
	}
	return "GetObject"
}

// Answer answers with an error of S3 and does nothing.
func Answer(status int, code string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>requested failure</Message></Error>", code)
	}
}

// Reset breaks the connection before the server hears of the request.
func Reset(w http.ResponseWriter, _ *http.Request, _ http.Handler) { reset(w) }

// LoseAnswer lets the server do what it was asked for and breaks the connection instead of telling so.
func LoseAnswer(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	forward.ServeHTTP(httptest.NewRecorder(), r)
	reset(w)
}

// Hang answers nothing until the client gives up.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	// The server notices that the client is gone only once the body is read.
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// CutRequest hands on n bytes of the request's body and breaks both connections.
func CutRequest(n int64) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, n), broken{}))
		forward.ServeHTTP(httptest.NewRecorder(), r)
		reset(w)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// CutAnswer hands on n bytes of the answer's body and closes the connection.
func CutAnswer(n int) Fault {
	return alter(func(w http.ResponseWriter, r *http.Request, body []byte) {
		_, _ = w.Write(body[:min(n, len(body))])
		_ = http.NewResponseController(w).Flush()
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	})
}

// HangAnswer hands on n bytes of the answer's body, and then nothing until the client gives up.
func HangAnswer(n int) Fault {
	return alter(func(w http.ResponseWriter, r *http.Request, body []byte) {
		_, _ = w.Write(body[:min(n, len(body))])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
}

// Slow hands on the answer's body in pieces, with a pause after each.
func Slow(piece int, pause time.Duration) Fault {
	return alter(func(w http.ResponseWriter, r *http.Request, body []byte) {
		for len(body) > 0 {
			n := min(piece, len(body))
			_, _ = w.Write(body[:n])
			_ = http.NewResponseController(w).Flush()
			body = body[n:]
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

// Edit changes the answer's body in place.
func Edit(change func(body []byte)) Fault {
	return alter(func(w http.ResponseWriter, _ *http.Request, body []byte) {
		change(body)
		_, _ = w.Write(body)
	})
}

// Headers sets headers of the answer, as a server with other abilities would.
func Headers(h map[string]string) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		record := httptest.NewRecorder()
		forward.ServeHTTP(record, r)
		maps.Copy(w.Header(), record.Header())
		for k, v := range h {
			w.Header().Set(k, v)
		}
		w.WriteHeader(record.Code)
		_, _ = w.Write(record.Body.Bytes())
	}
}

// alter gets the whole answer from the server, hands on its headers, and leaves the body to f.
func alter(f func(w http.ResponseWriter, r *http.Request, body []byte)) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		record := httptest.NewRecorder()
		forward.ServeHTTP(record, r)
		maps.Copy(w.Header(), record.Header())
		w.Header().Set("Content-Length", strconv.Itoa(record.Body.Len()))
		w.WriteHeader(record.Code)
		f(w, r, record.Body.Bytes())
	}
}

func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // a recorder has no connection
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}
