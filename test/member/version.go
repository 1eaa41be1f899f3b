package member

import (
	"context"
	"strings"
	"testing"
	"time"
)

// AwaitStorageVersion waits until etcd has written its storage version, which it does some time after its start: until then it takes
// its database for one of 3.5, which has none.
func (m *Member) AwaitStorageVersion(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), maxWait)
	defer cancel()
	for poll := time.Tick(10 * time.Millisecond); ; {
		status, err := m.Client.Status(ctx, m.Endpoint)
		if err == nil {
			minor := status.Version[:strings.LastIndex(status.Version, ".")+1]
			if minor == "3.5." || strings.HasPrefix(status.StorageVersion, minor) {
				return
			}
		}
		select {
		case <-poll:
		case <-ctx.Done():
			tb.Fatalf("etcd has no storage version: %+v, %v", status, err)
		}
	}
}
