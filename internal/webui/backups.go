package webui

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
)

// The pages about restores.
const (
	restoreDocs = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/back-up/restore.md"
	inPlaceDocs = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/back-up/restore-in-place.md"
)

// scale is how many units wide a bar is. The browser stretches it.
const scale = 1000

// backupsPage is what can be restored of one cluster.
type backupsPage struct {
	frame
	Backups
	Namespace, Name string
	// From and To are the first and the last moment that the bars show.
	From, To time.Time
	// Moment is what the user chose, as the field has it, and Chosen its time, zero for none.
	Moment string
	Chosen time.Time
	// Wrong says why the moment cannot be read.
	Wrong string
}

// bar is a piece of the timeline: X and Width in units of scale.
type bar struct {
	X, Width float64
	Gap      bool
	Title    string
}

// row is one lineage on the page.
type row struct {
	Lane
	Bars []bar
	// Fork is where the lineage began, negative if it is not known.
	Fork float64
	// Ranges say what can be restored.
	Ranges []string
}

// restore is how the chosen moment is restored from a lineage.
type restore struct {
	Lineage catalog.Lineage
	Command string
}

// spread sets the first and the last moment of the bars.
func (p *backupsPage) spread() {
	p.From, p.To = p.Now, p.Now
	for _, lane := range p.Lanes {
		for _, r := range lane.Restorable {
			if !r.Since.IsZero() && r.Since.Before(p.From) {
				p.From = r.Since
			}
			if r.Until.After(p.To) {
				p.To = r.Until
			}
		}
	}
}

// X is where a moment is, in units of scale.
func (p backupsPage) X(t time.Time) float64 {
	whole := p.To.Sub(p.From)
	if whole <= 0 {
		return 0
	}
	return min(scale, max(0, float64(t.Sub(p.From))/float64(whole)*scale))
}

// Rows are the lineages with their bars.
func (p backupsPage) Rows() (all []row) {
	for _, lane := range p.Lanes {
		one := row{Lane: lane, Fork: -1}
		if f := lane.Formation; f != nil && !f.Created.IsZero() {
			one.Fork = p.X(f.Created)
		}
		for i, r := range lane.Restorable {
			text := fmt.Sprintf("revisions %s to %s, from %s until %s", view.Number(&r.From), view.Number(&r.To), moment(r.Since), moment(r.Until))
			if i > 0 {
				before := lane.Restorable[i-1]
				one.Bars = append(one.Bars, p.bar(before.Until, r.Since, "gap: nothing can be restored", true))
			}
			one.Bars = append(one.Bars, p.bar(r.Since, r.Until, text, false))
			one.Ranges = append(one.Ranges, text)
		}
		all = append(all, one)
	}
	return all
}

// bar is at least one unit wide, so that it can be seen.
func (p backupsPage) bar(from, to time.Time, title string, gap bool) bar {
	x := p.X(from)
	return bar{X: min(x, scale-1), Width: max(1, p.X(to)-x), Gap: gap, Title: title}
}

// moment is a time, or unknown.
func moment(t time.Time) string {
	if t.IsZero() {
		return view.Unknown
	}
	return view.Stamp(t)
}

// Restores are the ways to restore the chosen moment, the newest lineage first.
func (p backupsPage) Restores() (all []restore) {
	for _, lane := range p.Lanes {
		for _, r := range lane.Restorable {
			if p.Chosen.Before(r.Since) || p.Chosen.After(r.Until) || !plain(lane.Lineage) {
				continue
			}
			command := fmt.Sprintf(`kubectl -n %s patch etcdcluster %s --type=merge -p '{"spec":{"recovery":{"restore":{"time":"%s","lineage":"%s"}}}}'`,
				p.Namespace, p.Name, view.Stamp(p.Chosen), lane.Lineage)
			all = append([]restore{{lane.Lineage, command}}, all...)
		}
	}
	return all
}

// plain says whether a lineage can stand in a command: a store can hold anything.
func plain(l catalog.Lineage) bool {
	return l != "" && strings.Trim(string(l), "0123456789abcdef-") == ""
}

// Links are the pages about restores.
func (p backupsPage) Links() []string { return []string{inPlaceDocs, restoreDocs} }

// choose reads the moment that the user chose, in UTC.
func (p *backupsPage) choose(text string) {
	if p.Moment = text; text == "" {
		return
	}
	for _, format := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.RFC3339} {
		if t, err := time.Parse(format, text); err == nil {
			p.Chosen, p.Moment = t.UTC(), t.UTC().Format("2006-01-02T15:04:05")
			return
		}
	}
	p.Wrong = fmt.Sprintf("The time %q cannot be read. Write it as 2006-01-02T15:04:05, in UTC.", text)
}

// lookAtBackups is the timeline of the cluster that the path names.
func (s *Server) lookAtBackups(ctx context.Context, r *http.Request) (layout, time.Duration, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	found, pause := s.backupsFeed(namespace, name).get(ctx)
	p := backupsPage{Backups: found.data, Namespace: namespace, Name: name, frame: frame{
		Base: s.guard.base, Title: "Backups of " + namespace + "/" + name, Now: s.Now(), At: found.at, Problem: problemOf(found.err),
	}}
	p.spread()
	p.choose(r.URL.Query().Get("at"))
	names := []string{"notice", "read"}
	if p.Known() {
		names = []string{"notice", "lineages", "read"}
	}
	parts, err := partsOf(p, names...)
	return layout{frame: p.frame, Parts: parts}, pause, err
}
