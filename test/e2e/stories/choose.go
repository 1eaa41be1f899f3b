package stories

import (
	"cmp"
	"slices"
	"time"
)

// When a story that is in turn is overdue.
const (
	overdueRuns = 10
	overdueAge  = 7 * 24 * time.Hour
)

// Facts are what Choose decides by.
type Facts struct {
	// Left is the time for all stories.
	Left time.Duration
	// Of what is known of each story, by name.
	Of map[string]Known
}

// Known is what the ledger and the change say of a story.
type Known struct {
	// Runs and Age since it was performed, or since the ledger began.
	Runs int
	Age  time.Duration
	// Change says how close the change since the last green run comes to it.
	Change Closeness
	// Took is how long it took lately; zero for unknown.
	Took time.Duration
}

// Closeness of a change to a story.
type Closeness int

// The degrees.
const (
	Far     Closeness = iota // the change does not come near, or nothing is known of changes
	Near                     // a package that it is of imports one that was changed
	Touched                  // a package that it is of, or the story itself, was changed
)

func (k Known) overdue() bool { return k.Runs >= overdueRuns || k.Age >= overdueAge }

// Choose picks the stories of a run: core always; then those that are in turn, while the time suffices: the overdue first, then those
// that the change touches, then those that were not performed for longest. Of the overdue one is picked even if there is no time, so
// that each has its turn on a machine that is always late.
func Choose(table []Story, f Facts) (chosen, left []Story) {
	var turns []Story
	for _, s := range table {
		switch s.Tier {
		case Core:
			chosen = append(chosen, s)
		case InTurn:
			turns = append(turns, s)
		case Soak:
		}
	}
	slices.SortStableFunc(turns, func(a, b Story) int { return compare(f.Of[a.Name], f.Of[b.Name]) })
	for i, s := range turns {
		with := append(slices.Clone(chosen), s)
		if Span(with, f) <= f.Left || i == 0 && f.Of[s.Name].overdue() {
			chosen = with
		} else {
			left = append(left, s)
		}
	}
	return chosen, left
}

// compare sorts what comes first to the front.
func compare(a, b Known) int {
	late := func(k Known) int {
		if k.overdue() {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(late(a), late(b)),
		cmp.Compare(b.Change, a.Change),
		cmp.Compare(b.Runs, a.Runs),
		cmp.Compare(b.Age, a.Age),
	)
}

// takes is how long a story takes, by what is known.
func (f Facts) takes(s Story) time.Duration {
	if took := f.Of[s.Name].Took; took > 0 {
		return took
	}
	return time.Duration(s.Seconds) * time.Second
}

// Span is how long stories take together: first those that run alone, one after another, then the others as Slots lets them in.
func Span(stories []Story, f Facts) time.Duration {
	var alone time.Duration
	var alongside []Story
	for _, s := range stories {
		if s.With == Alone {
			alone += f.takes(s)
		} else {
			alongside = append(alongside, s)
		}
	}
	slices.SortStableFunc(alongside, func(a, b Story) int { return cmp.Compare(f.takes(b), f.takes(a)) })
	type running struct {
		end    time.Duration
		weight int
	}
	var now, last time.Duration
	var at []running
	for free := Capacity; len(alongside) > 0; {
		if w := weight(alongside[0].Etcds); w <= free {
			at = append(at, running{now + f.takes(alongside[0]), w})
			last = max(last, now+f.takes(alongside[0]))
			alongside, free = alongside[1:], free-w
			continue
		}
		next := slices.MinFunc(at, func(a, b running) int { return cmp.Compare(a.end, b.end) })
		now = next.end
		at = slices.DeleteFunc(at, func(r running) bool {
			if r.end <= now {
				free += r.weight
			}
			return r.end <= now
		})
	}
	return alone + last
}
