package reference

import (
	"cmp"
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// isProse says whether a text is more than a word.
func isProse(words string) bool {
	words = placeholder.ReplaceAllString(words, "")
	return strings.Contains(strings.TrimSpace(words), " ") && len(word.FindAllString(words, -1)) > 1
}

// follow marks all texts that reach n, which stands at a place, with a reason.
func (f *flow) follow(at place, n ast.Node, reason string) {
	if f.visited[n] == nil {
		f.visited[n] = map[string]bool{}
	}
	if f.visited[n][reason] {
		return
	}
	f.visited[n][reason] = true
	ast.Inspect(n, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && f.texts[e] != nil {
			f.texts[e].reasons[reason] = true
		}
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			// What is written to a field is followed where the field is read; a reason has a message of its own.
			if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(silentFields, strings.ToLower(key.Name)) || constantOf(n.Key, "Reason") != "" {
				return false
			}
		case *ast.Ident:
			f.name(at, n, reason)
		case *ast.SelectorExpr:
			if field := at.in.info.Uses[n.Sel]; isField(field) && isString(field.Type()) {
				for _, value := range f.writers[field] {
					f.follow(f.of[value], value, reason)
				}
			}
		}
		return true
	})
}

func isString(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return !ok || basic.Info()&types.IsString != 0 || basic.Kind() == types.Invalid
}

// name follows what a name stands for: a function that makes text, a variable of the package, or a variable of the function.
func (f *flow) name(at place, n *ast.Ident, reason string) {
	object := at.in.info.Uses[n]
	if unit := f.units[object]; unit != nil && object != nil {
		if function, ok := object.(*types.Func); ok && !makesText(function) {
			return
		}
		of := f.of[unit]
		of.called = true
		f.follow(of, unit, reason)
		return
	}
	if at.function == nil || object == nil || isField(object) {
		return
	}
	if i := parameterOf(at, object); i >= 0 {
		if at.called {
			return
		}
		for _, call := range f.calls[at.in.info.Defs[at.function.Name]] {
			if i < len(call.Args) {
				f.follow(f.of[call], call.Args[i], reason)
			}
		}
		return
	}
	ast.Inspect(at.function, func(a ast.Node) bool {
		assignment, ok := a.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for i, left := range assignment.Lhs {
			variable, ok := left.(*ast.Ident)
			if !ok || at.in.info.Uses[variable] != object && at.in.info.Defs[variable] != object {
				continue
			}
			if basic, ok := object.Type().(*types.Basic); !ok || basic.Info()&types.IsString == 0 && basic.Kind() != types.Invalid {
				continue
			}
			if len(assignment.Lhs) == len(assignment.Rhs) {
				f.follow(at, assignment.Rhs[i], reason)
			} else {
				f.follow(at, assignment.Rhs[0], reason)
			}
		}
		return true
	})
}

// parameterOf is the position of a parameter of the function, -1 for another variable.
func parameterOf(at place, object types.Object) int {
	i := 0
	for _, field := range at.function.Type.Params.List {
		for _, name := range field.Names {
			if at.in.info.Defs[name] == object {
				return i
			}
			i++
		}
	}
	return -1
}

// makesText says whether a function returns text, or several values of which one is.
func makesText(function *types.Func) bool {
	results := function.Signature().Results()
	for result := range results.Variables() {
		switch of := result.Type().Underlying().(type) {
		case *types.Basic:
			if of.Info()&types.IsString != 0 {
				return true
			}
		case *types.Slice:
			if basic, ok := of.Elem().(*types.Basic); ok && basic.Info()&types.IsString != 0 {
				return true
			}
		}
	}
	return false
}

// roots follows everything that a condition or a problem shows as its message.
func (f *flow) roots() {
	for _, value := range f.snapshots {
		f.follow(f.of[value], value, ofSnapshots)
	}
	for _, s := range f.packages {
		for _, file := range s.files {
			for _, declaration := range file.Decls {
				function, _ := declaration.(*ast.FuncDecl)
				at := place{in: s, function: function}
				ast.Inspect(declaration, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.KeyValueExpr:
						if reason := constantOf(n.Key, "Reason"); reason != "" {
							f.follow(at, n.Value, f.values[reason])
						}
					case *ast.CompositeLit:
						f.literal(at, n)
					case *ast.CaseClause:
						f.clause(at, n)
					}
					return true
				})
			}
		}
	}
}

// literal follows the message of a condition or of a problem.
func (f *flow) literal(at place, literal *ast.CompositeLit) {
	fields := fieldsOf(literal)
	reason, kind := constantOf(fields["Reason"], "Reason"), constantOf(fields["Type"], "Condition")
	switch {
	case named(literal.Type) == "Event":
	case reason != "" && fields["Message"] != nil:
		f.follow(at, fields["Message"], f.values[reason])
	case reason != "" && at.function != nil && named(literal.Type) == "Problem":
		f.follow(at, at.function.Body, f.values[reason])
	case kind != "" && fields["Message"] != nil:
		f.follow(at, fields["Message"], f.values[kind])
	case named(literal.Type) == "Condition" && fields["Message"] != nil && at.function != nil:
		if kind := at.in.conditionOf(at.function.Name.Name); kind != "" {
			f.follow(at, fields["Message"], f.values[kind])
		}
	}
}

// conditionOf is the condition next to which a list names the function, empty if none does.
func (s *source) conditionOf(function string) (kind string) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if row, ok := n.(*ast.CompositeLit); ok && len(row.Elts) > 1 && named(row.Elts[1]) == function {
				kind = cmp.Or(kind, constantOf(row.Elts[0], "Condition"))
			}
			return true
		})
	}
	return kind
}

// clause follows the messages that a case assigns: for a reason, or for a condition.
func (f *flow) clause(at place, clause *ast.CaseClause) {
	for _, e := range clause.List {
		name := ""
		ast.Inspect(e, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				name = cmp.Or(name, constantOf(e, "Reason"), constantOf(e, "Condition"))
				name = strings.TrimPrefix(name, "ConditionTrue")
			}
			return true
		})
		if name == "" {
			continue
		}
		for _, statement := range clause.Body {
			ast.Inspect(statement, func(n ast.Node) bool {
				a, ok := n.(*ast.AssignStmt)
				if ok && slices.ContainsFunc(a.Lhs, func(left ast.Expr) bool { return named(left) == "Message" }) {
					f.follow(at, a.Rhs[len(a.Rhs)-1], f.values[name])
				}
				return true
			})
		}
	}
}

// reasonsOf are those of a text, sorted. One that no message was found to show has the conditions that its function
// names, or a function that calls it.
func (f *flow) reasonsOf(e ast.Expr) []string {
	t := f.texts[e]
	if function := f.of[e].function; len(t.reasons) == 0 && function != nil {
		callers := []*ast.FuncDecl{function}
		for _, call := range f.calls[f.of[e].in.info.Defs[function.Name]] {
			if by := f.of[call].function; by != nil {
				callers = append(callers, by)
			}
		}
		for _, caller := range callers {
			conditions, _, _, _ := mentioned(caller, nil)
			for _, c := range conditions {
				t.reasons[f.values[c]] = true
			}
			if len(t.reasons) > 0 {
				break
			}
		}
	}
	return slices.Sorted(maps.Keys(t.reasons))
}
