package points

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

const module = "github.com/etcd-druid/druid/"

// loaded is a package of ours with its types.
type loaded struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
	types *types.Package
}

type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// load type-checks the packages from source, what they import from the compiler's export data.
func load(t *testing.T, patterns ...string) []loaded {
	t.Helper()
	exports := map[string]string{}
	for _, p := range list(t, append([]string{"-export", "-deps"}, patterns...)...) {
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, module) {
			seen(t, p.Dir)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	var all []loaded
	for _, p := range list(t, patterns...) {
		l := loaded{path: p.ImportPath, fset: fset, info: &types.Info{
			Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		}}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			l.files = append(l.files, file)
		}
		checked, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, l.files, l.info)
		if err != nil {
			t.Fatal(err)
		}
		l.types = checked
		all = append(all, l)
	}
	return all
}

// seen opens a folder of a package and all below it. go test's cache knows a result by the files and folders that the test itself
// opened, and not by those that the go command read for it: without this a new file would leave the former result in the cache.
func seen(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// list asks the go command, with the one setting of cgo and -trimpath that all builds share, so that nothing is compiled
// twice.
func list(t *testing.T, args ...string) (all []listed) {
	t.Helper()
	repo, err := binaries.RepoDir()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles"}, args...)...)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "GOOS=linux", "PWD="+repo)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list %v: %v\n%s", args, err, exit.Stderr)
		}
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
