package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

type color uint8

const (
	red color = 1 << iota
	green
	blue
)

func (c color) String() string { return rules.Word(c, "red", "green", "blue") }

type facts struct {
	Color color `fact:"the light is"`
	Ready rules.YesNo
	hurry rules.Answer
}

type verdict string

var table = rules.New("Stay", []rules.Row[facts, verdict]{
	{Name: "stop", When: facts{Color: red}, Verdict: "Stay", Why: "it is red"},
	{Name: "run", When: facts{Color: green | blue, hurry: rules.Yes | rules.Unknown}, Verdict: "Run", Why: "it is late"},
	{Name: "go", When: facts{Ready: rules.Yes}, Verdict: "Go", Why: "it is free"},
})

func TestDecideTakesTheFirstRowThatMatches(t *testing.T) {
	for _, test := range []struct {
		facts facts
		want  verdict
		rule  string
	}{
		{facts{red, rules.Yes, rules.Yes}, "Stay", "stop"},
		{facts{blue, rules.No, rules.Unknown}, "Run", "run"},
		{facts{green, rules.Yes, rules.No}, "Go", "go"},
		{facts{green, rules.No, rules.No}, "Stay", rules.Uncovered},
		{facts{}, "Stay", rules.Uncovered}, // what was not observed matches no row
	} {
		if d := table.Decide(test.facts); d.Verdict != test.want || d.Rule != test.rule || d.Why == "" {
			t.Errorf("%+v: %+v, want %s by %s", test.facts, d, test.want, test.rule)
		}
	}
}

func TestCasesAreAllThatMatch(t *testing.T) {
	for name, test := range map[string]struct {
		when facts
		want int
	}{
		"all":         {facts{}, 3 * 2 * 3},
		"one fixed":   {facts{Color: blue}, 2 * 3},
		"two of it":   {facts{Color: red | blue, hurry: rules.Unknown}, 2 * 2},
		"one alone":   {facts{red, rules.No, rules.No}, 1},
		"all of them": {facts{Color: red | green | blue, Ready: rules.No | rules.Yes}, 3 * 2 * 3},
	} {
		seen := map[facts]bool{}
		for f := range rules.Cases(test.when) {
			if f.Color&(f.Color-1) != 0 || f.Ready&(f.Ready-1) != 0 || f.hurry&(f.hurry-1) != 0 || f.Color == 0 || f.Ready == 0 || f.hurry == 0 {
				t.Errorf("%s: %+v has not one value of each fact", name, f)
			}
			seen[f] = true
		}
		if len(seen) != test.want {
			t.Errorf("%s: %d different facts, want %d", name, len(seen), test.want)
		}
	}
	for range rules.Cases(facts{}) {
		break // it ends when it is asked to
	}
}

// TestDecisionsAreThoseOfDecide compares both with the first row that a plain search finds, also in a table whose rows need two words.
func TestDecisionsAreThoseOfDecide(t *testing.T) {
	long := make([]rules.Row[facts, verdict], 0, 100)
	for i := range 97 {
		long = append(long, rules.Row[facts, verdict]{Name: fmt.Sprint(i), When: facts{Color: red, Ready: rules.No}, Verdict: "Stay"})
	}
	long = append(long, table.Rows()...)
	for name, table := range map[string]*rules.Table[facts, verdict]{"three rows": table, "a hundred rows": tableOf(long...), "none": tableOf()} {
		for _, when := range []facts{{}, {Color: green | blue, hurry: rules.Unknown}} {
			var seen []facts
			for f, d := range table.Decisions(when) {
				seen = append(seen, f)
				want := rules.Uncovered
				for _, r := range table.Rows() {
					if (r.When.Color == 0 || r.When.Color&f.Color != 0) && (r.When.Ready == 0 || r.When.Ready&f.Ready != 0) &&
						(r.When.hurry == 0 || r.When.hurry&f.hurry != 0) {
						want = r.Name
						break
					}
				}
				if d.Rule != want || d != table.Decide(f) {
					t.Errorf("%s: %+v: %+v and %+v, want row %s", name, f, d, table.Decide(f), want)
				}
			}
			if !slices.Equal(seen, slices.Collect(rules.Cases(when))) {
				t.Errorf("%s: the decisions are of other facts than the cases of %+v", name, when)
			}
		}
	}
	for range table.Decisions(facts{}) {
		break // it ends when it is asked to
	}
}

func TestATableWithTooManyRowsIsRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a table of 129 rows is made")
		}
	}()
	tableOf(make([]rules.Row[facts, verdict], 129)...)
}

func TestConditionsNameWhatARowLooksAt(t *testing.T) {
	for want, when := range map[string]facts{
		"":                                    {},
		"the light is: red":                   {Color: red},
		"the light is: red, blue; ready: yes": {Color: red | blue, Ready: rules.Yes},
		"hurry: no, unknown":                  {Color: red | green | blue, hurry: rules.No | rules.Unknown},
		"the light is: green; hurry: yes":     {Color: green, Ready: rules.No | rules.Yes, hurry: rules.Yes},
	} {
		if got := strings.Join(rules.Conditions(when), "; "); got != want {
			t.Errorf("%+v: %q, want %q", when, got, want)
		}
	}
}

func TestFactsAreEnums(t *testing.T) {
	type mixed struct {
		Color color
		Ready bool
		Other uint8
	}
	if got := rules.NotEnums[mixed](); !slices.Equal(got, []string{"Ready", "Other"}) {
		t.Errorf("no enums are %v", got)
	}
	if got := rules.NotEnums[facts](); got != nil {
		t.Errorf("no enums are %v", got)
	}
}

func tableOf(rows ...rules.Row[facts, verdict]) *rules.Table[facts, verdict] {
	return rules.New("Stay", rows)
}

func TestWithoutLacksOneRow(t *testing.T) {
	if d := table.Without("stop").Decide(facts{red, rules.Yes, rules.Yes}); d.Rule != "go" || len(table.Rows()) != 3 {
		t.Errorf("without its first row, %s decides, and %d rows are left of the table itself", d.Rule, len(table.Rows()))
	}
}

// recorder is a test whose failure does not fail this one.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, _ ...any) { r.errors = append(r.errors, format) }

func TestCheckFindsWhatIsWrongWithATable(t *testing.T) {
	fine := func(facts, rules.Decision[verdict]) string { return "" }
	always := rules.Row[facts, verdict]{Name: "always", Verdict: "Go"}
	for name, test := range map[string]struct {
		table *rules.Table[facts, verdict]
		wrong func(facts, rules.Decision[verdict]) string
		want  string
	}{
		"facts without a row":      {table, fine, "facts:"},
		"a row that never decides": {tableOf(always, table.Rows()[0]), fine, "never decides"},
		"a name that is taken":     {tableOf(table.Rows()[0], rules.Row[facts, verdict]{Name: "stop"}), fine, "not its own"},
		"a promise that is broken": {tableOf(always), func(facts, rules.Decision[verdict]) string { return "wrong" }, "facts:"},
	} {
		r := &recorder{TB: t}
		rulestest.Check(r, test.table, test.wrong)
		if !slices.ContainsFunc(r.errors, func(e string) bool { return strings.Contains(e, test.want) }) {
			t.Errorf("%s: the test fails with %q, want one that contains %q", name, r.errors, test.want)
		}
	}
	r := &recorder{TB: t}
	if cases := rulestest.Check(r, tableOf(always), fine); len(r.errors) > 0 || cases["always"] != 18 {
		t.Errorf("a table without a fault: %v, %v", cases, r.errors)
	}
}

func BenchmarkDecide(b *testing.B) {
	f := facts{green, rules.Yes, rules.No}
	for b.Loop() {
		table.Decide(f)
	}
}
