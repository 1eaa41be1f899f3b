package reference

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// text is a message, or a part of one, with the reasons that it belongs to.
type text struct {
	at      token.Position
	isError bool
	in      string // function
	words   string
	reasons map[string]bool
}

// flow follows the texts of packages to the conditions that show them.
type flow struct {
	packages []*source
	// values of constants of the API, by name.
	values map[string]string
	texts  map[ast.Expr]*text
	// units are functions and variables of a package, by what their names stand for.
	units map[types.Object]ast.Node
	// of is the package and the function in which something stands.
	of map[ast.Node]place
	// writers are what is assigned to the fields of structs.
	writers map[types.Object][]ast.Expr
	// snapshots are the messages of EtcdSnapshots.
	snapshots []ast.Expr
	// calls of the functions of the packages.
	calls map[types.Object][]*ast.CallExpr
	// visited are the reasons with which something was followed.
	visited map[ast.Node]map[string]bool
}

// ofSnapshots stands for the reason of the message of an EtcdSnapshot, which has a phase and no reason.
const ofSnapshots = "EtcdSnapshot"

// place is where something stands.
type place struct {
	in       *source
	function *ast.FuncDecl
	// called says that it was reached by a call, whose arguments were followed where they stand.
	called bool
}

// ownMessage are structs with a message that is followed from where it is written, and not to where it is repeated.
var ownMessage = []string{"Problem", "Event", "Condition"}

func newFlow(packages []*source, values map[string]string) *flow {
	f := &flow{
		packages: packages, values: values, texts: map[ast.Expr]*text{}, units: map[types.Object]ast.Node{}, of: map[ast.Node]place{},
		writers: map[types.Object][]ast.Expr{}, visited: map[ast.Node]map[string]bool{}, calls: map[types.Object][]*ast.CallExpr{},
	}
	for _, s := range packages {
		for _, file := range s.files {
			for _, declaration := range file.Decls {
				f.declare(s, declaration)
			}
		}
	}
	return f
}

// declare reads a function or variables.
func (f *flow) declare(s *source, declaration ast.Decl) {
	at := place{in: s}
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		at.function = d
		if d.Body == nil || d.Name.Name == "String" || emits(d) {
			return
		}
		f.units[s.info.Defs[d.Name]], f.of[d.Body] = d.Body, at
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) && !(d.Tok == token.CONST && v.Type != nil) {
				for i, name := range v.Names {
					f.units[s.info.Defs[name]], f.of[v.Values[i]] = v.Values[i], at
				}
			}
		}
	}
	f.scan(at, declaration)
}

// emits says whether a function emits an Event by itself: its texts are on the page of the Events.
func emits(d *ast.FuncDecl) (found bool) {
	ast.Inspect(d.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && named(call.Fun) == "Eventf"
		return true
	})
	return found
}

// silent are calls whose texts are not shown in the status of an object.
var silent = regexp.MustCompile(`^((Debug|Info|Warn|Error)(Context)?|\w*Var|Word|inform|New(Desc|Counter|Gauge|Histogram)\w*|counters?|gauges?|patient|still|renewedSince|lasts|Before|After|Contains|HasPrefix|HasSuffix|Fprintf|TrimSuffix|Cut|Fields|MustCompile)$`)

// silentFields are fields of literals whose texts are in other pages, or in none.
var silentFields = []string{"why", "name", "rule", "source", "help", "short", "long", "use", "example", "title"}

