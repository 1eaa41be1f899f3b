package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// module is the prefix of our packages, which the names of tests in the ledger leave out.
const module = "github.com/etcd-druid/druid/"

// event is a line of `go test -json` (cmd/test2json).
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
	ImportPath, FailedBuild       string
	Elapsed                       float64
}

// packageLog is what `go test -json` said, repetitions included: the tests that failed at least once, and failures that are never
// repeated.
type packageLog struct {
	tests map[string]*testLog // by package and test
	packs map[string]*packLog
}

type testLog struct {
	entry  Entry
	output strings.Builder // of the first performance that failed, or of the one under way
}

type packLog struct {
	ownFail  bool // a test of it failed since its last start
	panicked bool
	fatal    []FatalKind
}

// ReadPackages reads the run's packages. The output of the first failure of each test is kept in the folder of dumps.
func (r Run) ReadPackages() ([]Entry, []Fatal, error) {
	file, err := os.Open(r.Packages())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // the step was not reached, and the one before it failed
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the results of packages: %w", err)
	}
	defer file.Close()
	log := packageLog{tests: map[string]*testLog{}, packs: map[string]*packLog{}}
	if err := log.read(file); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", r.Packages(), err)
	}
	entries, err := log.entries(r)
	return entries, log.fatals(), err
}

func (l *packageLog) read(from io.Reader) error {
	reader := bufio.NewReader(from)
	for {
		line, err := reader.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil { // a line that was cut off, or is the build's, is none
			l.take(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *packageLog) take(e event) {
	if e.Action == "build-fail" {
		e.Package = strings.TrimSuffix(strings.Fields(e.ImportPath + " ")[0], ".test")
	}
	if e.Package == "" {
		return
	}
	p := l.packs[e.Package]
	if p == nil {
		p = &packLog{}
		l.packs[e.Package] = p
	}
	if e.Test == "" {
		p.result(e)
	}
	if e.Action == "output" {
		p.look(e.Output)
	}
	if e.Test != "" {
		l.test(p, e)
	}
}

// result takes what is said of a whole package.
func (p *packLog) result(e event) {
	switch e.Action {
	case "start":
		p.ownFail = false
	case "build-fail":
		p.mark(Build)
	case "fail":
		switch {
		case e.FailedBuild != "":
			p.mark(Build)
		case p.panicked || slices.Contains(p.fatal, Timeout):
			// said already
		case !p.ownFail:
			p.mark(Outside)
		}
	}
}

// look finds what the race detector, the runtime and package testing print.
func (p *packLog) look(line string) {
	switch {
	case strings.HasPrefix(line, "WARNING: DATA RACE"), strings.Contains(line, "race detected during execution of test"):
		p.mark(DataRace)
	case strings.HasPrefix(line, "panic: test timed out after"):
		p.mark(Timeout)
	case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "):
		p.panicked = true
	case p.panicked && strings.HasPrefix(line, "goroutine ") && strings.Contains(line, "["):
		p.mark(Panic)
	case strings.Contains(line, "[build failed]"), strings.Contains(line, "[setup failed]"):
		p.mark(Build)
	}
}

func (p *packLog) mark(kind FatalKind) {
	if !slices.Contains(p.fatal, kind) {
		p.fatal = append(p.fatal, kind)
	}
}

// test takes what is said of a test; its parts count as it.
func (l *packageLog) test(p *packLog, e event) {
	name, _, part := strings.Cut(e.Test, "/")
	key := strings.TrimPrefix(e.Package, module) + "." + name
	t := l.tests[key]
	if t == nil {
		t = &testLog{entry: Entry{Kind: KindTest, Test: key}}
		l.tests[key] = t
	}
	if e.Action == "output" && !slices.Contains(t.entry.Outcomes, Failed) {
		t.output.WriteString(e.Output)
	}
	if part {
		return
	}
	switch e.Action {
	case "pass", "fail":
		t.entry.Outcomes = append(t.entry.Outcomes, Outcome(e.Action))
		t.entry.At, t.entry.Seconds = e.Time, e.Elapsed
		if e.Action == "fail" {
			p.ownFail = true
		} else if !slices.Contains(t.entry.Outcomes, Failed) {
			t.output.Reset()
		}
	}
}

// entries are the tests that failed at least once. What passed before its first failure, as by -count=2, does not count.
func (l *packageLog) entries(r Run) (all []Entry, err error) {
	for _, key := range slices.Sorted(maps.Keys(l.tests)) {
		t := l.tests[key]
		first := slices.Index(t.entry.Outcomes, Failed)
		if first < 0 {
			continue
		}
		t.entry.Outcomes = t.entry.Outcomes[first:]
		if t.entry.Dump, err = r.KeepDump(key, t.output.String()); err != nil {
			return nil, err
		}
		all = append(all, t.entry)
	}
	return all, nil
}

func (l *packageLog) fatals() (all []Fatal) {
	for _, path := range slices.Sorted(maps.Keys(l.packs)) {
		for _, kind := range l.packs[path].fatal {
			all = append(all, Fatal{Kind: kind, Package: strings.TrimPrefix(path, module)})
		}
	}
	return all
}

// KeepDump writes down what was seen of a test that failed, and returns the file. It replaces none: the first says most.
func (r Run) KeepDump(name, text string) (string, error) {
	path, err := r.keepDump(strings.ReplaceAll(name, "/", "_"), text)
	if err != nil {
		return "", fmt.Errorf("keep what was seen of %s: %w", name, err)
	}
	return path, nil
}

func (r Run) keepDump(name, text string) (string, error) {
	if err := os.MkdirAll(r.Dumps(), 0o755); err != nil {
		return "", err
	}
	for n, suffix := 1, ""; ; n++ {
		path := filepath.Join(r.Dumps(), name+suffix+".txt")
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			suffix = fmt.Sprint("-", n+1)
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = file.WriteString(text)
		return path, errors.Join(err, file.Close())
	}
}
