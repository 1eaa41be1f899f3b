package reference

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// message is the text that an expression makes. What is known only when it runs is a name in angle brackets.
func message(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return unquote(e)
		}
		return e.Value
	case *ast.ParenExpr:
		return message(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return message(e.X) + message(e.Y)
		}
	case *ast.CallExpr:
		if at := formatOf(e); at >= 0 {
			return formatted(message(e.Args[at]), e.Args[at+1:])
		}
	}
	return "<" + nameOf(e) + ">"
}

// formatOf is the position of a call's argument that is a format, or a text that takes no arguments; -1 if there is none.
func formatOf(call *ast.CallExpr) int {
	switch name := named(call.Fun); {
	case name == "Sprintf" || name == "Errorf":
		return 0
	case name == "New" && len(call.Args) == 1: // errors.New
		if isText(call.Args[0]) {
			return 0
		}
	}
	return -1
}

// isText says whether an expression begins with, or is, a literal text.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (isText(e.X) || isText(e.Y))
	case *ast.ParenExpr:
		return isText(e.X)
	case *ast.CallExpr:
		return formatOf(e) >= 0
	default:
		return false
	}
}

// verb is a verb of fmt, perhaps with the position of its argument.
var verb = regexp.MustCompile(`%(?:\[(\d)\])?[-+#0]*\d*(?:\.\d+)?([a-zA-Z%])`)

// formatted puts the names of the arguments into a format.
func formatted(format string, arguments []ast.Expr) string {
	next := 0
	return verb.ReplaceAllStringFunc(format, func(v string) string {
		m := verb.FindStringSubmatch(v)
		if m[2] == "%" {
			return "%"
		}
		at := next
		if m[1] != "" {
			at = int(m[1][0] - '1')
		} else {
			next++
		}
		if at >= len(arguments) {
			return "<value>"
		}
		if isText(arguments[at]) {
			return message(arguments[at])
		}
		return "<" + nameOf(arguments[at]) + ">"
	})
}

// ofMember are the names that variables of the type Member have.
var ofMember = []string{"m", "other", "member", "s", "step"}

// nameOf says in words what an expression stands for.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "err" {
			return "error"
		}
		return spaced(e.Name)
	case *ast.SelectorExpr:
		of := nameOf(e.X)
		switch {
		case e.Sel.Name == "Name" && slices.Contains(ofMember, of):
			return "member"
		case slices.Contains([]string{"Name", "String", "Error"}, e.Sel.Name):
			return of
		}
		return spaced(e.Sel.Name)
	case *ast.CallExpr:
		name := named(e.Fun)
		if selector, ok := e.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"String", "Error", "Format", "UTC", "Err", "Cause"}, name) {
			return nameOf(selector.X)
		}
		takesOne := []string{"string", "len", "oneLine", "FormatID", "Join", "Or", "uint64", "Round", "Quote", "Replace", "ReplaceAll", "TrimSpace", "Base", "Itoa"}
		if slices.Contains(takesOne, name) && len(e.Args) > 0 {
			return nameOf(e.Args[0])
		}
		return spaced(name)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.SliceExpr:
		return nameOf(e.X)
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.UnaryExpr:
		return nameOf(e.X)
	case *ast.ParenExpr:
		return nameOf(e.X)
	case *ast.BinaryExpr:
		return nameOf(e.X)
	default:
		return "value"
	}
}

// spaced writes a name in Go as words.
func spaced(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	if b.Len() == 0 {
		return "value"
	}
	return b.String()
}

// placeholder is a name in angle brackets, which may have spaces.
var placeholder = regexp.MustCompile(`"?<[^<>]*>"?`)

// messageCell is a message in a cell of a table. Its placeholders and code are in code quotes.
func messageCell(text string) string {
	text = placeholder.ReplaceAllStringFunc(join(text), func(p string) string { return strings.ReplaceAll(p, " ", "-") })
	return cell(prose(strings.ReplaceAll(text, "`", "'")))
}
