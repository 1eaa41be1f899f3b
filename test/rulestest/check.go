package rulestest

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/golden"
)

// Impossible is what a check returns of facts that no observation yields. They are not counted.
const Impossible = "impossible"

// maxFaults is how many wrong decisions are printed of a table.
const maxFaults = 10

// Check decides all facts, and returns how many each row decides. wrong names the promise that a decision breaks, or
// returns nothing, or Impossible. The test fails if one does, if no row matches facts, and if a row never decides.
func Check[F, V any](t testing.TB, table *rules.Table[F, V], wrong func(F, rules.Decision[V]) string) map[string]int {
	t.Helper()
	if names := rules.NotEnums[F](); len(names) > 0 {
		t.Fatalf("facts %v are no enums of the underlying type uint8 with a String method", names)
	}
	var all F
	cases := Count(t, table, all, wrong)
	Reachable(t, table, cases)
	return cases
}

// Count is the part of Check that looks at the facts that match when, so that a large table can be divided.
func Count[F, V any](t testing.TB, table *rules.Table[F, V], when F, wrong func(F, rules.Decision[V]) string) map[string]int {
	t.Helper()
	cases, faults := map[string]int{}, 0
	// Decisions in a row are often those of one rule, so that they are counted together.
	rule, run := "", 0
	for f, d := range table.Decisions(when) {
		fault := wrong(f, d)
		if fault == Impossible {
			continue
		}
		if d.Rule != rule {
			cases[rule] += run
			rule, run = d.Rule, 0
		}
		run++
		if d.Rule == rules.Uncovered {
			fault = "no row matches"
		}
		if fault == "" {
			continue
		}
		if faults++; faults <= maxFaults {
			t.Errorf("%s decides %v: %s; facts: %s", d.Rule, d.Verdict, fault, strings.Join(rules.Conditions(f), "; "))
		}
	}
	cases[rule] += run
	delete(cases, "")
	if faults > maxFaults {
		t.Errorf("%d wrong decisions in all", faults)
	}
	return cases
}

// Reachable fails the test if a row decided no facts, or if two rows have the same name.
func Reachable[F, V any](t testing.TB, table *rules.Table[F, V], cases map[string]int) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range table.Rows() {
		if cases[r.Name] == 0 {
			t.Errorf("row %s never decides: rows before it match all that it matches", r.Name)
		}
		if seen[r.Name] || r.Name == "" || r.Name == rules.Uncovered {
			t.Errorf("row %q: its name is not its own", r.Name)
		}
		seen[r.Name] = true
	}
}

// Section compares a table with its section of docs/reference/decisions.md, which is at path. about is Markdown that precedes the table.
func Section[F, V any](t testing.TB, path, name, title, about string, table *rules.Table[F, V], cases map[string]int) {
	t.Helper()
	golden.Section(t, path, name, "### "+title+"\n\n"+strings.TrimSpace(about+"\n\n"+Render(name, table, cases)))
}

// Anchored is the name of a rule in the section of its table, with an anchor for links to its row.
func Anchored(section, rule string) string {
	return fmt.Sprintf(`<a id="%s"></a>%s`, strings.ToLower(section+"-"+rule), rule)
}

// Render prints a table as Markdown for its section, with how many facts each row decides.
func Render[F, V any](section string, table *rules.Table[F, V], cases map[string]int) string {
	verdicts := columnsOf[V]()
	why := false
	for _, r := range table.Rows() {
		why = why || r.Why != ""
	}
	header := append([]string{"rule", "when"}, verdicts...)
	if why {
		header = append(header, "why")
	}
	var rows [][]string
	for _, r := range table.Rows() {
		when := strings.Join(rules.Conditions(r.When), "<br>")
		if when == "" {
			when = "always"
		}
		row := append([]string{Anchored(section, r.Name), when}, cellsOf(r.Verdict)...)
		if why {
			row = append(row, r.Why)
		}
		rows = append(rows, append(row, fmt.Sprint(cases[r.Name])))
	}
	return golden.Table(append(header, "cases"), rows)
}

// columnsOf a verdict: one, or one for each field of a struct that has a title.
func columnsOf[V any]() (titles []string) {
	v := reflect.TypeFor[V]()
	if v.Kind() != reflect.Struct {
		return []string{"verdict"}
	}
	for field := range v.Fields() {
		if title := field.Tag.Get("fact"); title != "" {
			titles = append(titles, title)
		}
	}
	return titles
}

func cellsOf[V any](verdict V) (cells []string) {
	v := reflect.ValueOf(verdict)
	if v.Kind() != reflect.Struct {
		return []string{fmt.Sprintf("**%s**", cmp.Or(fmt.Sprint(verdict), "Nothing"))}
	}
	for field, value := range v.Fields() {
		if field.Tag.Get("fact") != "" {
			cells = append(cells, word(value))
		}
	}
	cells[0] = cmp.Or(cells[0], "unchanged")
	cells[0] = "**" + cells[0] + "**"
	return cells
}

// word of a field, also of one that is not exported.
func word(field reflect.Value) string {
	if field.Kind() != reflect.Uint8 {
		return field.String()
	}
	enum := reflect.New(field.Type()).Elem()
	enum.SetUint(field.Uint())
	return fmt.Sprint(enum.Interface())
}
