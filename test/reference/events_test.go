package reference

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/golden"
)

// emission is one place in the code that emits an Event.
type emission struct {
	reason   string // the value
	warning  bool
	snapshot bool // of an EtcdSnapshot
	note     string
}

// turned are the Events of conditions that druid reports when they turn, by their status. Their reasons are those of the conditions.
var turned = map[string]map[string]bool{
	"Degraded":          {"True": true},
	"BackupReady":       {"False": true, "True": false},
	"BackupVerified":    {"False": true, "True": false},
	"CertificatesReady": {"False": true, "True": false},
	"AuthReady":         {"False": true, "True": false},
	"Spread":            {"False": true, "True": false},
}

// turns are the calls that emit them: by the status that is compared, and whether the Event is a warning.
var turns = []string{"False true", "True false", "True true"}

// emitter finds the Events in a package.
type emitter struct {
	t *testing.T
	// values of constants, by name.
	values map[string]string
	found  []emission
	turns  []string
}

func TestEvents(t *testing.T) {
	e := &emitter{t: t, values: map[string]string{}}
	meaning := map[string]string{}
	for _, c := range slices.Concat(constants(t, "Reason"), constants(t, "Event")) {
		e.values[c.name] = c.value
		_, said, ok := strings.Cut(c.doc, ": ")
		if !ok && strings.HasPrefix(c.name, "Event") {
			t.Errorf("%s: its comment does not say what it means", c.name)
		}
		meaning[c.value] = said
	}
	for _, s := range sources(t, "druid") {
		for _, file := range s.files {
			for _, declaration := range file.Decls {
				if f, ok := declaration.(*ast.FuncDecl); ok && f.Body != nil {
					e.function(f)
				}
			}
		}
	}
	slices.Sort(e.turns)
	if !slices.Equal(e.turns, turns) {
		t.Errorf("Events with the reason of a condition are emitted by %v, want %v: teach this test when", e.turns, turns)
	}
	for _, c := range constants(t, "Event") {
		if !slices.ContainsFunc(e.found, func(found emission) bool { return found.reason == c.value }) {
			t.Errorf("no code emits %s", c.name)
		}
	}
	golden.File(t, pages+"events.md", eventsPreface+
		"\n## Events of an EtcdCluster\n\n"+e.table(false, meaning)+
		"\n## Events of conditions\n\n"+conditionPreface+e.conditions(t, meaning)+
		"\n## Events of an EtcdSnapshot\n\n"+e.table(true, meaning))
}

const eventsPreface = `# Events

<!-- Written by go test ./test/reference -update: do not edit. -->

druid emits each Event once, when the change happens. ` + "`kubectl describe etcdcluster <name>`" + ` shows them, by default for one hour. The
names in angle brackets stand for values.
`

const conditionPreface = `druid emits these Events when the condition changes to this status or reason. The message is that of the condition. ` +
	"`Spread`" + ` becomes
True without an Event if it was never False. An Event ` + "`ProblemResolved`" + ` follows when ` + "`Degraded`" + ` is not True any more.

`

// table renders the Events of one kind by reason: those that go well before the warnings.
func (e *emitter) table(snapshot bool, meaning map[string]string) string {
	notes, warning := map[string][]string{}, map[string]bool{}
	var reasons []string
	for _, found := range e.found {
		if found.snapshot != snapshot {
			continue
		}
		if !slices.Contains(reasons, found.reason) {
			reasons = append(reasons, found.reason)
		} else if warning[found.reason] != found.warning {
			e.t.Errorf("%s is both a warning and none", found.reason)
		}
		warning[found.reason] = found.warning
		if found.note != "" && !slices.Contains(notes[found.reason], found.note) {
			notes[found.reason] = append(notes[found.reason], found.note)
		}
	}
	slices.Sort(reasons)
	var rows [][]string
	for _, reason := range reasons {
		slices.Sort(notes[reason])
		texts := strings.Join(notes[reason], "<br>")
		if texts == "" {
			texts = "The message of the condition."
		}
		rows = append(rows, []string{code(reason), typeOf(warning[reason]), cell(prose(capital(meaning[reason]))), texts})
	}
	return golden.Table([]string{"Event", "Type", "Meaning", "Message"}, rows)
}

func (e *emitter) conditions(t *testing.T, meaning map[string]string) string {
	t.Helper()
	var all []verdict
	for v := range verdicts(t) {
		if _, ok := turned[v.of][v.status]; ok {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b verdict) int { return strings.Compare(a.of+a.status+a.reason, b.of+b.status+b.reason) })
	var rows [][]string
	for _, v := range all {
		rows = append(rows, []string{code(v.reason), typeOf(turned[v.of][v.status]), code(v.of) + " is " + v.status, cell(prose(capital(meaning[v.reason])))})
	}
	return golden.Table([]string{"Event", "Type", "Condition", "Meaning"}, rows)
}

