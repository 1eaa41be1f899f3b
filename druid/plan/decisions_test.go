package plan

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// checkTable decides all facts by a table, compares each decision with the promises, and writes the table into docs/reference/decisions.md.
func checkTable[F, V any](t *testing.T, table *rules.Table[F, V], name, title string, wrong func(F, rules.Decision[V]) string) {
	t.Helper()
	checkTableAbout(t, table, name, title, "", wrong)
}

// checkTableAbout writes some words above the table too.
func checkTableAbout[F, V any](t *testing.T, table *rules.Table[F, V], name, title, about string, wrong func(F, rules.Decision[V]) string) {
	t.Helper()
	// Each in a test of its own: the lock on the document is held until a test ends.
	t.Run(name, func(t *testing.T) {
		rulestest.Section(t, "../../docs/reference/decisions.md", name, title, about, table, rulestest.Check(t, table, wrong))
	})
}
