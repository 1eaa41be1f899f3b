package reference

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the directory of the repository.
const root = "../.."

// source is a package of the repository. Types of other modules are not resolved: what is looked for is in the repository.
type source struct {
	// dir is relative to the repository.
	dir   string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

// sources reads the packages in and below the directories, without their tests.
func sources(t *testing.T, dirs ...string) (all []*source) {
	t.Helper()
	imports := &own{found: map[string]*source{}, checked: map[string]*types.Package{}}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			in, err := filepath.Rel(root, path)
			if err != nil || entry.Name() == "testdata" {
				return err
			}
			if _, err := imports.Import(module + filepath.ToSlash(in)); err != nil {
				return err
			}
			if s := imports.found[in]; len(s.files) > 0 {
				all = append(all, s)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// otherSystem says whether a file is built where druid and the agents do not run.
func otherSystem(file *ast.File) bool {
	return slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < file.Package && strings.Contains(c.List[0].Text, "go:build !linux")
	})
}

// module is the path of the repository's module.
const module = "github.com/etcd-druid/druid/"

// own imports the packages of the repository. All others stay unknown: no name of theirs is looked for here.
type own struct {
	found map[string]*source
	// checked are nil while they are being resolved.
	checked map[string]*types.Package
}

func (o *own) Import(path string) (*types.Package, error) {
	dir, ok := strings.CutPrefix(path, module)
	if !ok {
		return nil, errors.New("not resolved")
	}
	if checked, ok := o.checked[dir]; ok {
		return checked, nil
	}
	s := o.found[dir]
	if s == nil {
		var err error
		if s, err = parseDir(dir); err != nil {
			return nil, err
		}
		o.found[dir] = s
	}
	o.checked[dir] = nil
	s.info = &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{},
	}
	config := types.Config{Importer: o, Error: func(error) {}}
	o.checked[dir], _ = config.Check(path, s.fset, s.files, s.info) // what is imported from elsewhere is missing, which is expected
	return o.checked[dir], nil
}

// parseDir reads one package.
func parseDir(dir string) (*source, error) {
	s := &source{dir: dir, fset: token.NewFileSet()}
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() || !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.fset, filepath.Join(root, dir, entry.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if !otherSystem(file) {
			s.files = append(s.files, file)
		}
	}
	return s, nil
}

// apiConstant is a constant of the API.
type apiConstant struct {
	name, value, doc string
	// group is the comment of the block.
	group string
}

// constants reads the constants of the API whose names begin with prefix.
func constants(t *testing.T, prefix string) (all []apiConstant) {
	t.Helper()
	for _, s := range sources(t, "api") {
		for _, file := range s.files {
			for _, declaration := range file.Decls {
				block, ok := declaration.(*ast.GenDecl)
				if !ok || block.Tok != token.CONST {
					continue
				}
				for _, spec := range block.Specs {
					value := spec.(*ast.ValueSpec)
					if name := value.Names[0].Name; strings.HasPrefix(name, prefix) && len(value.Values) == 1 {
						all = append(all, apiConstant{name, unquote(value.Values[0]), join(value.Doc.Text()), join(block.Doc.Text())})
					}
				}
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("the API has no constants %s…", prefix)
	}
	return all
}

// unquote is the value of a string literal, or nothing.
func unquote(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(literal.Value) // the parser accepted it
	return text
}

// constantOf is the name of the constant of the API that e is, if its name begins with one of the prefixes.
func constantOf(e ast.Expr, prefixes ...string) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	from, ok := selector.X.(*ast.Ident)
	if !ok || from.Name != "v1alpha1" {
		return ""
	}
	if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(selector.Sel.Name, p) }) {
		return selector.Sel.Name
	}
	return ""
}
