package webui

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/situations"
)

// source has views that a test changes.
type source struct {
	mu       sync.Mutex
	clusters []view.Cluster
	unread   []view.Unread
	backups  Backups
	err      error
	reads    int
}

func (s *source) Backups(context.Context, string, string) (Backups, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.backups, s.err
}

func (s *source) Fleet(context.Context) (Fleet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return Fleet{Clusters: s.clusters, Unread: s.unread}, s.err
}

func (s *source) Cluster(_ context.Context, namespace, name string) (view.Cluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	for _, c := range s.clusters {
		if c.Namespace == namespace && c.Name == name && s.err == nil {
			return c, nil
		}
	}
	if s.err != nil {
		return view.Cluster{}, s.err
	}
	return view.Cluster{}, apierrors.NewNotFound(schema.GroupResource{Group: "etcd.druid.dev", Resource: "etcdclusters"}, name)
}

func (s *source) set(change func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// every is a fleet of all situations, each in a namespace of its own.
func every() *source { return &source{clusters: situations.Views()} }

// browser is a client with the cookie of a session.
type browser struct {
	*testing.T
	server *Server
	cookie *http.Cookie
}

// serverOf makes a server that tests ask without a connection.
func serverOf(t *testing.T, from Source) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s, err := New(Options{Source: from, Now: func() time.Time { return situations.Now }, Scope: "All namespaces", Start: "/"}, listener)
	if err != nil {
		t.Fatal(err)
	}
	s.guard.base = "/base" // the same in each golden file
	return s
}

// open opens a session.
func open(t *testing.T, from Source) *browser {
	t.Helper()
	b := &browser{T: t, server: serverOf(t, from)}
	opened := b.ask(http.MethodGet, b.server.URL())
	if opened.cookie == nil {
		t.Fatalf("the address answers %d without a cookie", opened.code)
	}
	b.cookie = opened.cookie
	return b
}

// answer is what the server answered.
type answer struct {
	code   int
	header http.Header
	text   string
	// cookie is nil if none was set.
	cookie *http.Cookie
}

func (b *browser) ask(method, url string, changes ...func(*http.Request)) answer {
	b.Helper()
	r := httptest.NewRequest(method, url, nil)
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	for _, change := range changes {
		change(r)
	}
	w := httptest.NewRecorder()
	b.server.Handler().ServeHTTP(w, r)
	got := answer{code: w.Code, header: w.Header(), text: w.Body.String()}
	if line := w.Header().Get("Set-Cookie"); line != "" {
		cookie, err := http.ParseSetCookie(line)
		if err != nil {
			b.Fatal(err)
		}
		got.cookie = cookie
	}
	return got
}

// get asks for a path, and returns the status code and the text.
func (b *browser) get(path string) (int, string) {
	b.Helper()
	got := b.ask(http.MethodGet, b.server.address(path))
	return got.code, got.text
}

// says fails unless the text has each of the words.
func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("it does not say %q:\n%s", word, text)
		}
	}
}
