package harness

import (
	"testing"

	"github.com/etcd-druid/druid/test/ledger"
)

// Unsafe fails a story because a promise of safety is broken, and makes the run red whatever a repetition says: see ledger.Unsafe.
func Unsafe(t testing.TB, format string, args ...any) {
	t.Helper()
	ledger.Unsafe(t, format, args...)
}
