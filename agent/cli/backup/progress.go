package backup

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/etcd-druid/druid/backup/restore"
)

const (
	// barWidth in characters.
	barWidth = 30
	// barEach and lineEach are how often a terminal's bar changes, and how often anything else gets a line.
	barEach  = 200 * time.Millisecond
	lineEach = 10 * time.Second
)

// progress shows how far a restore is: a bar on a terminal, else a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	phase    restore.Phase
	pace     restore.Pace
	shown    time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

func (p *progress) report(r restore.Progress) {
	now, each := time.Now(), lineEach
	speed := p.pace.Observe(r, now)
	if p.terminal {
		each = barEach
	}
	if r.Phase == p.phase && now.Sub(p.shown) < each {
		return
	}
	p.phase, p.shown = r.Phase, now
	if line := speed.Words(r); p.terminal {
		// What does not fit the line is cut off: where it was wrapped, a carriage return would not lead back to its beginning.
		_, _ = fmt.Fprintf(p.w, "\r\033[K\033[?7l%s %s\033[?7h", bar(speed.Part), line)
	} else {
		_, _ = fmt.Fprintln(p.w, line)
	}
}

// end leaves the bar's line.
func (p *progress) end() {
	if p.terminal && p.phase != "" {
		_, _ = fmt.Fprintln(p.w)
	}
}

func bar(part float64) string {
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3d%%", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), int(part*100))
}
