package reference

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// verdict is what the code can set: a condition or the state of a member, its status, and the reason.
type verdict struct{ of, status, reason string }

// ofMembers stands for the condition where a verdict is the state of a member.
const ofMembers = "State of a member"

// verdicts finds everything that the code of druid can set. A condition is set by a table of rules, by a literal, or,
// if it is Degraded, by a problem.
func verdicts(t *testing.T) map[verdict]bool {
	t.Helper()
	values := map[string]string{}
	for _, prefix := range []string{"Condition", "Reason", "Member"} {
		for _, c := range constants(t, prefix) {
			values[c.name] = c.value
		}
	}
	found := map[verdict]bool{}
	for _, s := range sources(t, "druid") {
		tables := s.tables()
		for _, file := range s.files {
			for _, declaration := range file.Decls {
				s.verdictsIn(declaration, tables, values, found)
			}
		}
	}
	return found
}

// table is what a variable of a package holds: the verdicts of its rules, or reasons by name.
type table struct {
	verdicts []verdict // without their conditions
	reasons  []string
}

// tables are the variables of the package that hold verdicts or reasons.
func (s *source) tables() map[string]table {
	all := map[string]table{}
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			var found table
			ast.Inspect(spec.Values[0], func(n ast.Node) bool {
				pair, ok := n.(*ast.KeyValueExpr)
				if !ok {
					return true
				}
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Verdict" {
					if literal, ok := pair.Value.(*ast.CompositeLit); ok && len(literal.Elts) == 2 {
						status, reason := statusOf(literal.Elts[0]), constantOf(literal.Elts[1], "Reason")
						if status != "" && reason != "" {
							found.verdicts = append(found.verdicts, verdict{"", status, reason})
						}
					}
				}
				if reason := constantOf(pair.Value, "Reason"); reason != "" && unquote(pair.Key) != "" {
					found.reasons = append(found.reasons, reason)
				}
				return true
			})
			if len(found.verdicts)+len(found.reasons) > 0 {
				all[spec.Names[0].Name] = found
			}
			return true
		})
	}
	return all
}

// statusOf is the status of a condition, or the name of the constant of the state of a member.
func statusOf(e ast.Expr) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if status, ok := strings.CutPrefix(selector.Sel.Name, "Condition"); ok && slices.Contains([]string{"True", "False", "Unknown"}, status) {
		return status
	}
	return constantOf(e, "Member")
}

// verdictsIn adds what a function or a variable sets.
func (s *source) verdictsIn(declaration ast.Decl, tables map[string]table, values map[string]string, found map[verdict]bool) {
	_, isFunction := declaration.(*ast.FuncDecl)
	add := func(of string, v verdict) {
		if strings.HasPrefix(v.status, "Member") {
			of, v.status = ofMembers, values[v.status]
		}
		found[verdict{of, v.status, values[v.reason]}] = true
	}
	inspect := func(n ast.Node) {
		conditions, used, statuses, reasons := mentioned(n, tables)
		if !isFunction {
			for _, function := range s.functionsNamed(n) {
				_, usedThere, statusesThere, reasonsThere := mentioned(function, tables)
				used, statuses, reasons = append(used, usedThere...), append(statuses, statusesThere...), append(reasons, reasonsThere...)
			}
		}
		for _, name := range used {
			for _, v := range tables[name].verdicts {
				if len(conditions) == 1 || strings.HasPrefix(v.status, "Member") {
					add(values[strings.Join(conditions, "")], v)
				}
			}
			if len(statuses) == 1 && len(conditions) == 1 {
				reasons = append(reasons, tables[name].reasons...)
			}
		}
		for _, reason := range reasons {
			if len(statuses) == 1 && len(conditions) == 1 {
				add(values[conditions[0]], verdict{"", statuses[0], reason})
			}
		}
	}
	ast.Inspect(declaration, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if fields := fieldsOf(literal); fields["Reason"] != nil && (named(literal.Type) == "Problem" || literal.Type == nil) {
			if reason := constantOf(fields["Reason"], "Reason"); reason != "" {
				add("Degraded", verdict{"", "True", reason})
			}
		}
		if !isFunction {
			inspect(literal) // like an element of the list of the conditions' tables
		}
		return true
	})
	if isFunction {
		inspect(declaration)
	}
}

// functionsNamed are the functions of the package that a row of a list names.
func (s *source) functionsNamed(n ast.Node) []*ast.FuncDecl {
	var all []*ast.FuncDecl
	ast.Inspect(n, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			for _, file := range s.files {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name.Name {
						all = append(all, f)
					}
				}
			}
		}
		return true
	})
	return all
}

