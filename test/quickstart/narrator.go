package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// narrator prints the tour: numbered chapters, what a reader would type, and indented what came of it.
type narrator struct {
	out     io.Writer
	begun   time.Time
	chapter int
}

func newNarrator(out io.Writer) *narrator { return &narrator{out: out, begun: time.Now()} }

// begin opens a chapter.
func (n *narrator) begin(title string) {
	n.chapter++
	fmt.Fprintf(n.out, "\n── %d. %s\n", n.chapter, title)
}

// say prints a paragraph.
func (n *narrator) say(format string, args ...any) {
	fmt.Fprintf(n.out, "\n   "+format+"\n", args...)
}

// progress prints a line of what goes on, with the time since the tour began.
func (n *narrator) progress(format string, args ...any) {
	fmt.Fprintf(n.out, "   [%6.1f s] %s\n", time.Since(n.begun).Seconds(), fmt.Sprintf(format, args...))
}

// typed prints a command as the reader could type it.
func (n *narrator) typed(argv ...string) {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if strings.ContainsAny(a, " *?'\"") {
			words[i] = "'" + a + "'"
		}
	}
	fmt.Fprintf(n.out, "\n   $ %s\n", strings.Join(words, " "))
}

// output returns a writer that indents what a command prints.
func (n *narrator) output() io.Writer { return &indent{out: n.out, fresh: true} }

// indent puts every line a little to the right.
type indent struct {
	out   io.Writer
	fresh bool // at the start of a line
}

func (w *indent) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if w.fresh {
			if _, err := io.WriteString(w.out, "   "); err != nil {
				return 0, err
			}
		}
		if _, err := w.out.Write(line); err != nil {
			return 0, err
		}
		w.fresh = bytes.HasSuffix(line, []byte("\n"))
	}
	return len(p), nil
}
