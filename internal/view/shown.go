package view

import (
	"slices"
	"strings"
	"time"
)

// Shown are the long texts that a page shows already, from top to bottom.
type Shown []string

// Once returns a text for the page, without what is further up: the error of a store, or of a member, is in several conditions. It repeats
// short texts.
func (s *Shown) Once(text string) string {
	const short = 60
	rest := text
	for _, earlier := range *s {
		whole, part := folded(rest), folded(earlier)
		i := strings.Index(whole, part)
		switch {
		case len(rest) < short, len(part) < short:
		case strings.Contains(part, whole):
			return "See above."
		case i >= 0 && len(whole) == len(strings.TrimSuffix(rest, ".")): // else the case of a letter changes its length
			rest = sentenceIn(rest[:i], "see above") + rest[i+len(part):]
		}
	}
	if len(text) >= short {
		*s = append(*s, text)
	}
	return rest
}

// Notes returns what each member reports that has no column. Members with the same reason have it each, unless it is further up.
func (s *Shown) Notes(members []Member) [][]string {
	all := make([][]string, len(members))
	for i, m := range members {
		for _, note := range m.Notes() {
			above := slices.Clone(*s)
			all[i] = append(all[i], above.Once(note))
		}
	}
	for _, m := range members {
		*s = append(*s, m.Notes()...)
	}
	return all
}

// BackupLines are those of Backup.Lines. b can be nil.
func (s *Shown) BackupLines(b *Backup, now time.Time) []Word {
	lines := b.Lines(now)
	if b == nil || b.Error == "" || s.Once(b.Error) == b.Error {
		return lines
	}
	for i := range lines {
		lines[i].Text = strings.Replace(lines[i].Text, b.Error, "see above", 1)
	}
	return lines
}

// sentenceIn adds words to a text, with a capital letter if they begin a sentence.
func sentenceIn(text, words string) string {
	if text == "" || strings.HasSuffix(text, ". ") {
		words = strings.ToUpper(words[:1]) + words[1:]
	}
	return text + words
}

// folded is a text without what makes it a sentence.
func folded(text string) string { return strings.ToLower(strings.TrimSuffix(text, ".")) }
