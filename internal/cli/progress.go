package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
)

// progressEach is how often a line of progress changes at most.
const progressEach = 200 * time.Millisecond

// IsTerminal says whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Progress is one line of a terminal about a command that takes long. Each line replaces the one before. On anything else than a terminal, it
// writes nothing. Its methods can be called concurrently.
type Progress struct {
	w  io.Writer // nil without a terminal
	mu sync.Mutex
	// shown is when the line last changed, and there says that the terminal has one.
	shown time.Time
	there bool
}

// NewProgress returns a line on w, which is the standard error of a command.
func NewProgress(w io.Writer) *Progress {
	if !IsTerminal(w) {
		w = nil
	}
	return &Progress{w: w}
}

// On says whether there is a terminal.
func (p *Progress) On() bool { return p.w != nil }

// Show replaces the line, unless it changed just now.
func (p *Progress) Show(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.On() && now.Sub(p.shown) >= progressEach {
		p.shown, p.there = now, true
		// A line that is too long is cut off. If it wrapped, a carriage return would not return to its beginning.
		_, _ = fmt.Fprintf(p.w, "\r\033[K\033[?7l%s\033[?7h", line)
	}
}

// Apart prints something else, without the line. The next Show brings the line back. Call it with nil at the end.
func (p *Progress) Apart(write func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.there {
		_, _ = io.WriteString(p.w, "\r\033[K")
		p.shown, p.there = time.Time{}, false
	}
	if write != nil {
		write()
	}
}

// During shows what the command waits for, and how long already, while work runs. It returns the error of work.
func (p *Progress) During(what string, work func() error) error {
	if !p.On() {
		return work()
	}
	began, done := time.Now(), make(chan struct{})
	var showing errgroup.Group
	showing.Go(func() error {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return nil
			case now := <-ticker.C:
				p.Show(waiting(what, now.Sub(began)))
			}
		}
	})
	err := work()
	close(done)
	_ = showing.Wait() // it never fails
	p.Apart(nil)
	return err
}

// waiting is the line of During.
func waiting(what string, since time.Duration) string {
	return fmt.Sprintf("Waiting for %s: %s", what, since.Round(time.Second))
}
