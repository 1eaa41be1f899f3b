package agent

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/internal/review"
)

// secured is an agent with the certificates of a cluster whose authority is ca.
func secured(t testing.TB, ca pki.Pair, mode config.TLSMode) *Agent {
	t.Helper()
	c := config.Default()
	c.Namespace, c.Cluster, c.Member, c.ClientService, c.ClientTLS = "ns", "demo", "demo-aaaaa", "demo-client", mode
	c.TLSSource, c.TLSDir = t.TempDir(), t.TempDir()
	signer, err := pki.ParseAuthority(ca, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"ca.crt": ca.Certificate}
	for name, r := range map[string]pki.Request{
		"tls":    {CommonName: "etcd", DNSNames: []string{"demo-client.ns.svc"}, Server: true, Client: true, Lifetime: time.Hour},
		"client": {CommonName: "druid-agent", Client: true, Lifetime: time.Hour},
	} {
		pair, err := signer.Issue(r, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		files[name+".crt"], files[name+".key"] = pair.Certificate, pair.Key
	}
	dir := filepath.Join(c.TLSSource, certificates.PlaneClient)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	a := &Agent{options: Options{Config: c, Kubernetes: &rest.Config{Host: "https://127.0.0.1:1"}, Host: func(string) string { return "127.0.0.1" }}, log: log}
	a.live, a.certificates = config.NewLive("", log), certificates.New(c, "demo-aaaaa.demo-peer.ns.svc", log)
	a.certificates.Load(t.Context())
	if err := a.certificates.Ready(); err != nil {
		t.Fatal(err)
	}
	a.transport = transport.Transport{Client: a.certificates.Client()}
	if a.access, err = a.newAccess(); err != nil {
		t.Fatal(err)
	}
	return a
}

// listens serves as the agent of the leader does. seen has each request that reached it.
func (a *Agent) listens(t *testing.T, seen *[]*http.Request, body *bytes.Buffer) (port int) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+snapshotsPath, func(w http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, r)
		a.access.Guard(review.Needs{}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(body, r.Body)
			a.answer(w, r, http.StatusOK, map[string]string{"object": "full"})
		})(w, r)
	})
	return a.serves(t, mux)
}

// serves serves the handler as an agent serves its actions.
func (a *Agent) serves(t *testing.T, handler http.Handler) (port int) {
	t.Helper()
	listener, err := a.transport.Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	server, secure := a.transport.Secure(listener, a.certificates.Server(), handler)
	done := make(chan error, 1)
	go func() { done <- server.Serve(secure) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().(*net.TCPAddr).Port
}

func newCA(t testing.TB, name string) pki.Pair {
	t.Helper()
	ca, err := pki.NewAuthority(name, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// TestRequestForwardedToLeadersAgent: a request is forwarded to the leader's agent alone.
// A follower forwards in its own name, and only to what shows a certificate of the cluster.
func TestRequestForwardedToLeadersAgent(t *testing.T) {
	ca := newCA(t, "ours")
	snapshots := action{path: snapshotsPath, timeout: time.Minute}
	for name, c := range map[string]struct {
		leader *Agent
		ok     bool
	}{
		"an agent of the cluster":          {secured(t, ca, config.TLSMutual), true},
		"an agent of another cluster":      {secured(t, newCA(t, "theirs"), config.TLSMutual), false},
		"a server that asks for no client": {secured(t, ca, config.TLSServer), false},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []*http.Request
			var body bytes.Buffer
			follower := secured(t, ca, config.TLSMutual)
			follower.options.Config.APIPort = c.leader.listens(t, &seen, &body)
			w := httptest.NewRecorder()
			err := follower.forward(t.Context(), w, "demo-bbbbb", snapshots, []byte(`{"type":"Full"}`))
			if ok := err == nil && w.Code == http.StatusOK; ok != c.ok {
				t.Fatalf("forwarded: %v, answered %d %s", err, w.Code, w.Body)
			}
			if c.ok && (len(seen) != 1 || body.String() != `{"type":"Full"}` || seen[0].Header.Get(forwardedHeader) != "demo-aaaaa" ||
				!strings.Contains(w.Body.String(), "full")) {
				t.Errorf("the leader got %d requests, %q; the caller got %s", len(seen), &body, w.Body)
			}
			for _, r := range seen {
				if r.Header.Get("Authorization") != "" {
					t.Error("a token was forwarded")
				}
			}
		})
	}
	t.Run("a server in plain text", func(t *testing.T) {
		reached := false
		plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
		defer plain.Close()
		follower := secured(t, ca, config.TLSMutual)
		follower.options.Config.APIPort, _ = strconv.Atoi(plain.URL[strings.LastIndex(plain.URL, ":")+1:])
		if err := follower.forward(t.Context(), httptest.NewRecorder(), "demo-bbbbb", snapshots, nil); err == nil || reached {
			t.Errorf("forwarded in plain text: %v, reached: %t", err, reached)
		}
	})
}

// TestNamedStepDownSkipsOldAgents: a step-down to a named member does not reach an agent that ignores the name.
// An agent of an earlier version ignores the name of the next leader. So a request with a name does not reach its action.
func TestNamedStepDownSkipsOldAgents(t *testing.T) {
	ca := newCA(t, "ours")
	for name, c := range map[string]struct {
		paths      []string
		body, path string // path is that which is reached, empty if none
	}{
		"with a name, a later agent":       {[]string{stepDownPath, stepDownToPath}, `{"member":"demo-ccccc"}`, stepDownToPath},
		"with a name, an earlier agent":    {[]string{stepDownPath}, `{"member":"demo-ccccc"}`, ""},
		"without a name, a later agent":    {[]string{stepDownPath, stepDownToPath}, "", stepDownPath},
		"without a name, an earlier agent": {[]string{stepDownPath}, " ", stepDownPath},
	} {
		t.Run(name, func(t *testing.T) {
			leader, follower := secured(t, ca, config.TLSMutual), secured(t, ca, config.TLSMutual)
			var reached []string
			mux := http.NewServeMux()
			for _, path := range c.paths {
				mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
					reached = append(reached, r.URL.Path)
					leader.answer(w, r, http.StatusOK, map[string]string{"member": "demo-ccccc"})
				})
			}
			follower.options.Config.APIPort = leader.serves(t, mux)
			err := follower.forward(t.Context(), httptest.NewRecorder(), "demo-bbbbb",
				action{path: stepDownPath, timeout: time.Minute, forwardTo: stepDownAt}, []byte(c.body))
			if c.path == "" {
				if !errors.Is(err, errOlderAgent) || len(reached) > 0 {
					t.Errorf("got %v, reached %q; want %v, and nothing reached", err, reached, errOlderAgent)
				}
				return
			}
			if err != nil || !slices.Equal(reached, []string{c.path}) {
				t.Errorf("reached %q, %v; want %s", reached, err, c.path)
			}
		})
	}
}

