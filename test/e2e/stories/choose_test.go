package stories

import (
	"slices"
	"testing"
	"time"
)

// some is a small table: a core of 60 s, and four that are in turn for 30 s each.
var some = []Story{
	{"Core", Core, Alone, 3, 60, ""},
	{"A", InTurn, Alone, 3, 30, ""}, {"B", InTurn, Alone, 3, 30, ""}, {"C", InTurn, Alone, 3, 30, ""}, {"D", InTurn, Alone, 3, 30, ""},
	{"Soak", Soak, Alone, 3, 1, ""},
}

// TestStoriesChosenByChangeAndTurn: stories are chosen by change and turn within the budget.
func TestStoriesChosenByChangeAndTurn(t *testing.T) {
	for name, c := range map[string]struct {
		left  time.Duration
		known map[string]Known
		want  []string
	}{
		"the core, where there is time for nothing else": {70 * time.Second, nil, []string{"Core"}},
		"the core, where there is no time at all":        {-time.Hour, nil, []string{"Core"}},
		"as many as there is time for":                   {120 * time.Second, nil, []string{"Core", "A", "B"}},
		"all but those that soak":                        {time.Hour, nil, []string{"Core", "A", "B", "C", "D"}},
		"those that were not performed for longest": {
			120 * time.Second, map[string]Known{"A": {Runs: 1}, "B": {Runs: 3}, "C": {Runs: 2}, "D": {Runs: 1, Age: time.Hour}}, []string{"Core", "B", "C"},
		},
		"of two that were performed in the same run the older": {
			90 * time.Second, map[string]Known{"B": {Runs: 1, Age: time.Hour}, "C": {Runs: 1, Age: 2 * time.Hour}}, []string{"Core", "C"},
		},
		"first what the change touches, then what is near it": {
			150 * time.Second, map[string]Known{"A": {Runs: 9}, "B": {Change: Far, Runs: 8}, "C": {Change: Near}, "D": {Change: Touched}},
			[]string{"Core", "D", "C", "A"},
		},
		"before these what was not performed for ten runs": {
			120 * time.Second, map[string]Known{"A": {Runs: 9}, "B": {Runs: 10}, "D": {Change: Touched}}, []string{"Core", "B", "D"},
		},
		"or for a week": {
			120 * time.Second, map[string]Known{"A": {Age: overdueAge - 1}, "C": {Age: overdueAge}, "D": {Change: Touched}}, []string{"Core", "C", "D"},
		},
		"one of the overdue although there is no time": {
			0, map[string]Known{"B": {Runs: 10}, "C": {Runs: 11}}, []string{"Core", "C"},
		},
		"what takes less time than the next that does not fit": {
			90 * time.Second, map[string]Known{"A": {Took: 31 * time.Second}}, []string{"Core", "B"},
		},
		"less where the core takes longer than the table says": {
			120 * time.Second, map[string]Known{"Core": {Took: 80 * time.Second}}, []string{"Core", "A"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, left := Choose(some, Facts{Left: c.left, Of: c.known})
			var got []string
			for _, s := range chosen {
				got = append(got, s.Name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v are chosen, want %v", got, c.want)
			}
			if len(chosen)+len(left) != len(some)-1 {
				t.Errorf("%d are chosen and %d are left, want %d together", len(chosen), len(left), len(some)-1)
			}
		})
	}
}

// TestEachStoryHasATurn: each story has its turn on a machine that is always late.
// Whatever is known, a machine on which there is never time for more than the core performs each story in the end.
func TestEachStoryHasATurn(t *testing.T) {
	runs := map[string]int{}
	for range 2 * overdueRuns {
		known := map[string]Known{}
		for _, s := range some {
			known[s.Name] = Known{Runs: runs[s.Name]}
			runs[s.Name]++
		}
		chosen, _ := Choose(some, Facts{Of: known})
		for _, s := range chosen {
			runs[s.Name] = 0
		}
	}
	for _, s := range some {
		if s.Tier != Soak && runs[s.Name] >= overdueRuns {
			t.Errorf("%s was not performed for %d runs", s.Name, runs[s.Name])
		}
	}
}

func TestSpanIsThatOfTheQueue(t *testing.T) {
	alongside := func(etcds, seconds int) Story { return Story{With: Alongside, Etcds: etcds, Seconds: seconds} }
	for name, c := range map[string]struct {
		stories []Story
		want    int
	}{
		"none":                        {nil, 0},
		"alone one after another":     {[]Story{{With: Alone, Etcds: 1, Seconds: 10}, {With: Alone, Etcds: 1, Seconds: 20}}, 30},
		"next to one another":         {[]Story{alongside(6, 10), alongside(6, 20)}, 20},
		"the third has to wait":       {[]Story{alongside(6, 10), alongside(6, 20), alongside(6, 5)}, 20},
		"the longest comes first":     {[]Story{alongside(12, 5), alongside(6, 10), alongside(6, 20)}, 25},
		"no light one passes a heavy": {[]Story{alongside(6, 20), alongside(12, 10), alongside(6, 5)}, 35},
		"more than all":               {[]Story{alongside(20, 20), alongside(1, 5)}, 25},
		"first alone, then next to":   {[]Story{alongside(3, 20), {With: Alone, Etcds: 3, Seconds: 10}}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Span(c.stories, Facts{}); got != time.Duration(c.want)*time.Second {
				t.Errorf("they take %s, want %d s", got, c.want)
			}
		})
	}
}

// TestSoakRoundBySeed: a round of soaking has all that soak and some others by its seed.
func TestSoakRoundBySeed(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) { // so many that it is unlikely that none draws a story
		round := Round(Table, seed)
		if !slices.Equal(Keys(round), Keys(Round(Table, seed))) {
			t.Errorf("seed %d draws other stories the second time", seed)
		}
		names := map[string]bool{}
		for _, s := range round {
			names[s.Name], seen[s.Name] = true, true
		}
		for _, s := range Table {
			if s.Tier == Soak && !names[s.Name] {
				t.Errorf("seed %d leaves out %s", seed, s.Name)
			}
		}
		if len(names) != len(round) || len(round) < handful {
			t.Errorf("seed %d draws %d stories, of which %d differ", seed, len(round), len(names))
		}
	}
	if len(seen) != len(Table) {
		t.Errorf("two hundred seeds draw %d of %d stories", len(seen), len(Table))
	}
}
