package reference

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the directory of the repository.
const root = "../.."

// source is a package of the repository as it is written. Types that it imports are not resolved: what is looked for here is its own.
type source struct {
	// dir is relative to the repository.
	dir   string
	name  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

// sources reads the packages in and below the directories, without their tests.
func sources(t *testing.T, dirs ...string) (all []*source) {
	t.Helper()
	found := map[string]*source{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			in, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			if found[in] == nil {
				found[in] = &source{dir: in, fset: token.NewFileSet()}
				all = append(all, found[in])
			}
			file, err := parser.ParseFile(found[in].fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err == nil && !otherSystem(file) {
				found[in].files, found[in].name = append(found[in].files, file), file.Name.Name
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range all {
		s.resolve()
	}
	return all
}

// otherSystem says whether a file is built where druid and the agents do not run.
func otherSystem(file *ast.File) bool {
	return slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < file.Package && strings.Contains(c.List[0].Text, "go:build !linux")
	})
}

// nothing imports no package.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.New("not resolved") }

// resolve finds what each name of the package stands for, as far as that needs no other package.
func (s *source) resolve() {
	s.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}, IgnoreFuncBodies: false, FakeImportC: true}
	_, _ = config.Check(s.dir, s.fset, s.files, s.info) // what is imported is missing, which is expected
}

// api are the constants of the API, by name.
type constant struct {
	name, value, doc string
	// group is the comment of the block.
	group string
}

// constants reads the constants of the API whose names begin with prefix.
func constants(t *testing.T, prefix string) (all []constant) {
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
						all = append(all, constant{name, unquote(value.Values[0]), join(value.Doc.Text()), join(block.Doc.Text())})
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
