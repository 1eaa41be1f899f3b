package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var day = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func story(name string, outcomes ...Outcome) Entry {
	return Entry{Kind: KindStory, Test: "test/e2e." + name, Outcomes: outcomes, At: day}
}

// runs makes the ledger of so many runs, each with what entries says for it.
func runs(n int, entries func(run int) []Entry) (history []Entry) {
	for run := range n {
		name := fmt.Sprint("run-", run)
		for _, e := range entries(run) {
			e.Run, e.Commit = name, "0123456789abcdef"
			history = append(history, e)
		}
		history = append(history, Entry{Kind: KindRun, Run: name, Green: true})
	}
	return history
}

// flakedIn is a test that passed in all runs, but flaked in these.
func flakedIn(e Entry, in ...int) func(int) []Entry {
	return func(run int) []Entry {
		if slices.Contains(in, run) {
			e.Outcomes = []Outcome{Failed, Passed}
			return []Entry{e}
		}
		if e.Kind == KindStory {
			e.Outcomes = []Outcome{Passed}
			return []Entry{e}
		}
		return nil
	}
}

// Each row is shown by what makes it hold and by what comes closest without.
func TestARunIsRedForTheseReasonsAndNoOthers(t *testing.T) {
	flaked := story("TestA", Failed, Passed)
	ofPackage := Entry{Kind: KindTest, Test: "druid.TestP", Outcomes: []Outcome{Failed, Passed}, At: day}
	today := day.Truncate(24 * time.Hour)
	explained := []Explanation{
		{Test: flaked.Test, Until: today, Cause: "it was late", Commit: "0123456"},
		{Test: ofPackage.Test, Until: today, Cause: "it was late", Commit: "0123456"},
	}
	for name, c := range map[string]struct {
		facts Facts
		want  []string // rows by name; none for a green run
	}{
		"all passed":                 {Facts{Tests: []Entry{story("TestA", Passed), story("TestB", Passed)}}, nil},
		"one passed when repeated":   {Facts{Tests: []Entry{flaked, story("TestB", Passed)}}, nil},
		"three passed when repeated": {Facts{Tests: []Entry{flaked, story("TestB", Failed, Passed), ofPackage}}, nil},
		"four had to be repeated": {
			Facts{Tests: []Entry{flaked, story("TestB", Failed, Passed), story("TestC", Failed, Passed), ofPackage}},
			[]string{"more than three tests had to be repeated"},
		},
		"one failed twice":           {Facts{Tests: []Entry{story("TestA", Failed, Failed)}}, []string{"a test failed again when it was repeated"}},
		"one failed and that was it": {Facts{Tests: []Entry{story("TestA", Failed)}}, []string{"a test failed and was not repeated"}},
		"a promise was broken, and the repetition passed": {
			Facts{Tests: []Entry{flaked}, Unsafe: []Mark{{Test: "TestA", Text: "a write is lost"}}},
			[]string{"a promise of safety was broken"},
		},
		"a data race, and the repetition passed": {
			Facts{Tests: []Entry{ofPackage}, Fatal: []Fatal{{DataRace, "druid"}}},
			[]string{"a package failed in a way that is never repeated"},
		},
		"a panic":           {Facts{Fatal: []Fatal{{Panic, "druid"}}}, []string{"a package failed in a way that is never repeated"}},
		"a build failure":   {Facts{Fatal: []Fatal{{Build, "druid"}}}, []string{"a package failed in a way that is never repeated"}},
		"a package timeout": {Facts{Fatal: []Fatal{{Timeout, "druid"}}}, []string{"a package failed in a way that is never repeated"}},
		"a failing TestMain": {
			Facts{Fatal: []Fatal{{Outside, "druid"}}}, []string{"a package failed in a way that is never repeated"},
		},
		"a story without an outcome": {Facts{Unfinished: []string{"test/e2e.TestA"}}, []string{"a story was chosen and has no outcome"}},
		"lint failed":                {Facts{Steps: []string{"lint"}}, []string{"a step failed"}},
		"a story flaked once more in twenty": {
			Facts{Tests: []Entry{flaked}, History: runs(4, flakedIn(flaked, 3))}, nil,
		},
		"a story flaked twice more in twenty, and that was explained": {
			Facts{Tests: []Entry{flaked}, History: runs(19, flakedIn(flaked, 0, 18)), Explained: explained},
			[]string{"a test flaked in three of its last twenty performances"},
		},
		"a story flaked twice more, once too long ago": {
			Facts{Tests: []Entry{flaked}, History: runs(20, flakedIn(flaked, 0, 19)), Explained: explained}, nil,
		},
		"a story that is not in each run flaked in three of its last twenty": {
			Facts{Tests: []Entry{flaked}, Explained: explained, History: runs(60, func(run int) []Entry {
				if run%4 != 0 { // it is performed every fourth time
					return nil
				}
				return flakedIn(flaked, 8, 56)(run)
			})},
			[]string{"a test flaked in three of its last twenty performances"},
		},
		"a story flaked often and passes now": {
			Facts{Tests: []Entry{story("TestA", Passed)}, History: runs(4, flakedIn(flaked, 1, 2, 3))}, nil,
		},
		"a test of a package flaked in three of twenty runs": {
			Facts{Tests: []Entry{ofPackage}, History: runs(19, flakedIn(ofPackage, 0, 16)), Explained: explained},
			[]string{"a test flaked in three of its last twenty performances"},
		},
		"a test of a package flaked in three of twenty-one runs": {
			Facts{Tests: []Entry{ofPackage}, History: runs(20, flakedIn(ofPackage, 0, 16)), Explained: explained}, nil,
		},
		"a flake is not explained for four runs": {Facts{History: runs(4, flakedIn(flaked, 0))}, nil},
		"a flake is not explained for five runs": {
			Facts{History: runs(5, flakedIn(flaked, 0))}, []string{"a flake was not explained for five runs"},
		},
		"a flake is explained": {Facts{History: runs(5, flakedIn(flaked, 0)), Explained: explained}, nil},
		"another test's flake is explained": {
			Facts{History: runs(5, flakedIn(story("TestB"), 0)), Explained: explained}, []string{"a flake was not explained for five runs"},
		},
		"a flake came after its explanation": {
			Facts{History: runs(5, flakedIn(Entry{Kind: KindStory, Test: flaked.Test, At: day.AddDate(0, 0, 1)}, 0)), Explained: explained},
			[]string{"a flake was not explained for five runs"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, finding := range Judge(c.facts) {
				if got = append(got, finding.Row); finding.What == "" {
					t.Errorf("row %q does not say for what it holds", finding.Row)
				}
			}
			if !slices.Equal(slices.Compact(got), c.want) {
				t.Errorf("rows are %q, want %q", got, c.want)
			}
			seen = append(seen, got...)
		})
	}
	for _, row := range Policy {
		if !slices.Contains(seen, row.Name) {
			t.Errorf("no case shows the row %q", row.Name)
		}
	}
}

// seen are the rows that some case has shown.
var seen []string
