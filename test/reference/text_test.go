package reference

import (
	"regexp"
	"strings"
)

// pages is the directory of the reference pages.
const pages = "../../docs/reference/"

// isCode matches the words that are no prose: names of formats and commands, flags, paths, URLs, fields, annotations,
// constants and placeholders.
var isCode = regexp.MustCompile(`^(gc|https?|json|--?[a-z0-9][\w=,` +
	`-]*|\S*[<>{}=…*|_]\S*|\S*/\S*|\S+\.[\w.\[\]"-]*\w\S*|[a-z]+[A-Z]\w*|\d+(ms|[KMGT]i|[smhd])+\w*|:\d+|\S*-\d+|\d{4}-\d\d-\d\dT\S+)$`)

// prose marks the code in a text that was written without Markdown, so that it renders as it is, and vale reads the rest.
func prose(text string) string {
	var words []string
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			words[len(words)-1] += "`" + part + "`"
			continue
		}
		for j, word := range strings.Split(part, " ") {
			word = marked(word)
			if i > 0 && j == 0 {
				words[len(words)-1] += word
				continue
			}
			words = append(words, word)
		}
	}
	// Words of code next to each other are one command or path.
	return cron.ReplaceAllString(strings.ReplaceAll(strings.Join(words, " "), "` `", " "), "`$1 $2`")
}

// cron matches the numbers before the stars of a schedule.
var cron = regexp.MustCompile("\\b(\\d+(?: \\d+)*) `(\\*[^`]*)`")

// sentence ends a text as a sentence ends.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// about marks the code in the description of a field, which begins with the name of the field.
func about(name, description string) string {
	text := prose(join(description))
	if rest, ok := strings.CutPrefix(text, name); ok && (rest == "" || !isLetter.MatchString(rest)) {
		return "`" + name + "`" + rest
	}
	return text
}

var isLetter = regexp.MustCompile(`^\w`)

// join is a text on one line.
func join(text string) string { return strings.Join(strings.Fields(text), " ") }

// marked is a word in code quotes if it is code. The punctuation around it stays outside.
func marked(word string) string {
	core := strings.TrimLeft(word, `("'`)
	before := word[:len(word)-len(core)]
	after := ""
	for core != "" && strings.ContainsAny(core[len(core)-1:], `.,;:!?)"'`) {
		if last := core[len(core)-1:]; last == ")" && strings.Contains(core, "(") {
			break
		}
		core, after = core[:len(core)-1], core[len(core)-1:]+after
	}
	if core == "" || !isCode.MatchString(core) {
		return word
	}
	return before + "`" + core + "`" + after
}

// cell is a text in a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// code is a text in code quotes, or nothing.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
