package backup

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/cli"
)

const (
	// barWidth is the width of the bar in characters.
	barWidth = 30
	// lineEach is how often outputs other than a terminal get a line.
	lineEach = 10 * time.Second
	// rateAfter is how long a command reads before its speed is known.
	rateAfter = time.Second
)

// progress shows the progress of a restore: a bar on a terminal, or else a line from time to time.
type progress struct {
	w     io.Writer
	line  *cli.Progress
	phase restore.Phase
	pace  restore.Pace
	shown time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, line: cli.NewProgress(w)} }

func (p *progress) report(r restore.Progress) {
	now := time.Now()
	speed := p.pace.Observe(r, now)
	if p.line.On() {
		if r.Phase != p.phase {
			p.line.Apart(nil) // the next line is shown at once
		}
		p.phase = r.Phase
		p.line.Show(bar(speed.Part) + " " + speed.Words(r))
		return
	}
	if r.Phase == p.phase && now.Sub(p.shown) < lineEach {
		return
	}
	p.phase, p.shown = r.Phase, now
	_, _ = fmt.Fprintln(p.w, speed.Words(r))
}

// end removes the bar.
func (p *progress) end() { p.line.Apart(nil) }

func bar(part float64) string {
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3d%%", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), int(part*100))
}

// reading shows on a terminal how much of the backups a command has read. Its methods can be called concurrently.
type reading struct {
	*cli.Progress
	what  string
	total int64
	began time.Time
	// times is how often the command reads each object.
	times int64
	done  atomic.Int64
}

func newReading(w io.Writer, what string, c catalog.Catalog, times int64) *reading {
	r := &reading{Progress: cli.NewProgress(w), what: what, began: time.Now(), times: times}
	for _, row := range rowsOf(c) {
		r.total += row.size
	}
	return r
}

// of returns a store that reports what is read from it.
func (r *reading) of(s store.Store) store.Store {
	if !r.On() {
		return s
	}
	return counted{s, func(n int) { r.Show(r.words(r.done.Add(int64(n))/r.times, time.Since(r.began))) }}
}

// words are the line after some bytes.
func (r *reading) words(bytes int64, took time.Duration) string {
	bytes = min(bytes, r.total)
	line := fmt.Sprintf("%s: %d%% of %s", r.what, bytes*100/max(r.total, 1), size(r.total))
	if took < rateAfter || bytes == 0 {
		return line
	}
	left := time.Duration(float64(took) * float64(r.total-bytes) / float64(bytes)).Round(time.Second)
	return fmt.Sprintf("%s, %s/s, about %s remaining", line, size(int64(float64(bytes)/took.Seconds())), left)
}

// counted is a store that reports how many bytes are read from it.
type counted struct {
	store.Store
	read func(n int)
}

// Connections keeps the speed of a store that is distant.
func (c counted) Connections() int { return store.Connections(c.Store) }

func (c counted) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := c.Store.Get(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	return countedReader{r, c.read}, nil
}

type countedReader struct {
	io.ReadCloser
	read func(n int)
}

func (r countedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.read(n)
	return n, err
}

// Version is that of the object, so that a reader over several connections notices another one.
func (r countedReader) Version() string {
	if v, ok := r.ReadCloser.(store.Versioned); ok {
		return v.Version()
	}
	return ""
}
