package stories

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/etcd-druid/druid/"

// Imports are the module's own packages, as folders, and which of them each imports, tests aside. They are read from the sources:
// the go command would do the same in a process of its own, of which go test's cache sees nothing.
func Imports(root string) (map[string][]string, error) {
	imports := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name != root && (strings.HasPrefix(base, ".") || base == "testdata" || base == "tools") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		imports[folder] = append(imports[folder], ofModule(file.Imports)...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read which packages there are: %w", err)
	}
	return imports, nil
}

func ofModule(specs []*ast.ImportSpec) (folders []string) {
	for _, spec := range specs {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil && strings.HasPrefix(p, module) {
			folders = append(folders, strings.TrimPrefix(p, module))
		}
	}
	return folders
}

// outside are the programs that run on the computers of users, and not in Kubernetes. No core story has to show
// them: the tests of internal/plugin run the first one against a real API server, and the second one is the commands for backups of the
// agent.
var outside = []string{"cmd/kubectl-druid", "cmd/druid-backup"}

// Linked are the packages that the programs in Kubernetes link: those below cmd/ and all that they import.
func Linked(imports map[string][]string) []string {
	var linked []string
	for folder := range imports {
		if strings.HasPrefix(folder, "cmd/") && !slices.Contains(outside, folder) {
			linked = reach(linked, folder, imports)
		}
	}
	slices.Sort(linked)
	return linked
}

func reach(found []string, folder string, next map[string][]string) []string {
	if slices.Contains(found, folder) {
		return found
	}
	found = append(found, folder)
	for _, other := range next[folder] {
		found = reach(found, other, next)
	}
	return found
}

// Tests are the functions of a folder's tests, by file, with their bodies.
func Tests(folder string) (map[string][]*ast.FuncDecl, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no test in %q: is that the folder of the stories?", folder)
	}
	found := map[string][]*ast.FuncDecl{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				found[filepath.Base(name)] = append(found[filepath.Base(name)], f)
			}
		}
	}
	return found, nil
}

// Closest says how close changed files come to each story.
func Closest(table []Story, changed []string, imports map[string][]string, tests map[string][]*ast.FuncDecl) map[string]Closeness {
	touched := map[string]bool{}
	own := map[string]bool{}
	for _, file := range changed {
		touch(touched, file, imports)
		if path.Dir(file) == "test/e2e" {
			for _, f := range tests[path.Base(file)] {
				own[f.Name.Name] = true
			}
		}
	}
	near := map[string]bool{}
	for folder := range imports {
		near[folder] = slices.ContainsFunc(reach(nil, folder, imports), func(other string) bool { return touched[other] })
	}
	of := func(s Story, set map[string]bool) bool {
		for folder := range set {
			if set[folder] && s.Shows(folder) {
				return true
			}
		}
		return false
	}
	found := map[string]Closeness{}
	for _, s := range table {
		switch {
		case own[s.Name] || of(s, touched):
			found[s.Name] = Touched
		case of(s, near):
			found[s.Name] = Near
		default:
			found[s.Name] = Far
		}
	}
	return found
}

// touch adds the packages that a changed file may change: a dependency may change all of them.
func touch(touched map[string]bool, file string, imports map[string][]string) {
	if file == "go.mod" {
		for folder := range imports {
			touched[folder] = true
		}
	}
	if folder, ok := folderOf(file, imports); ok {
		touched[folder] = true
	}
}

// folderOf is the package that a file of the product belongs to: its folder, or the next one above that is a package. What only
// tests read belongs to none.
func folderOf(file string, imports map[string][]string) (string, bool) {
	if strings.HasSuffix(file, "_test.go") || slices.Contains(strings.Split(file, "/"), "testdata") || strings.HasPrefix(file, "test/") {
		return "", false
	}
	for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
		if _, ok := imports[folder]; ok {
			return folder, true
		}
	}
	return "", false
}
