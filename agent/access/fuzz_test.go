package access

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// FuzzGuard: whatever an unknown caller sends, nothing acts for it.
func FuzzGuard(f *testing.F) {
	f.Add("Bearer x", "10.1.2.3:4", `{"type":"Full"}`, true, false)
	f.Add("bearer  ", "127.0.0.1:4", "", false, true)
	f.Add("Basic YTph", "[::1]:4", "\x00", false, false)
	f.Add("", "", strings.Repeat("x", maxBody+1), true, true)
	f.Fuzz(func(t *testing.T, authorization, remote, body string, secure, twice bool) {
		a, err := New(Options{
			Kubernetes: &rest.Config{Host: "http://127.0.0.1:1"}, Secure: secure, Names: func() []string { return []string{""} },
			Log: discard, Refuse: func(w http.ResponseWriter, _ *http.Request, code int, why string) { http.Error(w, why, code) },
		})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/snapshots", strings.NewReader(body))
		r.RemoteAddr = remote
		r.Header["Authorization"] = []string{authorization}
		if twice {
			r.Header.Add("Authorization", authorization)
		}
		if secure {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		a.Guard(needs("ns"), func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			t.Errorf("%q from %q acts", authorization, remote)
		})(w, r)
		if w.Code < http.StatusBadRequest {
			t.Errorf("answered %d", w.Code)
		}
	})
}