// scan collects the texts in a piece of code, and what is assigned to fields.
func (f *flow) scan(at place, n ast.Node) {
	skipped := map[ast.Node]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if skipped[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.StructType:
			return false // tags
		case *ast.GenDecl:
			if n.Tok == token.CONST && len(n.Specs) > 0 && n.Specs[0].(*ast.ValueSpec).Type != nil {
				return false // the words of an enumeration
			}
		case *ast.AssignStmt:
			f.assign(at, n)
		case *ast.KeyValueExpr:
			_, ok := n.Key.(*ast.Ident)
			// A variable of a package with a word for each value of an enumeration has no message.
			if ok && at.function == nil && unquote(n.Value) != "" {
				return false
			}
		case *ast.CompositeLit:
			if named(n.Type) == "Event" {
				return false // the page of the Events
			}
			for name, value := range keyed(n) {
				f.write(at, typeName(at.in.info.Types[n].Type), at.in.info.Uses[name], value)
			}
			for name, value := range at.in.fields(n) {
				if slices.Contains(silentFields, name) {
					skipped[value] = true
				}
			}
		case *ast.CallExpr:
			if callee := at.in.info.Uses[called(n.Fun)]; callee != nil {
				f.calls[callee] = append(f.calls[callee], n)
				f.of[n] = at
			}
			if silent.MatchString(named(n.Fun)) {
				return false
			}
		}
		e, ok := n.(ast.Expr)
		if !ok || !isText(e) {
			return true
		}
		words := message(e)
		if !isProse(words) {
			f.nested(at, e)
			return false
		}
		t := &text{at: at.in.fset.Position(e.Pos()), words: words, reasons: map[string]bool{}, isError: isError(e)}
		if at.function != nil {
			t.in = at.function.Name.Name
		}
		f.texts[e] = t
		f.of[e] = at
		f.nested(at, e)
		return false
	})
}

// nested collects the texts in the arguments of a text, which are not part of its own words.
func (f *flow) nested(at place, e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		f.nested(at, e.X)
		f.nested(at, e.Y)
	case *ast.ParenExpr:
		f.nested(at, e.X)
	case *ast.CallExpr:
		if from := formatOf(e); from >= 0 {
			for _, argument := range e.Args[from:] {
				f.nested(at, argument)
			}
			return
		}
		for _, argument := range e.Args {
			f.scan(at, argument)
		}
	}
}

// isError says whether a text is that of an error.
func isError(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && named(call.Fun) != "Sprintf"
}

func isField(o types.Object) bool {
	v, ok := o.(*types.Var)
	return ok && v.IsField()
}

func (f *flow) assign(at place, a *ast.AssignStmt) {
	for i, left := range a.Lhs {
		field, ok := left.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		value := a.Rhs[0]
		if len(a.Lhs) == len(a.Rhs) {
			value = a.Rhs[i]
		}
		f.write(at, typeName(at.in.info.Types[field.X].Type), at.in.info.Uses[field.Sel], value)
	}
}

// write keeps what is assigned to a field of a struct.
func (f *flow) write(at place, of string, field types.Object, value ast.Expr) {
	if !isField(field) {
		return
	}
	f.of[value] = at
	if field.Name() == "Message" && of == "EtcdSnapshotStatus" {
		f.snapshots = append(f.snapshots, value)
		return
	}
	if field.Name() != "Message" || !slices.Contains(ownMessage, of) {
		f.writers[field] = append(f.writers[field], value)
	}
}

// typeName is the name of a type, or of what it points to.
func typeName(t types.Type) string {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// called is the name of the function that is called.
func called(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	default:
		return nil
	}
}

// fields are the values of the fields of a literal, by their names in lower case, also where the literal does not name them.
func (s *source) fields(literal *ast.CompositeLit) map[string]ast.Expr {
	fields := map[string]ast.Expr{}
	for name, value := range fieldsOf(literal) {
		fields[strings.ToLower(name)] = value
	}
	if t := s.info.Types[literal].Type; t != nil && len(fields) == 0 {
		if of, ok := t.Underlying().(*types.Struct); ok && of.NumFields() == len(literal.Elts) {
			for i, value := range literal.Elts {
				fields[strings.ToLower(of.Field(i).Name())] = value
			}
		}
	}
	return fields
}

// keyed are the fields of a literal, by the names that stand there.
func keyed(literal *ast.CompositeLit) map[*ast.Ident]ast.Expr {
	fields := map[*ast.Ident]ast.Expr{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				fields[key] = pair.Value
			}
		}
	}
	return fields
}

var word = regexp.MustCompile(`[A-Za-z][a-z']+`)

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

// reasonsOf are those of a text, sorted. One that no message was found to show has the conditions that its function names, or a function that
// calls it.
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
