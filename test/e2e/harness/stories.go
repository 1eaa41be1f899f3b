package harness

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Stories is a class of stories: a part that runs on a rig of its own.
type Stories string

// The classes.
const (
	AllStories    Stories = ""
	AloneStories  Stories = "alone"  // they touch what all on their rig share: druid, a node, the API server
	BesideStories Stories = "beside" // they touch only their own cluster, and say so by t.Parallel()
)

// Choose sets -test.run or -test.skip so that this process runs the class alone, of the stories in a folder.
func (s Stories) Choose(folder string) error {
	names, err := storiesAlone(folder)
	if err != nil {
		return fmt.Errorf("find the stories that run alone: %w", err)
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	switch s {
	case AllStories:
		return nil
	case AloneStories:
		return flag.Set("test.run", pattern)
	case BesideStories:
		return flag.Set("test.skip", pattern)
	}
	return fmt.Errorf("there are no stories %q: say %q or %q", s, AloneStories, BesideStories)
}

// storiesAlone are the stories in a folder that do not call t.Parallel(), by name.
func storiesAlone(folder string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" && !slices.ContainsFunc(f.Body.List, parallel) {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is none in %q: is that the folder of the stories?", folder)
	}
	return names, nil
}

// parallel says whether a statement is t.Parallel().
func parallel(statement ast.Stmt) bool {
	expression, ok := statement.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := expression.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "Parallel"
}
