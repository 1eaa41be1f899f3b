package druid_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const packagesPage = "docs/explanation/packages.md"

// forAll are the packages that every package can import, as the page says.
var forAll = []string{"internal/rules", "internal/loop", "internal/crash"}

// packageRow is one row of the page: the packages, and what they import of this repository.
type packageRow struct{ names, imports []string }

// TestThePageOfPackagesIsRight compares the page with the packages and their imports, in both directions. What only
// tests have is left out: the page has one row for all of it.
func TestThePageOfPackagesIsRight(t *testing.T) {
	rows := packageRows(t)
	found := list(t, "./...")
	names := make([]string, 0, len(found))
	for _, p := range found {
		names = append(names, own(p.ImportPath))
	}
	imported := make([][]string, len(rows))
	for _, p := range found {
		name := own(p.ImportPath)
		i := slices.IndexFunc(rows, func(r packageRow) bool { return covers(r.names, name) })
		switch {
		case strings.HasPrefix(name, "test/") || name == "":
			continue
		case len(p.GoFiles) > 0 && i < 0:
			t.Errorf("no row of %s names %s", packagesPage, name)
		}
		for _, used := range p.Imports {
			if used = own(used); i < 0 || used == "" || covers(rows[i].names, used) {
				continue
			}
			imported[i] = append(imported[i], used)
			if !covers(forAll, used) && !covers(rows[i].imports, used) {
				t.Errorf("%s imports %s, which its row of %s does not list", name, used, packagesPage)
			}
		}
	}
	for i, r := range rows {
		for _, name := range append(slices.Clone(r.names), r.imports...) {
			if !slices.ContainsFunc(names, func(n string) bool { return covers([]string{name}, n) }) {
				t.Errorf("%s names %s, which does not exist", packagesPage, name)
			}
		}
		for _, name := range r.imports {
			if !slices.ContainsFunc(imported[i], func(n string) bool { return covers([]string{name}, n) }) {
				t.Errorf("%s says that %v imports %s, which it does not", packagesPage, r.names, name)
			}
		}
	}
}

// own returns the path of a package within this repository, or nothing if it is another's or the root.
func own(importPath string) string {
	rest, _ := strings.CutPrefix(importPath, module+"/")
	if rest == importPath {
		return ""
	}
	return rest
}

// covers reports whether one of the names is the package, or a pattern like agent/* that it matches.
func covers(names []string, pkg string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		matches, err := path.Match(name, pkg)
		return err == nil && matches
	})
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	braces   = regexp.MustCompile(`^(.*)\{(.*)\}$`)
)

// packageRows reads the rows of the page. A row that says "nothing" or "anything" has no imports, whatever else it says.
func packageRows(t *testing.T) (rows []packageRow) {
	t.Helper()
	raw, err := os.ReadFile(packagesPage)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(line, "| `") {
			continue
		}
		r := packageRow{names: packageNames(cells[1])}
		if !strings.Contains(cells[3], "thing") {
			r.imports = packageNames(cells[3])
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no row", packagesPage)
	}
	return rows
}

// packageNames returns the names in a cell, with a/{b,c} as a/b and a/c.
func packageNames(cell string) (names []string) {
	for _, span := range codeSpan.FindAllStringSubmatch(cell, -1) {
		parts := braces.FindStringSubmatch(span[1])
		if parts == nil {
			names = append(names, span[1])
			continue
		}
		for part := range strings.SplitSeq(parts[2], ",") {
			names = append(names, parts[1]+part)
		}
	}
	return names
}
