package reference

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// situationsPage has a row for each situation, with the row that decides and a test that shows it.
const situationsPage = pages + "situations.md"

// situations is how many situations each part of the page has at least, so that none is lost with an edit.
var situations = map[string]int{"What druid finds": 19, "What an agent finds before etcd starts": 10}

var (
	situationRow = regexp.MustCompile("(?m)^\\| ([^|`]+) \\| ([^|`]+) \\| `([^`]+)` \\| `([^`]+)` \\|$")
	testFunction = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(t \*testing\.T\)`)
)

func TestEachSituationHasItsRuleAndATest(t *testing.T) {
	page := read(t, situationsPage)
	decisions, tests := decisionRows(t), testNames(t)
	for _, part := range strings.Split(page, "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		rows := situationRow.FindAllStringSubmatch(body, -1)
		if len(rows) < situations[title] || situations[title] == 0 || len(rows) != strings.Count(body, "\n|")-2 {
			t.Errorf("%s: %d rows could be read, want at least %d and each line", title, len(rows), situations[title])
		}
		for _, row := range rows {
			situation, table, rule, shown := row[1], row[2], row[3], row[4]
			if !slices.Contains(decisions[table], rule) {
				t.Errorf("%s: decisions.md has no row %s of %s", situation, rule, table)
			}
			if !tests[shown] {
				t.Errorf("%s: there is no test %s", situation, shown)
			}
		}
	}
}

// rowAnchor is what links to a row of decisions.md lead to.
var rowAnchor = regexp.MustCompile(`<a id="([^"]*)"></a>`)

// decisionRows are the names of the rows in decisions.md, by the end of the title of their table.
func decisionRows(t *testing.T) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for _, part := range strings.Split(read(t, pages+"decisions.md"), "\n### ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		if _, table, named := strings.Cut(title, ": "); named {
			title = table
		}
		for line := range strings.SplitSeq(body, "\n") {
			if cells := strings.Split(line, "|"); len(cells) > 2 {
				rows[title] = append(rows[title], strings.TrimSpace(rowAnchor.ReplaceAllString(cells[1], "")))
			}
		}
	}
	return rows
}

// TestEachRowOfDecisionsHasItsAnchor: links lead to one row, and never to a heading instead.
func TestEachRowOfDecisionsHasItsAnchor(t *testing.T) {
	page := read(t, pages+"decisions.md")
	taken := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		taken[strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-")] = true
	}
	for _, section := range regexp.MustCompile(`(?s)<!-- begin ([^ ]+) -->\n(.*?)<!-- end `).FindAllStringSubmatch(page, -1) {
		rows := regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(section[2], -1)
		if len(rows) < 3 {
			t.Errorf("section %s has no rows", section[1])
			continue
		}
		for _, row := range rows[2:] {
			want := strings.ToLower(section[1] + "-" + rowAnchor.ReplaceAllString(row[1], ""))
			if found := rowAnchor.FindStringSubmatch(row[1]); found == nil || found[1] != want || taken[want] {
				t.Errorf("the row %s has not an anchor %s of its own", row[1], want)
			}
			taken[want] = true
		}
	}
}

// testNames are the tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{"agent", "druid", "leases", "membership", "test"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, found := range testFunction.FindAllStringSubmatch(read(t, path), -1) {
				names[found[1]] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
