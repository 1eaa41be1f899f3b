package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MostRepeated bounds the tests of one run that are repeated: more that fail are no matter of chance.
const MostRepeated = 3

// The other bounds of the policy.
const (
	flakyWindow     = 20 // performances of a test that are looked back upon
	flakyTimes      = 3  // as often as this in the window, and the test is broken
	unexplainedRuns = 5  // for so many runs a flake may wait for its explanation
)

// FatalKind is a failure of a package that no repetition of a test can take back.
type FatalKind string

// The kinds of fatal failures.
const (
	DataRace FatalKind = "data race"
	Panic    FatalKind = "panic"
	Build    FatalKind = "build failure"
	Timeout  FatalKind = "package timeout"
	Outside  FatalKind = "failure outside of a test"
)

// Fatal is one such failure.
type Fatal struct {
	Kind    FatalKind
	Package string
}

// Facts are what a run is judged by.
type Facts struct {
	// Tests are the stories that were performed, and the tests of packages that failed.
	Tests []Entry
	// Unsafe are promises of safety that were seen broken.
	Unsafe []Mark
	// Fatal failures of packages.
	Fatal []Fatal
	// Unfinished are stories that were chosen and have no outcome.
	Unfinished []string
	// Steps of make that failed.
	Steps []string
	// History is the ledger before this run, oldest first.
	History []Entry
	// Explained are the lines of test/FLAKES.md.
	Explained []Explanation
}

// Row is a reason why a run is red.
type Row struct {
	Name string
	find func(Facts) []string
}

// Policy is every reason why a run is red. All rows are looked at.
var Policy = []Row{
	{"a promise of safety was broken", unsafe},
	{"a package failed in a way that is never repeated", fatal},
	{"a test failed again when it was repeated", failedAgain},
	{"a test failed and was not repeated", notRepeated},
	{"more than three tests had to be repeated", tooMany},
	{"a test flaked in three of its last twenty performances", flakedOften},
	{"a flake was not explained for five runs", unexplained},
	{"a story was chosen and has no outcome", func(f Facts) []string { return f.Unfinished }},
	{"a step failed", func(f Facts) []string { return f.Steps }},
}

// Finding is a row that holds, and for what.
type Finding struct{ Row, What string }

// Judge says why a run is red. Without a finding it is green.
func Judge(f Facts) (findings []Finding) {
	for _, row := range Policy {
		for _, what := range row.find(f) {
			findings = append(findings, Finding{Row: row.Name, What: what})
		}
	}
	return findings
}

func unsafe(f Facts) (found []string) {
	for _, mark := range f.Unsafe {
		found = append(found, mark.Test+": "+mark.Text)
	}
	return found
}

func fatal(f Facts) (found []string) {
	for _, failure := range f.Fatal {
		found = append(found, failure.Package+": "+string(failure.Kind))
	}
	return found
}

func failedAgain(f Facts) []string {
	return names(f.Tests, func(e Entry) bool { return !e.Passed() && len(e.Outcomes) > 1 })
}

func notRepeated(f Facts) []string {
	return names(f.Tests, func(e Entry) bool { return !e.Passed() && len(e.Outcomes) < 2 })
}

// tooMany counts those that failed at first, whether they were repeated or not: with more than these none is.
func tooMany(f Facts) []string {
	found := names(f.Tests, failedFirst)
	if len(found) <= MostRepeated {
		return nil
	}
	return []string{fmt.Sprintf("%d failed: %s", len(found), strings.Join(found, ", "))}
}

func failedFirst(e Entry) bool { return len(e.Outcomes) > 0 && e.Outcomes[0] == Failed }

// flakedOften looks at the tests that flaked in this run. An explanation does not help: it was wrong, or there is one more cause.
func flakedOften(f Facts) (found []string) {
	for _, e := range f.Tests {
		if !e.Flaked() {
			continue
		}
		times := 1
		for _, former := range window(f.History, e) {
			if former.Flaked() {
				times++
			}
		}
		if times >= flakyTimes {
			found = append(found, fmt.Sprintf("%s flaked %d times", e.Test, times))
		}
	}
	return found
}

// window are the entries of a test in its former performances. Each performance of a story has one; of a test of a package, which
// is in every run, the runs are counted.
func window(history []Entry, of Entry) []Entry {
	former := slices.DeleteFunc(slices.Clone(history), func(e Entry) bool { return e.Test != of.Test })
	if of.Kind == KindStory {
		return former[max(0, len(former)-flakyWindow+1):]
	}
	runs := runsOf(history)
	recent := runs[max(0, len(runs)-flakyWindow+1):]
	return slices.DeleteFunc(former, func(e Entry) bool { return !slices.Contains(recent, e.Run) })
}

// runsOf are the names of the runs in the ledger, in their order.
func runsOf(history []Entry) (runs []string) {
	for _, e := range history {
		if e.Kind == KindRun {
			runs = append(runs, e.Run)
		}
	}
	return runs
}

// unexplained counts the runs after each flake that has no line in test/FLAKES.md, this run included.
func unexplained(f Facts) (found []string) {
	runs := runsOf(f.History)
	for _, e := range f.History {
		if !e.Flaked() || slices.ContainsFunc(f.Explained, func(x Explanation) bool { return x.explains(e) }) {
			continue
		}
		at := slices.Index(runs, e.Run)
		if after := len(runs) - at; at >= 0 && after >= unexplainedRuns {
			found = append(found, fmt.Sprintf("%s flaked %d runs ago, at commit %s (%s): find the cause, and add a line to test/FLAKES.md",
				e.Test, after, short(e.Commit), e.At.UTC().Format(time.DateOnly)))
		}
	}
	return found
}

func names(entries []Entry, is func(Entry) bool) (found []string) {
	for _, e := range entries {
		if is(e) {
			found = append(found, e.Test)
		}
	}
	return found
}

// short is a commit as people write it.
func short(commit string) string { return commit[:min(len(commit), 10)] }
