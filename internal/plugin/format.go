package plugin

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/etcd-druid/druid/internal/view"
)

// unknown stands for what is not known.
const unknown = view.Unknown

// tone is the color of a word: a sequence of ANSI, empty for none.
type tone string

const (
	plain  tone = ""
	good   tone = "\x1b[32m"
	bad    tone = "\x1b[31m"
	middle tone = "\x1b[33m"
	strong tone = "\x1b[1m"
	reset       = "\x1b[0m"
)

// tones are the colors of the tones of the view.
var tones = map[view.Tone]tone{view.Plain: plain, view.Good: good, view.Bad: bad, view.Middle: middle}

// cell is a text with a tone.
type cell struct {
	text string
	tone tone
}

// page is what a command prints.
type page struct {
	w     io.Writer
	color bool
	now   time.Time
	err   error
	// shown are the texts that the page does not repeat.
	shown view.Shown
	// The commands that it prints select the same Kubernetes.
	selection
}

func newPage(w io.Writer, now time.Time) *page { return &page{w: w, color: colored(w), now: now} }

// line prints cells one after another.
func (p *page) line(cells ...cell) {
	var b strings.Builder
	for _, c := range cells {
		b.WriteString(p.paint(c))
	}
	p.print(strings.TrimRight(b.String(), " ") + "\n")
}

func (p *page) print(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text)
	}
}

func (p *page) paint(c cell) string {
	c.text = strings.Map(printable, c.text)
	if !p.color || c.tone == plain || c.text == "" {
		return c.text
	}
	return string(c.tone) + c.text + reset
}

// printable replaces what a terminal could take for a command: texts come from logs and from objects that others wrote.
func printable(r rune) rune {
	if r != '\n' && r != '\t' && unicode.IsControl(r) {
		return unicode.ReplacementChar
	}
	return r
}

// table prints rows in columns. The colors do not count for the widths.
func (p *page) table(header []string, rows [][]cell) {
	all := make([][]cell, 0, len(rows)+1)
	first := make([]cell, len(header))
	for i, title := range header {
		first[i] = cell{title, strong}
	}
	all = append(append(all, first), rows...)
	widths := make([]int, len(header))
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range all {
		var cells []cell
		for i, c := range row {
			cells = append(cells, c)
			if i < len(row)-1 {
				cells = append(cells, cell{text: strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+3)})
			}
		}
		p.line(cells...)
	}
}

// field prints a line with a title.
func (p *page) field(title string, cells ...cell) {
	p.line(append([]cell{{fmt.Sprintf("%-13s", title), strong}}, cells...)...)
}

// said prints a text of the view. So do the other functions below.
func said(w view.Word) cell { return cell{w.Text, tones[w.Tone]} }

func (p *page) age(t time.Time) string  { return view.Age(t, p.now) }
func (p *page) ago(t *time.Time) string { return view.Ago(t, p.now) }

func number[T ~int64 | ~uint64](n *T) string { return view.Number(n) }
func size(n *int64) string                   { return view.Size(n) }
func or(text string) string                  { return view.Or(text) }
func sentence(text string) string            { return view.Sentence(text) }
