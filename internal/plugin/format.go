package plugin

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/etcd-druid/druid/internal/view"
)

// unknown stands for what is not known.
const unknown = "unknown"

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

// age is how long ago a time was, without a word around it.
func (p *page) age(t time.Time) string { return duration.HumanDuration(max(0, p.now.Sub(t))) }

// ago says how long ago a time was.
func (p *page) ago(t *time.Time) string {
	if t == nil {
		return unknown
	}
	if age := p.now.Sub(*t); age >= 0 {
		return duration.HumanDuration(age) + " ago"
	}
	return "just now"
}

// until says when a time is.
func (p *page) until(t *time.Time) string {
	if t == nil {
		return unknown
	}
	left := t.Sub(p.now)
	if left < 0 {
		return "expired " + duration.HumanDuration(-left) + " ago"
	}
	return t.UTC().Format(time.DateOnly) + " (in " + duration.HumanDuration(left) + ")"
}

// number prints a number with separators.
func number[T ~int64 | ~uint64](n *T) string {
	if n == nil {
		return unknown
	}
	digits := strconv.FormatUint(uint64(*n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// size prints a size.
func size(n *int64) string {
	if n == nil {
		return unknown
	}
	left, units := float64(*n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; left >= 1024 && i < len(units)-1; i++ {
		left /= 1024
	}
	if left < 10 && i > 0 {
		return strconv.FormatFloat(left, 'f', 1, 64) + " " + units[i]
	}
	return strconv.FormatFloat(left, 'f', 0, 64) + " " + units[i]
}

// or is the text, or unknown.
func or(text string) string {
	if text == "" {
		return unknown
	}
	return text
}

// toneOf is the tone of a health, and mark its sign, for readers without colors.
func toneOf(h view.Health) tone {
	return map[view.Health]tone{view.Well: good, view.NotWell: bad, view.Unclear: middle}[h]
}

func mark(h view.Health) string {
	return map[view.Health]string{view.Well: "●", view.NotWell: "✖", view.Unclear: "?"}[h]
}