func typeOf(warning bool) string {
	if warning {
		return "Warning"
	}
	return "Normal"
}

// function adds the Events that a function emits.
func (e *emitter) function(f *ast.FuncDecl) {
	e.switched(f)
	var path []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, n)
		switch n := n.(type) {
		case *ast.CompositeLit:
			if fields := fieldsOf(n); named(n.Type) == "Event" && fields["Reason"] != nil {
				if reason := constantOf(fields["Reason"], "Reason", "Event"); reason != "" {
					warns := fields["Warning"] != nil && named(fields["Warning"]) == "true"
					e.found = append(e.found, emission{reason: e.values[reason], warning: warns, note: messageCell(message(fields["Note"]))})
				}
			}
		case *ast.CallExpr:
			if named(n.Fun) == "inform" {
				e.call(f, n, path)
			}
		}
		return true
	})
}

// call adds the Event of a call of inform. Where its reason is that of a condition, the reasons are those that guard the call.
func (e *emitter) call(f *ast.FuncDecl, call *ast.CallExpr, path []ast.Node) {
	at := slices.IndexFunc(call.Args, func(a ast.Expr) bool { return constantOf(a, "Event", "Reason") != "" })
	flag := named(call.Args[0])
	if at >= 0 {
		found := emission{reason: e.values[constantOf(call.Args[at], "Event", "Reason")], warning: flag == "true"}
		if note := slices.IndexFunc(call.Args, isText); note > at {
			// A member may be an empty text before the note.
			for note+1 < len(call.Args) && message(call.Args[note]) == "" {
				note++
			}
			if text := formatted(message(call.Args[note]), call.Args[note+1:]); text != "<message>" {
				found.note = messageCell(text)
			}
		}
		e.found = append(e.found, found)
		return
	}
	if flag != "true" && flag != "false" {
		return // another function of that name
	}
	reasons, status := guardOf(f, path)
	for _, reason := range reasons {
		e.found = append(e.found, emission{reason: e.values[reason], warning: flag == "true"})
	}
	if len(reasons) == 0 {
		e.turns = append(e.turns, status+" "+flag)
	}
}

// guardOf are the reasons with which the condition of the innermost if or case around a call compares, and the status of a condition.
func guardOf(f *ast.FuncDecl, path []ast.Node) (reasons []string, status string) {
	var guard []ast.Expr
	for _, n := range slices.Backward(path) {
		if branch, ok := n.(*ast.IfStmt); ok {
			guard = []ast.Expr{branch.Cond}
			break
		}
		if clause, ok := n.(*ast.CaseClause); ok {
			guard = clause.List
			break
		}
	}
	collect := func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if reason := constantOf(e, "Reason"); reason != "" {
				reasons = append(reasons, reason)
			}
		}
		return true
	}
	for _, e := range guard {
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				for _, value := range assigned(f, n.Name) {
					ast.Inspect(value, collect)
				}
			case *ast.SelectorExpr:
				if s := statusOf(n); s != "" && status == "" {
					status = s
				}
			}
			return true
		})
		ast.Inspect(e, collect)
	}
	return reasons, status
}

// assigned are the values that a function assigns to a variable of that name, one by one.
func assigned(f *ast.FuncDecl, name string) (values []ast.Expr) {
	ast.Inspect(f, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, left := range a.Lhs {
				if named(left) == name {
					values = append(values, a.Rhs[i])
				}
			}
		}
		return true
	})
	return values
}

// switched adds the Events of a function that chooses type, reason and note in the cases of a switch.
func (e *emitter) switched(f *ast.FuncDecl) {
	var base emission
	pick := func(n ast.Node, into *emission) (chosen bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for i, right := range a.Rhs {
				selector, ok := right.(*ast.SelectorExpr)
				switch {
				case ok && strings.HasPrefix(selector.Sel.Name, "EventType"):
					into.warning, chosen = selector.Sel.Name == "EventTypeWarning", true
				case constantOf(right, "Event") != "":
					into.reason = e.values[constantOf(right, "Event")]
				case len(a.Lhs) == len(a.Rhs) && named(a.Lhs[i]) == "note":
					into.note = messageCell(message(right))
				}
			}
			return true
		})
		return chosen
	}
	for _, statement := range f.Body.List {
		if choice, ok := statement.(*ast.SwitchStmt); ok && base.reason != "" {
			for _, clause := range choice.Body.List {
				found := base
				pick(clause, &found)
				e.found = append(e.found, found)
			}
		} else if a, ok := statement.(*ast.AssignStmt); ok {
			candidate := emission{snapshot: true}
			if pick(a, &candidate) && candidate.reason != "" {
				base = candidate
			}
		}
	}
}

// capital begins a text as a sentence, unless it begins with the name of a program or of a field.
func capital(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if text == "" || slices.Contains([]string{"druid", "etcd"}, first) || strings.Contains(first, ".") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
