package druid

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/internal/review"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/rulestest"
)

// Only a token that Kubernetes permits it reads the metrics. What is unknown is no permission.
func TestOnlyPermittedTokensReadTheMetrics(t *testing.T) {
	cases := rulestest.Check(t, scrapers, func(f scraper, d rules.Decision[status]) string {
		if (d.Verdict == http.StatusOK) != (f.token == review.TokenAllowed) || d.Verdict != http.StatusOK && d.Verdict < http.StatusBadRequest {
			return "a caller gets another answer than its token permits"
		}
		return ""
	})
	rulestest.Section(t, "../docs/reference/decisions.md", "scrapers", "Who may read the metrics of druid: druid.scrapers",
		"Only with the flag `--metrics-secure`. An answer about a token is valid for 10 seconds.", scrapers, cases)
}

// secureMetrics runs a druid with --metrics-secure, and returns the address of its metrics.
func secureMetrics(t *testing.T, s *stage, change func(*Options)) string {
	t.Helper()
	port, release, err := machine.Reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.startDruid(func(o *Options) {
		o.MetricsAddress, o.MetricsSecure = address, true
		change(o)
	})
	return address
}

// scrape asks for the metrics until druid listens.
func (s *stage) scrape(config *tls.Config, address, token string) (code int, body string, served *x509.Certificate) {
	s.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	s.eventually("get the metrics of druid", func() error {
		request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
		if err != nil {
			return err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		code, body, served = response.StatusCode, string(raw), response.TLS.PeerCertificates[0]
		return err
	})
	return code, body, served
}

// TestMetricsNeedPermittedToken: metrics are read with a permitted token only.
func TestMetricsNeedPermittedToken(t *testing.T) {
	s := newStage(t)
	address := secureMetrics(t, s, func(*Options) {})
	foreign := env.Token(t, s.config, s.namespace, "foreign", rbacv1.PolicyRule{
		APIGroups: []string{"etcd.druid.dev"}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	good := env.Token(t, s.config, s.namespace, "prometheus")
	s.mayScrape("prometheus")
	unverified := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // druid signs the certificate itself
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"no token":                       {"", http.StatusUnauthorized},
		"an invented token":              {"invented", http.StatusUnauthorized},
		"a token that ended":             {env.Ending(t, good, time.Now().Add(-time.Hour)), http.StatusUnauthorized},
		"a token without the permission": {foreign, http.StatusForbidden},
		"a token with the permission":    {good, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			code, body, _ := s.scrape(unverified, address, c.token)
			if code != c.want || strings.Contains(body, "go_goroutines") != (c.want == http.StatusOK) {
				t.Errorf("answered %d %.200q, want %d", code, body, c.want)
			}
		})
	}
	plain := &http.Client{Timeout: time.Minute}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := plain.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP is answered with %s, want 400", response.Status)
	}
}

// mayScrape binds what the how-to says to the ServiceAccount.
func (s *stage) mayScrape(account string) {
	s.Helper()
	name := metav1.ObjectMeta{Name: "druid-metrics-" + s.namespace}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account}},
	}
	if err := errors.Join(s.Create(s.Context(), role), s.Create(s.Context(), binding)); err != nil {
		s.Fatal(err)
	}
	token := env.Token(s, s.config, s.namespace, account)
	s.eventually("the API server knows the permission", func() error {
		reviewer, err := review.New(s.config) // each one remembers its answers
		if err != nil {
			return err
		}
		found, err := reviewer.Review(s.Context(), token, review.Needs{Verb: "get", Path: "/metrics"})
		if err == nil && found != review.TokenAllowed {
			return fmt.Errorf("the token is %s", found)
		}
		return err
	})
}

// TestMetricsCertificateFromDirectory: metrics are served with the certificate in a directory.
// A certificate of the user is served, and the one that replaces it, without a restart of druid.
func TestMetricsCertificateFromDirectory(t *testing.T) {
	s := newStage(t)
	dir, now := t.TempDir(), time.Now()
	pair, err := pki.NewAuthority("test", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.ParseAuthority(pair, now)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		t.Helper()
		leaf, err := authority.Issue(pki.Request{CommonName: name, DNSNames: []string{"druid.example"}, Server: true, Lifetime: time.Hour}, now)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(os.WriteFile(filepath.Join(dir, "tls.key"), leaf.Key, 0o600), os.WriteFile(filepath.Join(dir, "tls.crt"), leaf.Certificate, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	address := secureMetrics(t, s, func(o *Options) { o.MetricsCertDir = dir })
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	verified := &tls.Config{RootCAs: roots, ServerName: "druid.example"}
	code, _, served := s.scrape(verified, address, "")
	if code != http.StatusUnauthorized || served.Subject.CommonName != "first" {
		t.Errorf("answered %d with the certificate of %s, want 401 with that of first", code, served.Subject)
	}
	write("second")
	s.eventually("the new certificate", func() error {
		if _, _, served := s.scrape(verified, address, ""); served.Subject.CommonName != "second" {
			return fmt.Errorf("druid serves that of %s", served.Subject)
		}
		return nil
	})
}

// TestMetricsCertificateRequiredAtStart: metrics without their certificate are refused at the start.
func TestMetricsCertificateRequiredAtStart(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a directory alone":    {[]string{"--metrics-cert-dir=" + empty}, "--metrics-cert-dir needs --metrics-secure"},
		"an empty directory":   {[]string{"--metrics-secure", "--metrics-cert-dir=" + empty}, "read tls.crt and tls.key: open " + filepath.Join(empty, "tls.crt")},
		"no directory is fine": {[]string{"--metrics-secure"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := optionsOf(t, c.args...).Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestMetricsRefusedWithoutKubernetes: metrics are not read while Kubernetes is away.
// Without the Kubernetes API no token is known, and the log does not show it.
func TestMetricsRefusedWithoutKubernetes(t *testing.T) {
	var written bytes.Buffer
	filter, err := scrapersOnly(slog.New(slog.NewJSONHandler(&written, nil)))(&rest.Config{Host: "https://127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the metrics were read") }))
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	request.Header.Set("Authorization", "Bearer planted-token")
	response := httptest.NewRecorder()
	guarded.ServeHTTP(response, request)
	if response.Code != http.StatusServiceUnavailable {
		t.Errorf("answered %d, want 503", response.Code)
	}
	if log := written.String(); !strings.Contains(log, "not checked") || strings.Contains(log, "planted-token") {
		t.Errorf("the log is %s", log)
	}
}
