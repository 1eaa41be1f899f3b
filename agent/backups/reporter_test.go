package backups

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

// TestReportOfAFailureStaysTheSame: two attempts that fail equally give the same content of both Leases, and the log has the whole error.
func TestReportOfAFailureStaysTheSame(t *testing.T) {
	s := opened(t, directory(t.TempDir()))
	failure := func(attempt int) error {
		from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 40000 + attempt}
		return store.Caused(store.CauseUnreachable, store.Failed("put", fmt.Sprintf("a/full/%d", attempt), s,
			&net.OpError{Op: "read", Net: "tcp", Source: from, Err: errors.New("connection reset by peer")}))
	}
	for name, fail := range map[string]func(h *reporter, err error){
		"a full backup":  func(h *reporter, err error) { h.fullFailed(t.Context(), err) },
		"a delta backup": func(h *reporter, err error) { h.recorderFailed(t.Context(), err) },
		"the store":      func(h *reporter, err error) { h.failed(t.Context(), err) },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := &reporter{log: slog.New(slog.NewTextHandler(&log, nil)), lag: func() float64 { return 0 }}
			report := func(attempt int) [2]leases.BackupPatch {
				fail(h, failure(attempt))
				full, _ := h.fullPatch(time.Time{})
				delta, _ := h.deltaPatch(time.Time{})
				return [2]leases.BackupPatch{full, delta}
			}
			first := report(1)
			if diff := cmp.Diff(first, report(2)); diff != "" {
				t.Error(diff)
			}
			if text := first[0].Backup.Error + first[1].Backup.Error; !strings.Contains(text, "connection reset by peer") {
				t.Errorf("reported %q", text)
			}
			if !strings.Contains(log.String(), "10.0.0.7:40001") {
				t.Errorf("the log is %s", &log)
			}
		})
	}
}
