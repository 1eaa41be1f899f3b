package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/internal/review"
	"github.com/etcd-druid/druid/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

var discard = slog.New(slog.DiscardHandler)

var snapshots = rbacv1.PolicyRule{APIGroups: []string{"etcd.druid.dev"}, Resources: []string{"etcdsnapshots"}, Verbs: []string{"create"}}

func needs(namespace string) review.Needs {
	return review.Needs{Verb: "create", Group: "etcd.druid.dev", Resource: "etcdsnapshots", Namespace: namespace}
}

// door is an Access before an action that counts its calls.
type door struct {
	*Access
	log   bytes.Buffer
	acted int
	saw   http.Header
}

func newDoor(t *testing.T, config *rest.Config, secure bool) *door {
	t.Helper()
	d := &door{}
	var err error
	d.Access, err = New(Options{
		Kubernetes: config, Secure: secure, Log: slog.New(slog.NewJSONHandler(&d.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Names:  func() []string { return []string{"druid-agent", "operator", ""} },
		Refuse: func(w http.ResponseWriter, _ *http.Request, code int, why string) { http.Error(w, why, code) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *door) ask(t *testing.T, namespace string, change func(r *http.Request)) (code int, body string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/snapshots", strings.NewReader("{}"))
	r.RemoteAddr, r.TLS = "10.1.2.3:4", &tls.ConnectionState{}
	change(r)
	w := httptest.NewRecorder()
	d.Guard(needs(namespace), func(_ http.ResponseWriter, r *http.Request) { d.acted++; d.saw = r.Header.Clone() })(w, r)
	return w.Code, w.Body.String()
}

func bearing(token string) func(r *http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func TestATokenActsOnlyWhereItsOwnerMay(t *testing.T) {
	admin := env.APIServer(t)
	here, there := env.Namespace(t, admin), env.Namespace(t, admin)
	good := env.Token(t, admin, here, "caller", snapshots)
	d := newDoor(t, admin, true)
	for name, c := range map[string]struct {
		change func(r *http.Request)
		want   int
	}{
		"the right token":                   {bearing(good), http.StatusOK},
		"no token":                          {func(*http.Request) {}, http.StatusUnauthorized},
		"an empty token":                    {bearing(""), http.StatusUnauthorized},
		"the same token with another end":   {bearing(env.Ending(t, good, time.Now().Add(time.Hour))), http.StatusOK},
		"an expired token":                  {bearing(env.Ending(t, good, time.Now().Add(-time.Hour))), http.StatusUnauthorized},
		"an invented token":                 {bearing("invented"), http.StatusUnauthorized},
		"a damaged token":                   {bearing(good[:len(good)-4] + "AAAA"), http.StatusUnauthorized},
		"a token of another namespace":      {bearing(env.Token(t, admin, there, "caller", snapshots)), http.StatusForbidden},
		"a token without the permission":    {bearing(env.Token(t, admin, here, "reader")), http.StatusForbidden},
		"a password":                        {func(r *http.Request) { r.SetBasicAuth("admin", "admin") }, http.StatusUnauthorized},
		"two tokens, of which one is right": {func(r *http.Request) { bearing(good)(r); r.Header.Add("Authorization", "Bearer x") }, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			before := d.acted
			code, body := d.ask(t, here, c.change)
			if code != c.want || (d.acted == before+1) != (c.want == http.StatusOK) {
				t.Errorf("answered %d %s, acted %d times; want %d", code, body, d.acted-before, c.want)
			}
		})
	}
	if d.saw.Get("Authorization") != "" {
		t.Error("the action got the token")
	}
	if strings.Contains(d.log.String(), good) || strings.Contains(d.log.String(), "invented") {
		t.Error("the log shows a token")
	}
}

// Unknown is no permission.
func TestWithoutKubernetesOnlyCertificatesAct(t *testing.T) {
	d := newDoor(t, &rest.Config{Host: "https://127.0.0.1:1"}, true)
	if code, body := d.ask(t, "ns", bearing("token")); code != http.StatusServiceUnavailable || d.acted != 0 {
		t.Errorf("answered %d %s, want 503", code, body)
	}
	if strings.Contains(d.log.String(), `"token"`) {
		t.Error("the log shows the token: " + d.log.String())
	}
	if code, body := d.ask(t, "ns", func(r *http.Request) { bearing("token")(r); show(r, "operator") }); code != http.StatusOK || d.acted != 1 {
		t.Errorf("a certificate: answered %d %s, want 200", code, body)
	}
}

func show(r *http.Request, commonName string) {
	r.TLS.VerifiedChains = [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: commonName}}}}
}

func TestACertificateActsByItsName(t *testing.T) {
	d := newDoor(t, &rest.Config{Host: "https://127.0.0.1:1"}, true)
	for name, c := range map[string]struct {
		change func(r *http.Request)
		want   int
	}{
		"allowed":                      {func(r *http.Request) { show(r, "operator") }, http.StatusOK},
		"of the agents":                {func(r *http.Request) { show(r, "druid-agent") }, http.StatusOK},
		"of another client":            {func(r *http.Request) { show(r, "client") }, http.StatusForbidden},
		"without a name":               {func(r *http.Request) { show(r, "") }, http.StatusForbidden},
		"that nothing verified":        {func(r *http.Request) { show(r, "operator"); r.TLS.VerifiedChains = nil }, http.StatusUnauthorized},
		"of a client in plain text":    {func(r *http.Request) { r.TLS = nil }, http.StatusForbidden},
		"loopback, although TLS is on": {func(r *http.Request) { r.TLS, r.RemoteAddr = nil, "127.0.0.1:1" }, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body := d.ask(t, "ns", c.change); code != c.want {
				t.Errorf("answered %d %s, want %d", code, body, c.want)
			}
		})
	}
}

// With a retention by count, each new full backup can delete an older one. So a cluster without TLS takes requests from
// within the Pod alone, and none without a token.
func TestWithoutTLSOnlyLoopbackIsAsked(t *testing.T) {
	d := newDoor(t, &rest.Config{Host: "https://127.0.0.1:1"}, false)
	for address, want := range map[string]int{
		"127.0.0.1:40000":          http.StatusUnauthorized,
		"127.8.9.10:40000":         http.StatusUnauthorized,
		"[::1]:40000":              http.StatusUnauthorized,
		"[::ffff:127.0.0.1]:40000": http.StatusUnauthorized,
		"10.1.2.3:40000":           http.StatusForbidden,
		"[::ffff:10.1.2.3]:40000":  http.StatusForbidden,
		"[fd00::1]:40000":          http.StatusForbidden,
		"[fe80::1%eth0]:40000":     http.StatusForbidden,
		"0.0.0.0:40000":            http.StatusForbidden,
		"127.0.0.1":                http.StatusForbidden,
		"@":                        http.StatusForbidden,
		"":                         http.StatusForbidden,
	} {
		t.Run(address, func(t *testing.T) {
			code, body := d.ask(t, "ns", func(r *http.Request) {
				r.TLS, r.RemoteAddr = nil, address
				r.Header.Set("X-Forwarded-For", "127.0.0.1")
			})
			if code != want || d.acted != 0 {
				t.Errorf("answered %d %s, want %d", code, body, want)
			}
			if want == http.StatusForbidden && (!strings.Contains(body, "EtcdSnapshot") || !strings.Contains(body, "port-forward")) {
				t.Errorf("refused with %q, which does not say what to do", body)
			}
		})
	}
	if code, _ := d.ask(t, "ns", func(r *http.Request) { bearing("token")(r); r.TLS, r.RemoteAddr = nil, "127.0.0.1:1" }); code != http.StatusServiceUnavailable {
		t.Errorf("a token over loopback: %d, want that Kubernetes is asked", code)
	}
}

// A flood of invented tokens does not reach the API server, and callers with a certificate pass it.
func TestAFloodOfTokensIsLimited(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") == "Bearer redirect" {
			http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	d := newDoor(t, &rest.Config{Host: server.URL, BearerToken: "own"}, true)
	if code, _ := d.ask(t, "ns", bearing("redirect")); code != http.StatusServiceUnavailable {
		t.Errorf("a redirect: %d, want 503", code)
	}
	limited := 0
	for i := range 200 {
		if code, _ := d.ask(t, "ns", bearing(fmt.Sprint("invented", i))); code == http.StatusTooManyRequests {
			limited++
		}
	}
	if asked > 100 || limited < 100 {
		t.Errorf("%d tokens reached the API server, %d were limited", asked, limited)
	}
	if code, _ := d.ask(t, "ns", func(r *http.Request) { show(r, "operator") }); code != http.StatusOK {
		t.Errorf("a certificate meanwhile: %d, want 200", code)
	}
	for range 20 {
		d.ask(t, "ns", func(r *http.Request) { show(r, "operator") })
	}
	if d.acted > actionBurst+2 {
		t.Errorf("%d actions at once, want %d", d.acted, actionBurst)
	}
}

func TestABodyIsSmall(t *testing.T) {
	d := newDoor(t, &rest.Config{Host: "https://127.0.0.1:1"}, true)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", maxBody+1)))
	r.TLS = &tls.ConnectionState{}
	show(r, "operator")
	var failed error
	d.Guard(needs("ns"), func(_ http.ResponseWriter, r *http.Request) { _, failed = io.ReadAll(r.Body) })(httptest.NewRecorder(), r)
	if _, ok := errors.AsType[*http.MaxBytesError](failed); !ok {
		t.Errorf("a body above the limit: %v", failed)
	}
}
