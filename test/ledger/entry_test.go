package ledger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheLedgerKeepsTheNewestEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache", "ledger.jsonl")
	first := Entry{Kind: KindRun, Run: "first", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Green: true}
	if err := Merge(path, []Entry{first}); err != nil {
		t.Fatal(err)
	}
	many := make([]Entry, keptEntries-1)
	for i := range many {
		many[i] = Entry{Kind: KindStory, Test: "test/e2e.TestA", Outcomes: []Outcome{Failed, Passed}, Pressure: []float64{60, 5}}
	}
	if err := Merge(path, many); err != nil {
		t.Fatal(err)
	}
	got, err := ReadEntries(path)
	if err != nil || len(got) != keptEntries {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	if diff := cmp.Diff([]Entry{first, many[0]}, got[:2]); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if err := Merge(path, many[:1]); err != nil {
		t.Fatal(err)
	}
	if got, err = ReadEntries(path); err != nil || len(got) != keptEntries || got[0].Kind == KindRun {
		t.Errorf("%d entries, %v; the first is %+v, want it to be dropped", len(got), err, got[0])
	}
}

func TestALineThatWasCutOffIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stories.jsonl")
	if got, err := ReadEntries(path); err != nil || got != nil {
		t.Errorf("a file that is not there has %v, %v", got, err)
	}
	if err := AppendEntry(path, Entry{Kind: KindStory, Test: "whole"}); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"kind":"story","te`); err != nil {
		t.Fatal(err)
	}
	file.Close()
	if got, err := ReadEntries(path); err != nil || len(got) != 1 || got[0].Test != "whole" {
		t.Errorf("entries are %+v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("no json\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEntries(path); err == nil {
		t.Error("a line that is no entry is no error")
	}
}

// TestFlakeExplanationsReadFromTable: explanations are read from the table of flakes.
func TestFlakeExplanationsReadFromTable(t *testing.T) {
	if _, err := ReadExplanations("../FLAKES.md"); err != nil {
		t.Error(err)
	}
	const head = "# Flakes\n\ntext | with a bar\n\n| test | until | cause | commit |\n|---|---|---|---|\n"
	for name, c := range map[string]struct {
		line string
		want *Explanation // nil for an error
	}{
		"a whole line": {
			"| `druid.TestA` | 2026-03-04 | the kubelet was late | `0123456` |",
			&Explanation{Test: "druid.TestA", Until: time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC), Cause: "the kubelet was late", Commit: "0123456"},
		},
		"without a commit":  {"| druid.TestA | 2026-03-04 | the kubelet was late | |", nil},
		"without a cause":   {"| druid.TestA | 2026-03-04 | | 0123456 |", nil},
		"without a day":     {"| druid.TestA | soon | the kubelet was late | 0123456 |", nil},
		"without a package": {"| TestA | 2026-03-04 | the kubelet was late | 0123456 |", nil},
		"with a cell less":  {"| druid.TestA | 2026-03-04 | 0123456 |", nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "FLAKES.md")
			if err := os.WriteFile(path, []byte(head+c.line+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := ReadExplanations(path)
			if c.want == nil {
				if err == nil || !strings.Contains(err.Error(), "FLAKES.md:7: ") {
					t.Errorf("error is %v, want one that names the line; explanations are %v", err, got)
				}
				return
			}
			if diff := cmp.Diff([]Explanation{*c.want}, got); err != nil || diff != "" {
				t.Errorf("%v; explanations (-want +got):\n%s", err, diff)
			}
		})
	}
}
