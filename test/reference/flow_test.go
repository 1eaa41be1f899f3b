package reference

import (
	"go/ast"
	"go/token"
	"go/types"
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
var silent = regexp.MustCompile(`^((Debug|Info|Warn|Error)(Context)?|\w*Var|Word|inform|New(Desc|Counter|Gauge|Histogram)\w*|counters?|` +
	`gauges?|lastsLonger|still|renewedSince|lasts|Before|After|Contains|HasPrefix|HasSuffix|Fprintf|TrimSuffix|Cut|Fields|MustCompile)$`)

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
