package e2e

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

// The classes of stories.
const (
	alone  = "alone"  // they touch what all on their rig share: druid, a node, the API server
	beside = "beside" // they touch only their own cluster, and say so by t.Parallel()
)

var class = flag.String("stories", "", fmt.Sprintf("run only the stories that run %q on a rig, or only those that run %q one another", alone, beside))

// chooseStories makes -test.run or -test.skip choose the stories of one class; none chooses all.
func chooseStories(class string) error {
	names, err := aloneStories(".")
	if err != nil {
		return err
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	switch class {
	case "":
		return nil
	case alone:
		return flag.Set("test.run", pattern)
	case beside:
		return flag.Set("test.skip", pattern)
	}
	return fmt.Errorf("-stories is %q, want %q or %q", class, alone, beside)
}

// aloneStories are the stories in a folder that do not call t.Parallel(), by name.
func aloneStories(folder string) (names []string, err error) {
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
		return nil, fmt.Errorf("no story in %q runs alone: is that the folder of the stories?", folder)
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
