package ledger

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tester is a test that may fail without failing this one.
type tester struct {
	testing.TB
	name   string
	errors []string
}

func (f *tester) Helper()      {}
func (f *tester) Name() string { return f.name }

func (f *tester) Errorf(format string, _ ...any) { f.errors = append(f.errors, format) }

// TestBrokenPromiseFailsRun: a broken promise fails its test and marks the run.
func TestBrokenPromiseFailsRun(t *testing.T) {
	run := Run{Dir: t.TempDir()}
	t.Setenv(RunVariable, "")
	outside := &tester{TB: t, name: "TestA"}
	Unsafe(outside, "write %d is lost", 1)
	t.Setenv(RunVariable, run.Dir)
	if marks, err := run.Marks(); len(marks) > 0 || err != nil {
		t.Errorf("marks are %v, %v before any was made", marks, err)
	}
	inside := &tester{TB: t, name: "TestB/part"}
	Unsafe(inside, "write %d is lost", 2)
	Unsafe(inside, "write %d is lost", 3)
	if len(outside.errors) != 1 || len(inside.errors) != 2 {
		t.Errorf("the tests failed with %q and %q", outside.errors, inside.errors)
	}
	marks, err := run.Marks()
	if diff := cmp.Diff([]Mark{{"TestB/part", "write 2 is lost"}, {"TestB/part", "write 3 is lost"}}, marks); err != nil || diff != "" {
		t.Errorf("%v; marks (-want +got):\n%s", err, diff)
	}
	if err := os.RemoveAll(run.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(run.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if Unsafe(inside, "write %d is lost", 4); len(inside.errors) != 4 {
		t.Errorf("a mark that cannot be made is not said: %q", inside.errors)
	}
}

func TestARunIsGatheredAndReported(t *testing.T) {
	run := Run{Dir: t.TempDir()}
	for _, e := range []Entry{
		{Kind: KindPlan, Chosen: []string{"test/e2e.TestA", "test/e2e.TestB", "test/e2e.TestC"}, Left: []string{"test/e2e.TestD", "test/e2e.TestE"}},
		{Kind: KindStory, Test: "test/e2e.TestA", Outcomes: []Outcome{Failed}, Seconds: 4, Pressure: []float64{61.2}, Dump: "first.txt"},
		{Kind: KindStory, Test: "test/e2e.TestB", Outcomes: []Outcome{Passed}, Seconds: 5, Pressure: []float64{60}},
		{Kind: KindStory, Test: "test/e2e.TestA", Outcomes: []Outcome{Passed}, Seconds: 3, Pressure: []float64{5}, Dump: "second.txt"},
	} {
		if err := AppendEntry(run.Stories(), e); err != nil {
			t.Fatal(err)
		}
	}
	facts, plan, err := run.Gather("abc")
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{
			Kind: KindStory, Run: run.Name(), Commit: "abc", Test: "test/e2e.TestA", Outcomes: []Outcome{Failed, Passed},
			Seconds: 3, Pressure: []float64{61.2, 5}, Dump: "first.txt",
		},
		{Kind: KindStory, Run: run.Name(), Commit: "abc", Test: "test/e2e.TestB", Outcomes: []Outcome{Passed}, Seconds: 5, Pressure: []float64{60}},
	}
	if diff := cmp.Diff(want, facts.Tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	facts.History = runs(3, flakedIn(story("TestD"), 0))
	facts.History = append(facts.History[:2:2], facts.History[3], facts.History[5])
	var text strings.Builder
	Report(&text, "now", facts, plan, Judge(facts))
	wantText := `=== judgement of run now
test/e2e.TestA: fail (CPU pressure 61 %), then pass (CPU pressure 5 %); the first failure: first.txt
stories: ran 2 of 5; not run: TestD (last at 0123456789, 3 runs ago), TestE (not in the ledger)
RED: a story was chosen and has no outcome: test/e2e.TestC
`
	if diff := cmp.Diff(wantText, text.String()); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
}