// mentioned are the conditions and the tables that a piece of code names, and the status and the reasons of the conditions that it writes.
func mentioned(n ast.Node, tables map[string]table) (conditions, used, statuses, reasons []string) {
	add := func(to *[]string, name string) {
		if name != "" && !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			add(&conditions, constantOf(n, "Condition"))
		case *ast.Ident:
			if _, ok := tables[n.Name]; ok {
				add(&used, n.Name)
			}
		case *ast.CompositeLit:
			if fields := fieldsOf(n); named(n.Type) == "Condition" && fields["Reason"] != nil && fields["Status"] != nil {
				if status := statusOf(fields["Status"]); status != "" {
					add(&statuses, status)
					add(&reasons, constantOf(fields["Reason"], "Reason"))
				}
			}
		}
		return true
	})
	return conditions, used, statuses, reasons
}

// fieldsOf a literal of a struct, by name.
func fieldsOf(literal *ast.CompositeLit) map[string]ast.Expr {
	fields := map[string]ast.Expr{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				fields[key.Name] = pair.Value
			}
		}
	}
	return fields
}

// named is the name of a type, without its package.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	default:
		return ""
	}
}

// TestConditions compares the pages of the conditions, which people write, with what the code can set.
func TestConditions(t *testing.T) {
	want, got := verdicts(t), documented(t)
	known := map[string]bool{}
	for v := range want {
		known[v.reason] = true
		if !got[v] {
			t.Errorf("no page of the conditions explains that %s is %s with reason %s", v.of, v.status, v.reason)
		}
	}
	for v := range got {
		if !want[v] {
			t.Errorf("a page of the conditions explains that %s is %s with reason %s, which druid never sets", v.of, v.status, v.reason)
		}
	}
	for _, c := range constants(t, "Reason") {
		if !known[c.value] {
			t.Errorf("%s is a reason that nothing sets: remove it, or teach this test where it is set", c.name)
		}
	}
	if diff := conditionsIn(t); diff != "" {
		t.Error(diff)
	}
}

// conditionsIn compares the first table of the page with the types of conditions.
func conditionsIn(t *testing.T) string {
	t.Helper()
	var want, got []string
	for _, c := range constants(t, "Condition") {
		want = append(want, c.value)
	}
	for _, row := range rowsOf(t, "Conditions of an EtcdCluster") {
		got = append(got, inCode(row["Condition"])...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return fmt.Sprintf("conditions-and-reasons.md lists the conditions %v, and the API has %v", got, want)
	}
	return ""
}

// documented is what the pages explain.
func documented(t *testing.T) map[verdict]bool {
	t.Helper()
	all := map[verdict]bool{}
	for _, section := range slices.Concat(slices.Collect(maps.Values(conditionValues(t))), []string{ofMembers}) {
		for _, row := range rowsOf(t, section) {
			for status := range strings.SplitSeq(strings.ReplaceAll(row["Status"], "`", ""), ", ") {
				for _, reason := range inCode(row["Reason"]) {
					if all[verdict{section, status, reason}] {
						t.Errorf("the pages of the conditions explain %s %s %s twice", section, status, reason)
					}
					all[verdict{section, status, reason}] = true
				}
			}
		}
	}
	return all
}

func conditionValues(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, c := range constants(t, "Condition") {
		values[c.name] = c.value
	}
	return values
}

// rowsOf are the rows of the table below a heading of the pages of the conditions, by column.
func rowsOf(t *testing.T, heading string) (rows []map[string]string) {
	t.Helper()
	var raw strings.Builder
	for _, page := range []string{"conditions-and-reasons.md", "reasons-of-degraded.md", "conditions-of-backups.md"} {
		text, err := os.ReadFile(pages + page)
		if err != nil {
			t.Fatal(err)
		}
		raw.Write(text)
	}
	_, section, ok := strings.Cut(raw.String(), "# "+heading+"\n")
	if !ok {
		t.Fatalf("no page of the conditions has a section %s", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	var header []string
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if header == nil {
			header = cells
			continue
		}
		if len(cells) != len(header) {
			t.Fatalf("the pages of the conditions have %d cells below %v: %s", len(cells), header, line)
		}
		row := map[string]string{}
		for i, cell := range cells {
			row[header[i]] = cell
		}
		rows = append(rows, row)
	}
	return rows
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// inCode are the words in code quotes.
func inCode(text string) (all []string) {
	for _, found := range codeSpan.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}
