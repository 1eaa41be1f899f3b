package druid_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// inIdentifiers are words of the page docs/reference/replaced-words.md that are still in use, or have another meaning in Go or in etcd.
var inIdentifiers = []string{
	"alone", "chain", "doubted", "effect", "fenced", "foreign", "fulls", "guard", "leftover", "life", "lock", "news", "notice", "others", "perform",
	"place", "record", "refuse", "retire", "room", "shape", "sound", "spare", "stamp", "stray", "whole",
}

// replacedWords are the words in the first table of that page that no identifier contains any more. It skips phrases.
func replacedWords(t *testing.T) (words []string) {
	t.Helper()
	raw, err := os.ReadFile("docs/reference/replaced-words.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		old, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for word := range strings.SplitSeq(old, ", ") {
			if !strings.ContainsFunc(word, isNoLetter) {
				words = append(words, word)
			}
		}
	}
	for _, word := range inIdentifiers {
		if !slices.Contains(words, word) {
			t.Errorf("%q is not on the page: delete it here", word)
		}
	}
	words = slices.DeleteFunc(words, func(word string) bool { return slices.Contains(inIdentifiers, word) })
	if len(words) == 0 {
		t.Fatal("the page has no words")
	}
	return words
}

// formsOf matches words, their plurals and the forms of their verbs.
func formsOf(words []string) *regexp.Regexp {
	var forms []string
	for _, word := range words {
		forms = append(forms, word+"(s|es|d|ed)?", strings.TrimSuffix(word, "e")+"ing")
	}
	return regexp.MustCompile("^(" + strings.Join(forms, "|") + ")$")
}

func TestIdentifiersHaveTheWordsOfTheGlossary(t *testing.T) {
	replaced := formsOf(replacedWords(t))
	for _, p := range list(t, "./...") {
		for _, file := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			inspect(t, filepath.Join(p.Dir, file), func(fset *token.FileSet, n ast.Node) {
				if id, ok := n.(*ast.Ident); ok {
					for _, word := range wordsOf(id.Name) {
						if replaced.MatchString(word) {
							t.Errorf("%s: %s contains %q: use what docs/reference/replaced-words.md has instead", fset.Position(id.Pos()), id.Name, word)
						}
					}
				}
			})
		}
	}
}

// replacedInText are the words of the same page that no text of a Go file contains: no comment, and no string.
var replacedInText = regexp.MustCompile(
	`(?i)\b(anew|births?|farewells?|for ever|guests?|herald(s|ed|ing)?|mend(s|ed|ing)?|no one('s)?|nobody|somebody|strangers?|told|victims?|whoever)\b`)

func TestTextsHaveTheWordsOfTheGlossary(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, file := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			if file == "conventions_words_test.go" {
				continue // it lists them
			}
			path := filepath.Join(p.Dir, file)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(raw), "\n") {
				word := replacedInText.FindString(line)
				if word != "" && !strings.Contains(line, "http.NoBody") && !strings.Contains(line, "nobody:x:65534") { // the user of /etc/passwd
					t.Errorf("%s:%d contains %q: use what docs/reference/replaced-words.md has instead", path, i+1, word)
				}
			}
		}
	}
}

func isNoLetter(r rune) bool { return !unicode.IsLetter(r) }

// wordsOf splits an identifier at its capitals and at underscores, in lower case.
func wordsOf(name string) []string {
	var spaced strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) || r == '_' {
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(unicode.ToLower(r))
	}
	return strings.FieldsFunc(spaced.String(), isNoLetter)
}
