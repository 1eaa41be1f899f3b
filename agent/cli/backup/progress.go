package backup

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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
	began    time.Time // of the phase
	shown    time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

func (p *progress) report(r restore.Progress) {
	now, each := time.Now(), lineEach
	if p.terminal {
		each = barEach
	}
	if r.Phase == p.phase && now.Sub(p.shown) < each {
		return
	}
	if r.Phase != p.phase {
		p.phase, p.began = r.Phase, now
	}
	p.shown = now
	if line := lineOf(r, now.Sub(p.began)); p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\033[K%s %s", bar(done(r)), line)
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

// done is the part of the phase that is done, from 0 to 1.
func done(r restore.Progress) float64 {
	part := func(n, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return min(1, float64(n)/float64(of))
	}
	switch r.Phase {
	case restore.Fetching:
		return part(r.Bytes, r.TotalBytes)
	case restore.Applying:
		return part(int64(r.Deltas), int64(r.TotalDeltas))
	case restore.Finishing:
	}
	return 1
}

// lineOf says how far it is, and how long the phase will still take if it goes on as it did.
func lineOf(r restore.Progress, took time.Duration) string {
	line := string(r.Phase)
	switch r.Phase {
	case restore.Fetching:
		line += fmt.Sprintf(": %s of %s", size(r.Bytes), size(r.TotalBytes))
	case restore.Applying:
		line += fmt.Sprintf(": %d of %d deltas, %d events, revision %d", r.Deltas, r.TotalDeltas, r.Events, r.Revision)
	case restore.Finishing:
	}
	if part := done(r); took >= time.Second && part > 0 && part < 1 {
		line += fmt.Sprintf(", %s left", time.Duration(float64(took)*(1-part)/part).Round(time.Second))
	}
	return line
}

func bar(part float64) string {
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3d%%", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), int(part*100))
}
