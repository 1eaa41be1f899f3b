package reference

import (
	"cmp"
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
	default: // a function of ours that formats
		for i, argument := range call.Args {
			if format := literal(argument); verb.MatchString(format) && len(call.Args) > i+1 {
				return i
			}
		}
	}
	return -1
}

// literal is a text that is written in one or several pieces, or nothing.
func literal(e ast.Expr) string {
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD && literal(sum.X) != "" && literal(sum.Y) != "" {
		return literal(sum.X) + literal(sum.Y)
	}
	return unquote(e)
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
var ofMember = []string{"m", "other", "member", "step"}

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
		case e.Sel.Name == "Name" && slices.Contains(ofMember, namedBy(e.X)):
			return "member"
		case e.Sel.Name == "Name" && len(namedBy(e.X)) == 1:
			return "name"
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

// namedBy is the name of a variable.
func namedBy(e ast.Expr) string {
	if variable, ok := e.(*ast.Ident); ok {
		return variable.Name
	}
	return ""
}

// short are names of one letter.
var short = map[string]string{"n": "number", "v": "version", "l": "lineage"}

// spaced writes a name in Go as words.
func spaced(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	words := strings.TrimPrefix(b.String(), "err ")
	if len(words) < 2 {
		return cmp.Or(short[words], "value")
	}
	return words
}

// placeholder is a name in angle brackets, which may have spaces.
var placeholder = regexp.MustCompile(`"?<[^<>]*>"?`)

// glued matches a placeholder next to a word or to another placeholder: a part that begins or ends with a space of its own.
var glued = regexp.MustCompile(`(>)([\pL<])|([\pL])(<)`)

// commandLine matches a call of a program in a message.
var commandLine = regexp.MustCompile(`kubectl [a-z-]+( (pod|pods|pvc|nodes?|etcdcluster))?( (<[^<> ]+>|-c \w+|--?\w+( ` +
	`json)?|'\[.*\]'|[\w./-]+=[\w:-]+))*|etcdctl member remove|agent backup restore( --without \S+[^),;.])*`)

// messageCell is a message in a cell of a table. Its placeholders and code are in code quotes.
func messageCell(text string) string {
	text = placeholder.ReplaceAllStringFunc(join(text), func(p string) string { return strings.ReplaceAll(p, " ", "-") })
	text = glued.ReplaceAllString(glued.ReplaceAllString(text, "$1$3 $2$4"), "$1$3 $2$4")
	return cell(prose(commandLine.ReplaceAllString(strings.ReplaceAll(text, "`", "'"), "`$0`")))
}
