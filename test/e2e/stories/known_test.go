package stories

import (
	"flag"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/ledger"
)

// TestLedgerLastRunAndDuration: the ledger reports when a story was performed and how long it took.
func TestLedgerLastRunAndDuration(t *testing.T) {
	table := []Story{{Name: "TestOften"}, {Name: "TestOnce"}, {Name: "TestNever"}}
	began := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	var history []ledger.Entry
	run := func(n int, performed ...ledger.Entry) {
		for _, e := range performed {
			e.Kind, e.Run, e.At = ledger.KindStory, fmt.Sprint(n), began.Add(time.Duration(n)*time.Hour)
			history = append(history, e)
		}
		history = append(history, ledger.Entry{Kind: ledger.KindRun, Run: fmt.Sprint(n), At: began.Add(time.Duration(n) * time.Hour)})
	}
	entry := func(s Story, seconds float64, outcome ledger.Outcome) ledger.Entry {
		return ledger.Entry{Test: s.Key(), Seconds: seconds, Outcomes: []ledger.Outcome{outcome}}
	}
	if got := Know(table, nil, nil, began); !cmp.Equal(got, map[string]Known{"TestOften": {}, "TestOnce": {}, "TestNever": {}}) {
		t.Errorf("without a ledger %v are known", got)
	}
	run(0, entry(table[0], 99, ledger.Passed), entry(table[1], 20, ledger.Passed))
	run(1, entry(table[0], 11, ledger.Passed))
	run(2, entry(table[0], 200, ledger.Failed))
	run(3, entry(table[0], 12, ledger.Passed))
	got := Know(table, history, map[string]Closeness{"TestOnce": Near}, began.Add(4*time.Hour))
	want := map[string]Known{
		"TestOften": {Runs: 0, Age: time.Hour, Took: 12 * time.Second}, // longest of the last three that passed
		"TestOnce":  {Runs: 3, Age: 4 * time.Hour, Took: 20 * time.Second, Change: Near},
		"TestNever": {Runs: 5, Age: 4 * time.Hour},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
}

func TestTheBudgetIsOfTheWholeRun(t *testing.T) {
	now := time.Unix(10_000, 0)
	t.Setenv(ledger.BudgetVariable, "1680")
	t.Setenv(ledger.BeganVariable, "9400")
	t.Setenv(ledger.ReserveVariable, "100")
	if left, err := timeLeft(now); err != nil || left != (1680-600-100)*time.Second-rigSpan {
		t.Errorf("%s are left, %v", left, err)
	}
	t.Setenv(ledger.BudgetVariable, "much")
	if left, err := timeLeft(now); err == nil {
		t.Errorf("%s are left of a budget that is no number", left)
	}
	for _, variable := range []string{ledger.BudgetVariable, ledger.BeganVariable, ledger.ReserveVariable} {
		t.Setenv(variable, "")
	}
	if left, err := timeLeft(now); err != nil || left != defaultBudget-rigSpan {
		t.Errorf("%s are left where nothing is set, %v", left, err)
	}
}

// TestFewFailuresRepeated: only a few failures are repeated and never a broken promise.
// What failed is repeated once, alone, unless a promise of safety was broken or too many failed.
func TestFewFailuresRepeated(t *testing.T) {
	pattern := flag.Lookup("test.run").Value.String()
	t.Cleanup(func() {
		if err := flag.Set("test.run", pattern); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		failed []Story
		again  int // what the repetition exits with
		unsafe bool
		code   int
		runs   int
	}{
		"one that passes then":     {Table[:1], 0, false, 0, 1},
		"three that pass then":     {Table[:3], 0, false, 0, 3},
		"one that fails again":     {Table[:1], 1, false, 1, 1},
		"four":                     {Table[:4], 0, false, 1, 0},
		"one, and it broke a word": {Table[:1], 0, true, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run := ledger.Run{Dir: t.TempDir()}
			t.Setenv(ledger.RunVariable, run.Dir)
			if c.unsafe {
				ledger.Unsafe(unharmed{t}, "a write is lost")
			}
			var patterns []string
			p := Program{Log: io.Discard, Run: func() int {
				patterns = append(patterns, flag.Lookup("test.run").Value.String())
				return c.again
			}}
			code, err := p.repeat(run, c.failed)
			if err != nil || code != c.code || len(patterns) != c.runs {
				t.Errorf("the exit code is %d after %d repetitions, %v; want %d after %d", code, len(patterns), err, c.code, c.runs)
			}
			for i, got := range patterns {
				if want := "^(" + c.failed[i].Name + ")$"; got != want {
					t.Errorf("repeated is %q, want %q by itself", got, want)
				}
			}
		})
	}
}

// unharmed does not fail with what is said to it.
type unharmed struct{ testing.TB }

func (unharmed) Errorf(string, ...any) {}
