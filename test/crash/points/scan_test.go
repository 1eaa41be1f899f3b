package points

import (
	"fmt"
	"go/ast"
	"go/types"
	"strconv"
	"strings"

	"github.com/etcd-druid/druid/internal/crash"
)

// found is what a scan of the code came to.
type found struct {
	program crash.Program
	// sites by the name of their points.
	sites map[string][]site
	// wrong in words: calls without points, points without a call, calls without a class.
	wrong []string
	// carried are the functions that were let off, with the changes in them.
	carried map[string]bool
}

// site is a call between its points.
type site struct{ function, callee string }

// scan looks at every function of the package.
func (f *found) scan(p loaded) {
	for _, file := range p.files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				f.references(p, declaration, nil)
				continue
			}
			name := short(p.info.Defs[function.Name].(*types.Func))
			called := map[*ast.Ident]bool{}
			ast.Inspect(function, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BlockStmt:
					f.statements(p, name, n.List)
				case *ast.CaseClause:
					f.statements(p, name, n.Body)
				case *ast.CommClause:
					f.statements(p, name, n.Body)
				case *ast.CallExpr:
					called[identifier(n)] = true
				}
				return true
			})
			f.references(p, function, called)
		}
	}
}

// references finds changes that are no calls: a method that is handed on cannot be followed.
func (f *found) references(p loaded, n ast.Node, called map[*ast.Ident]bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || called[id] {
			return true
		}
		if callee, ok := p.info.Uses[id].(*types.Func); ok && classes[short(callee)] == changes {
			f.complain(p, id, "%s is handed on as a value: call it, between two points", short(callee))
		}
		return true
	})
}

// statements checks one list: a change stands alone in its statement, right between its two points.
func (f *found) statements(p loaded, function string, list []ast.Stmt) {
	surrounded := map[int]bool{}
	for i, statement := range list {
		for _, call := range f.changes(p, statement) {
			callee := short(p.callee(call))
			name, ok := f.between(p, list, i)
			if !ok && carried[function] != "" {
				f.carried[function] = true
				continue
			}
			if !ok {
				f.complain(p, call, "%s changes something and does not stand between two crash points", callee)
				continue
			}
			surrounded[i-1], surrounded[i+1] = true, true
			f.sites[name] = append(f.sites[name], site{function, callee})
		}
	}
	for i, statement := range list {
		if kind, name := p.point(statement); kind != "" && !surrounded[i] {
			f.complain(p, statement, "crash.%s(%q) does not stand next to a call that changes something", kind, name)
		}
	}
}

// between is the name of the points around statement i.
func (f *found) between(p loaded, list []ast.Stmt, i int) (string, bool) {
	if i == 0 {
		return "", false
	}
	kind, name := p.point(list[i-1])
	switch kind {
	case "Before":
		if i+1 == len(list) {
			return "", false
		}
		next, same := p.point(list[i+1])
		return name, next == "After" && same == name
	case "Around":
		_, returns := list[i].(*ast.ReturnStmt)
		return name, returns
	default:
		return "", false
	}
}

// changes are the calls directly in a statement that change something; of those in the blocks within it their own list
// reports.
func (f *found) changes(p loaded, statement ast.Stmt) (calls []*ast.CallExpr) {
	ast.Inspect(statement, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			return false
		case *ast.CaseClause:
			for _, value := range n.List {
				calls = append(calls, f.changes(p, &ast.ExprStmt{X: value})...)
			}
			return false
		case *ast.CommClause:
			if n.Comm != nil {
				calls = append(calls, f.changes(p, n.Comm)...)
			}
			return false
		case *ast.CallExpr:
			callee := p.callee(n)
			if callee == nil {
				return true
			}
			switch class, known := classes[short(callee)]; {
			case class == changes:
				calls = append(calls, n)
			case !known && watched(callee):
				f.complain(p, n, "classes does not say whether %s changes something: add it", short(callee))
			}
		}
		return true
	})
	return calls
}

func (f *found) complain(p loaded, n ast.Node, format string, args ...any) {
	at := p.fset.Position(n.Pos())
	_, file, _ := strings.Cut(at.Filename, "/"+strings.TrimPrefix(p.path, module)+"/")
	f.wrong = append(f.wrong, fmt.Sprintf("%s/%s:%d: ", strings.TrimPrefix(p.path, module), file, at.Line)+fmt.Sprintf(format, args...))
}

// point says which of crash's functions a statement calls, and for which name.
func (p loaded) point(statement ast.Stmt) (kind, name string) {
	var call *ast.CallExpr
	switch s := statement.(type) {
	case *ast.ExprStmt:
		call, _ = s.X.(*ast.CallExpr)
	case *ast.DeferStmt:
		call, _ = s.Call.Fun.(*ast.CallExpr)
	}
	if call == nil || len(call.Args) != 1 {
		return "", ""
	}
	callee := p.callee(call)
	if callee == nil || callee.Pkg() == nil || callee.Pkg().Path() != module+"internal/crash" {
		return "", ""
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", ""
	}
	name, _ = strconv.Unquote(literal.Value)
	return callee.Name(), name
}

// callee is the function or method that is called, nil for a conversion, a builtin or a function value.
func (p loaded) callee(call *ast.CallExpr) *types.Func {
	id := identifier(call)
	if id == nil {
		return nil
	}
	callee, _ := p.info.Uses[id].(*types.Func)
	return callee
}

func identifier(call *ast.CallExpr) *ast.Ident {
	fun := ast.Unparen(call.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok {
		fun = index.X
	}
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun
	case *ast.SelectorExpr:
		return fun.Sel
	default:
		return nil
	}
}

// short is a function's name without the paths that everybody knows: (*leases.Store).Record, os.Rename.
func short(f *types.Func) string {
	name := strings.ReplaceAll(f.Origin().FullName(), module, "")
	for _, known := range []string{"sigs.k8s.io/controller-runtime/pkg/", "k8s.io/client-go/", "go.etcd.io/etcd/", "golang.org/x/sys/"} {
		name = strings.ReplaceAll(name, known, "")
	}
	return name
}
