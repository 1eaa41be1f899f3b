package ledger

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Gather reads what the run has left, without what only the caller knows: failed steps, history and explanations.
func (r Run) Gather(commit string) (f Facts, plan Entry, err error) {
	performed, err := ReadEntries(r.Stories())
	if err != nil {
		return f, plan, err
	}
	tests, fatal, err := r.ReadPackages()
	if err != nil {
		return f, plan, err
	}
	f.Fatal = fatal
	if f.Unsafe, err = r.Marks(); err != nil {
		return f, plan, err
	}
	for _, e := range performed {
		if e.Kind == KindPlan {
			plan = e
		}
	}
	f.Tests = slices.Concat(together(performed), tests)
	for i := range f.Tests {
		f.Tests[i].Run, f.Tests[i].Commit = r.Name(), commit
	}
	for _, name := range plan.Chosen {
		if !slices.ContainsFunc(f.Tests, func(e Entry) bool { return e.Test == name }) {
			f.Unfinished = append(f.Unfinished, name)
		}
	}
	return f, plan, nil
}

// together makes one entry of the performances of each story.
func together(performed []Entry) (all []Entry) {
	for _, e := range performed {
		if e.Kind != KindStory {
			continue
		}
		i := slices.IndexFunc(all, func(former Entry) bool { return former.Test == e.Test })
		if i < 0 {
			all = append(all, e)
			continue
		}
		former := &all[i]
		former.Outcomes = append(former.Outcomes, e.Outcomes...)
		former.Pressure = append(former.Pressure, e.Pressure...)
		former.At, former.Seconds = e.At, e.Seconds
		if former.Dump == "" {
			former.Dump = e.Dump
		}
	}
	return all
}

// Report prints what was repeated, what was run and what was not, and why the run is red.
func Report(to io.Writer, run string, f Facts, plan Entry, findings []Finding) {
	fmt.Fprintf(to, "=== judgement of run %s\n", run)
	for _, e := range f.Tests {
		if failedFirst(e) {
			fmt.Fprintf(to, "%s: %s; the first failure: %s\n", e.Test, outcomes(e), orNone(e.Dump))
		}
	}
	if len(plan.Chosen) > 0 {
		stories := len(plan.Chosen) - len(f.Unfinished)
		fmt.Fprintf(to, "stories: ran %d of %d", stories, len(plan.Chosen)+len(plan.Left))
		for i, name := range plan.Left {
			fmt.Fprintf(to, "%s%s (%s)", map[bool]string{true: "; not run: ", false: ", "}[i == 0], strings.TrimPrefix(name, "test/e2e."), last(f.History, name))
		}
		fmt.Fprintln(to)
	}
	for _, finding := range findings {
		fmt.Fprintf(to, "RED: %s: %s\n", finding.Row, finding.What)
	}
	if len(findings) == 0 {
		fmt.Fprintln(to, "green")
	}
}

// outcomes are reported with the CPU pressure of each performance, where it was measured.
func outcomes(e Entry) string {
	var parts []string
	for i, o := range e.Outcomes {
		part := string(o)
		if i < len(e.Pressure) {
			part += fmt.Sprintf(" (CPU pressure %.0f %%)", e.Pressure[i])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", then ")
}

// last says when a story was performed last.
func last(history []Entry, name string) string {
	runs := runsOf(history)
	for _, e := range slices.Backward(history) {
		if e.Test != name {
			continue
		}
		ago := "in a run that is not kept"
		if i := slices.Index(runs, e.Run); i >= 0 {
			ago = fmt.Sprintf("%d runs ago", len(runs)-i)
		}
		return "last at " + short(e.Commit) + ", " + ago
	}
	return "not in the ledger"
}

func orNone(path string) string {
	if path == "" {
		return "nothing was kept"
	}
	return path
}