// Both paths serve a request that names the next leader, and that for forwarded ones no other.
func TestAForwardedStepDownNamesTheNextLeader(t *testing.T) {
	a := &Agent{log: slog.New(slog.DiscardHandler), observer: &observer{}}
	if _, err := a.stepDownTo(t.Context(), []byte("\n")); !errors.Is(err, errRequest) || !strings.Contains(err.Error(), "member that is to lead") {
		t.Errorf("without a name: %v", err)
	}
	follower := secured(t, newCA(t, "ours"), config.TLSMutual)
	for path, want := range map[string]int{stepDownPath: http.StatusForbidden, stepDownToPath: http.StatusForbidden, stepDownPath + "/from": http.StatusNotFound} {
		w := httptest.NewRecorder()
		follower.actions().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}")))
		if w.Code != want {
			t.Errorf("%s: answered %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
}

// TestAgentAPINeedsClusterCertificate: the agent's API takes certificates of the cluster alone.
// What clients of etcd are refused with, the agent refuses too.
func TestAgentAPINeedsClusterCertificate(t *testing.T) {
	ca, other := newCA(t, "ours"), newCA(t, "theirs")
	leader := secured(t, ca, config.TLSMutual)
	var seen []*http.Request
	port := leader.listens(t, &seen, &bytes.Buffer{})
	for name, c := range map[string]struct {
		authority  pki.Pair
		commonName string
		lifetime   time.Duration
		want       int // 0: the handshake fails
	}{
		"of the agents":              {ca, "druid-agent", time.Hour, http.StatusOK},
		"of a client":                {ca, "client", time.Hour, http.StatusForbidden},
		"of another authority":       {other, "druid-agent", time.Hour, 0},
		"of the agents, but expired": {ca, "druid-agent", -time.Minute, 0},
		"none":                       {ca, "", 0, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			settings := leader.certificates.Client()
			settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if c.commonName == "" {
					return &tls.Certificate{}, nil
				}
				signer, err := pki.ParseAuthority(c.authority, time.Now())
				if err != nil {
					return nil, err
				}
				pair, err := signer.Issue(pki.Request{CommonName: c.commonName, Client: true, Lifetime: c.lifetime}, time.Now())
				if err != nil {
					return nil, err
				}
				certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
				return &certificate, err
			}
			client := transport.Transport{Client: settings}.AgentClient(time.Minute)
			code := 0
			response, err := client.Post(transport.URL(true, "127.0.0.1", port)+snapshotsPath, "application/json", strings.NewReader("{}"))
			if err == nil {
				code = response.StatusCode
				_ = response.Body.Close()
			}
			if code != c.want {
				t.Errorf("answered %d, %v; want %d", code, err, c.want)
			}
		})
	}
}

// Only the agent of the leader defragments, and only a member that the caller names.
func TestADefragmentationNamesItsMember(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"no body":      {"", http.StatusBadRequest},
		"no member":    {`{"member":""}`, http.StatusBadRequest},
		"another type": {`{"member":1}`, http.StatusBadRequest},
		"a member, to an agent that cannot reach its etcd": {`{"member":"demo-aaaaa"}`, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{log: slog.New(slog.DiscardHandler), observer: &observer{}}
			server := httptest.NewServer(a.act(action{path: defragPath, timeout: time.Minute, run: a.defragment}))
			defer server.Close()
			response, err := server.Client().Post(server.URL, "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != c.want {
				t.Errorf("answered %s, want %d", response.Status, c.want)
			}
		})
	}
}

// A request whose member is not understood must not move the leadership to any.
func TestAStepDownReadsItsMember(t *testing.T) {
	a := &Agent{log: slog.New(slog.DiscardHandler), observer: &observer{}}
	server := httptest.NewServer(a.act(action{path: stepDownPath, timeout: time.Minute, run: a.stepDown}))
	defer server.Close()
	for _, body := range []string{`{"member":1}`, `{"member":""}`, `{"memberID":"1"}`, `null`, "demo-aaaaa"} {
		response, err := server.Client().Post(server.URL, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "member that is to lead") {
			t.Errorf("%s: answered %s %s, %v", body, response.Status, text, err)
		}
	}
}
