package druid_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bareGo lists the files that may contain a go statement. Everywhere else a goroutine is started by an errgroup, so that
// someone waits for it and hears its error.
var bareGo = map[string]string{}

func TestGoroutinesBelongToAnErrgroup(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t, "./...") {
		for _, file := range p.GoFiles {
			path := relative(t, filepath.Join(p.Dir, file))
			inspect(t, filepath.Join(p.Dir, file), func(fset *token.FileSet, n ast.Node) {
				if g, ok := n.(*ast.GoStmt); ok {
					seen[path] = true
					if bareGo[path] == "" {
						t.Errorf("%s: bare go statement: use an errgroup, so that someone waits for it", fset.Position(g.Pos()))
					}
				}
			})
		}
	}
	for path := range bareGo {
		if !seen[path] {
			t.Errorf("%s has no go statement any more: remove its exception", path)
		}
	}
}

// A skipped test proves nothing and looks like one that passed. What a machine lacks is an error that names it.
func TestNoTestIsSkipped(t *testing.T) {
	skips := []string{"Skip", "Skipf", "SkipNow"}
	for _, p := range list(t, "./...") {
		for _, file := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			inspect(t, filepath.Join(p.Dir, file), func(fset *token.FileSet, n ast.Node) {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains(skips, method.Sel.Name) {
					return
				}
				if x, ok := method.X.(*ast.Ident); ok && slices.Contains([]string{"t", "tb", "b", "f"}, x.Name) {
					t.Errorf("%s: %s.%s: fail and say what is missing instead", fset.Position(call.Pos()), x.Name, method.Sel.Name)
				}
			})
		}
	}
}

// A test that sleeps is slow where the machine is fast and fails where it is slow. It polls with a deadline; only under
// testing/synctest, where time is virtual, a sleep is how time passes.
func TestNoTestSleepsInRealTime(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			var virtual bool
			var sleeps []token.Position
			inspect(t, filepath.Join(p.Dir, file), func(fset *token.FileSet, n ast.Node) {
				switch n := n.(type) {
				case *ast.ImportSpec:
					virtual = virtual || n.Path.Value == `"testing/synctest"`
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Sleep" {
						sleeps = append(sleeps, fset.Position(n.Pos()))
					}
				}
			})
			for _, at := range sleeps {
				if !virtual {
					t.Errorf("%s: time.Sleep: poll with a deadline, or use testing/synctest", at)
				}
			}
		}
	}
}

// The repository must build and run anywhere: no path of the machine that it was written on, no package source.
func TestNoFileNamesAMachine(t *testing.T) {
	home := `(^|[^\w.\-/])/(` + strings.Join([]string{"work", "farm", "root"}, "|") + `)/`
	proxy := strings.Join([]string{"GOPROXY", "GONOSUMDB", "GOSUMDB"}, "=|") + "="
	bad := regexp.MustCompile(home + "|" + proxy)
	eachLine(t, func(path string, number int, line string) {
		if found := bad.FindString(line); found != "" {
			t.Errorf("%s:%d names a machine: %q", path, number, found)
		}
	})
}

// A merge that was not finished leaves such lines.
func TestNoFileHasAConflictMarker(t *testing.T) {
	marker := regexp.MustCompile(`^(<{7}|>{7}|\|{7})( |$)`)
	eachLine(t, func(path string, number int, line string) {
		if marker.MatchString(line) {
			t.Errorf("%s:%d has a conflict marker: %q", path, number, line)
		}
	})
}

// eachLine visits the lines of all files but those that tools write.
func eachLine(t *testing.T, visit func(path string, number int, line string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // what someone wrote next to the tests, and took away again
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "docs/.vitepress/node_modules"}, path) {
				return filepath.SkipDir
			}
			return nil
		}
		// In a worktree .git is a file, and names where the repository is.
		if !d.Type().IsRegular() || path == ".git" || filepath.Base(path) == "go.sum" {
			return nil
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(content), "\n") {
			visit(path, i+1, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func inspect(t *testing.T, path string, visit func(*token.FileSet, ast.Node)) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if n != nil {
			visit(fset, n)
		}
		return true
	})
}

func relative(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	path, err = filepath.Rel(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
