package ledger

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// Explanation is a line of test/FLAKES.md: why a test flaked, and which commit removed the cause.
type Explanation struct {
	Test          string
	Until         time.Time // flakes up to the end of this day are explained; a later one has another cause
	Cause, Commit string
}

func (x Explanation) explains(e Entry) bool {
	return x.Test == e.Test && e.At.Before(x.Until.AddDate(0, 0, 1))
}

var commitHash = regexp.MustCompile(`^[0-9a-f]{7,40}$`)

// ReadExplanations reads the table of test/FLAKES.md.
func ReadExplanations(path string) ([]Explanation, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the explained flakes: %w", err)
	}
	var all []Explanation
	for n, line := range strings.Split(string(content), "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.TrimSpace(cells[0]) == "test" || strings.HasPrefix(line, "|-") {
			continue
		}
		x, err := explanation(cells)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
		}
		all = append(all, x)
	}
	return all, nil
}

func explanation(cells []string) (Explanation, error) {
	if len(cells) != 4 {
		return Explanation{}, fmt.Errorf("the line has %d cells, want test, until, cause and commit", len(cells))
	}
	for i := range cells {
		cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
	}
	until, err := time.Parse(time.DateOnly, cells[1])
	if err != nil {
		return Explanation{}, fmt.Errorf("the second cell is no day as 2006-01-02: %w", err)
	}
	x := Explanation{Test: cells[0], Until: until, Cause: cells[2], Commit: cells[3]}
	if _, name, ok := strings.Cut(x.Test, "."); !ok || !strings.HasPrefix(name, "Test") {
		return Explanation{}, fmt.Errorf("the first cell is %q, want the package's folder and the test, as in druid.TestName", x.Test)
	}
	if x.Cause == "" || !commitHash.MatchString(x.Commit) {
		return Explanation{}, fmt.Errorf("it has cause %q and commit %q, want both", x.Cause, x.Commit)
	}
	return x, nil
}
