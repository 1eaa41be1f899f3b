package membership

import (
	"fmt"
	"iter"
	"testing"
)

// safe fails the test where a decision breaks a promise, and where a row of the table can never fire. It returns the rows as the
// document has them: name, what cells makes of the facts, verdict, why, and in how many cases it fired.
func safe[F any, V ~string](
	t *testing.T, rules []row[F, V], each iter.Seq[F], decide func(F) Decision[V], broken func(F, Decision[V]) string, cells func(F) []string,
) (rows [][]string) {
	t.Helper()
	fired := map[string]int{}
	for f := range each {
		d := decide(f)
		fired[d.Rule]++
		if promise := broken(f, d); promise != "" {
			t.Fatalf("%+v: %+v: %s", f, d, promise)
		}
	}
	for _, r := range rules {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		cells := append([]string{r.name}, cells(r.when)...)
		rows = append(rows, append(cells, "**"+string(r.verdict)+"**", r.why, fmt.Sprint(fired[r.name])))
	}
	return rows
}
