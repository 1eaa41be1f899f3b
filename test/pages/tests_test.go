package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// testDeclared is a test, or the target of a fuzzer, in Go code.
	testDeclared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	// testNamed is its name on a page.
	testNamed = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
)

// declaredTests returns the names of all tests of this repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(docs, ".."), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "dist"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range testDeclared.FindAllStringSubmatch(string(text), -1) {
			all[found[1]] = true
		}
		return err
	})
	if err != nil || len(all) < 100 {
		t.Fatalf("%d tests, %v", len(all), err)
	}
	return all
}

func TestPagesNameTestsThatExist(t *testing.T) {
	declared := declaredTests(t)
	err := filepath.WalkDir(docs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" || strings.Contains(path, "node_modules") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range testNamed.FindAllStringSubmatch(string(text), -1) {
			if !declared[found[1]] {
				t.Errorf("%s names %s, which no file declares", path, found[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stolenPage is the page with the table of stolen credentials.
const stolenPage = "explanation/stolen-credentials.md"

// Each credential has a row, and tests show what stops who stole it.
func TestEachStolenCredentialHasItsTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, stolenPage))
	if err != nil {
		t.Fatal(err)
	}
	rows, header := 0, "| Credential | Can | Cannot | Because | Shown by |\n"
	_, table, found := strings.Cut(string(text), header)
	if !found {
		t.Fatalf("%s has no table with the columns %s", stolenPage, header)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		if len(cells) != 5 || !testNamed.MatchString(cells[4]) {
			t.Errorf("this row names no test that shows it: %s", line)
		}
	}
	if rows < 11 {
		t.Errorf("the table has %d rows, want one for each of 11 credentials", rows)
	}
}
