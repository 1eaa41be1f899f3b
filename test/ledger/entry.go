package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Outcome of one performance of a test.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "pass"
	Failed Outcome = "fail"
)

// Kind says what an entry is of.
type Kind string

// The kinds.
const (
	KindRun   Kind = "run"   // a whole run; each has one
	KindPlan  Kind = "plan"  // the stories that were chosen, and those that were not; only in the run's own directory
	KindStory Kind = "story" // a story that was performed
	KindTest  Kind = "test"  // a test of a package that failed at least once
)

// Entry is one line of the ledger, or of what a run left.
type Entry struct {
	Kind   Kind      `json:"kind"`
	Run    string    `json:"run"`
	Commit string    `json:"commit,omitempty"`
	At     time.Time `json:"at"`
	// Test is the folder of its package and its name, as in test/e2e.TestFormed.
	Test string `json:"test,omitempty"`
	// Outcomes, in order: more than one if it was repeated.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Seconds of the last performance, without the time that it waited for others.
	Seconds float64 `json:"seconds,omitempty"`
	// Pressure is the share of each performance in which a process waited for a CPU, in percent.
	Pressure []float64 `json:"pressure,omitempty"`
	// Dump is the file with what was seen at the first failure.
	Dump string `json:"dump,omitempty"`
	// Green says of a run that it was.
	Green bool `json:"green,omitempty"`
	// Chosen and Left are the stories of a plan.
	Chosen []string `json:"chosen,omitempty"`
	Left   []string `json:"left,omitempty"`
}

// Flaked says whether it failed and passed when it was repeated.
func (e Entry) Flaked() bool {
	return len(e.Outcomes) > 1 && e.Outcomes[0] == Failed && e.Passed()
}

// Passed says whether its last performance passed.
func (e Entry) Passed() bool {
	return len(e.Outcomes) > 0 && e.Outcomes[len(e.Outcomes)-1] == Passed
}

// ReadEntries reads a file of entries, oldest first. A file that does not exist has none. A last line without an end is left out:
// its writer was stopped in the middle.
func ReadEntries(path string) ([]Entry, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	var all []Entry
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(content, []byte("\n"))
		if !whole {
			return all, nil
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read line %d of %s: %w; move the file aside to begin a new one", n, path, err)
		}
		all, content = append(all, e), rest
	}
}

// AppendEntry adds one line to a file, by one write.
func AppendEntry(path string, e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("append to %s: %w", path, err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("append an entry: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("append an entry: %w", err)
	}
	return nil
}

// keptEntries bounds the ledger: at about thirty entries a run these are a hundred runs, in about a megabyte.
const keptEntries = 4000

// Merge adds a run's entries to the ledger, and drops the oldest beyond keptEntries. Two runs may end at once.
func Merge(path string, entries []Entry) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the ledger's folder: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the ledger: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the ledger: %w", err)
	}
	former, err := ReadEntries(path)
	if err != nil {
		return err
	}
	all := slices.Concat(former, entries)
	all = all[max(0, len(all)-keptEntries):]
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, e := range all {
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("write the ledger: %w", err)
		}
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	return nil
}
