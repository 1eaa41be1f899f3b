package agent

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// With a retention by count each full on demand can delete an older one, so anyone who may ask for one may delete restore points.
func TestABackupIsTakenOnDemandOfThePodItselfAlone(t *testing.T) {
	a := &Agent{options: Options{Registry: prometheus.NewRegistry()}, log: slog.New(slog.DiscardHandler)}
	// What may ask gets as far as the body, which is wrong.
	for address, want := range map[string]int{
		"127.0.0.1:40000":          http.StatusBadRequest,
		"127.8.9.10:40000":         http.StatusBadRequest,
		"[::1]:40000":              http.StatusBadRequest,
		"[::ffff:127.0.0.1]:40000": http.StatusBadRequest,
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
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, snapshotsPath, strings.NewReader("not JSON"))
			request.RemoteAddr = address
			request.Header.Set("X-Forwarded-For", "127.0.0.1")
			answer := httptest.NewRecorder()
			a.handler().ServeHTTP(answer, request)
			if answer.Code != want {
				t.Errorf("answered %d %s, want %d", answer.Code, answer.Body, want)
			}
			var refusal snapshotRefusal
			if err := json.Unmarshal(answer.Body.Bytes(), &refusal); err != nil {
				t.Fatalf("answered %s: %v", answer.Body, err)
			}
			if want == http.StatusForbidden && (!strings.Contains(refusal.Error, "EtcdSnapshot") || !strings.Contains(refusal.Error, "port-forward")) {
				t.Errorf("refused with %q, which does not say what to do", refusal.Error)
			}
		})
	}
}
