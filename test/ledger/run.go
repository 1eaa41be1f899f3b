package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The variables that `make test` sets for its steps.
const (
	RunVariable     = "DRUID_TEST_RUN"     // the run's own directory
	BeganVariable   = "DRUID_TEST_BEGAN"   // when the run began, in seconds since 1970
	BudgetVariable  = "BUDGET"             // seconds for the whole run
	ReserveVariable = "DRUID_TEST_RESERVE" // seconds that the steps after the stories need
)

// Run is what the steps of one run leave in its directory.
type Run struct{ Dir string }

// Current is the run that this process is part of. It is false outside of `make test`.
//
// It reads the environment, which is among what go test's cache knows a result by: a test that passes must not call it.
func Current() (Run, bool) {
	dir := os.Getenv(RunVariable)
	return Run{Dir: dir}, dir != ""
}

// Name of the run, which its entries bear.
func (r Run) Name() string { return filepath.Base(r.Dir) }

// Stories is the file of the stories' entries: one for each performance.
func (r Run) Stories() string { return filepath.Join(r.Dir, "stories.jsonl") }

// Packages is the file of the packages' `go test -json`, repetitions included.
func (r Run) Packages() string { return filepath.Join(r.Dir, "packages.json") }

// Dumps is the folder of what was seen at failures.
func (r Run) Dumps() string { return filepath.Join(r.Dir, "failed") }

func (r Run) marks() string { return filepath.Join(r.Dir, "unsafe") }

// Path is the ledger's own file.
func Path() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w; set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(cache, "druid-rig", "ledger.jsonl"), nil
}

// Unsafe fails a test because a promise of safety is broken: an acknowledged write is lost, a cluster was formed twice, fewer than
// a quorum of the voters were well, a raft ID was used twice, or data was touched that must not be. It marks the run as well, which
// is red then whatever a repetition says: such a failure is shown once, and is no matter of chance.
func Unsafe(t testing.TB, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	t.Errorf("UNSAFE: %s", text)
	if run, ok := Current(); ok {
		if err := run.mark(t.Name(), text); err != nil {
			t.Errorf("this failure must not be repeated, and could not be marked: %v", err)
		}
	}
}

// mark keeps a file for each broken promise: the test's name in the first line, and what was seen.
func (r Run) mark(test, text string) error {
	if err := os.MkdirAll(r.marks(), 0o755); err != nil {
		return fmt.Errorf("mark the run as unsafe: %w", err)
	}
	file, err := os.CreateTemp(r.marks(), "*.txt")
	if err != nil {
		return fmt.Errorf("mark the run as unsafe: %w", err)
	}
	_, err = fmt.Fprintf(file, "%s\n%s\n", test, text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("mark the run as unsafe: %w", err)
	}
	return nil
}

// Mark is a promise of safety that a test saw broken.
type Mark struct{ Test, Text string }

// Marks are the promises that the run saw broken.
func (r Run) Marks() ([]Mark, error) {
	files, err := os.ReadDir(r.marks())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was marked as unsafe: %w", err)
	}
	var all []Mark
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(r.marks(), file.Name()))
		if err != nil {
			return nil, fmt.Errorf("read what was marked as unsafe: %w", err)
		}
		test, text, _ := strings.Cut(string(content), "\n")
		all = append(all, Mark{Test: test, Text: strings.TrimSpace(text)})
	}
	slices.SortFunc(all, func(a, b Mark) int { return strings.Compare(a.Test+a.Text, b.Test+b.Text) })
	return all, nil
}
