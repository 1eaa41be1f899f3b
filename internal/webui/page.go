package webui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/etcd-druid/druid/internal/view"
)

//go:embed templates
var files embed.FS

// pages are the templates. html/template escapes each text for the place where it stands.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"revision": view.Number[int64], "entries": view.Number[uint64], "size": view.Size, "or": view.Or, "sentence": view.Sentence,
	"path": ClusterPath, "clock": clock, "stamp": view.Stamp, "about": about, "join": strings.Join, "words": strings.Fields,
	"age": view.Age, "agoOf": view.Ago, "bytes": func(n int64) string { return view.Size(&n) },
	"ago": func(t, now time.Time) string { return view.Ago(&t, now) }, "share": share,
}).ParseFS(files, "templates/*.html"))

// clock is a time of the day.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// about is a short name of a page of the documentation.
func about(link string) string {
	_, page, ok := strings.Cut(link, "/docs/")
	if !ok {
		return link
	}
	page, _, _ = strings.Cut(page, "#")
	return strings.TrimSuffix(page, ".md")
}

// share is how many percent of the quota are used, or -1 if it is not known.
func share(used *int64, quota int64) int64 {
	if used == nil || quota <= 0 {
		return -1
	}
	return *used * 100 / quota
}

// frame is what all pages have.
type frame struct {
	// Base begins each path, Title is that of the page, and Live the path of its stream of changes without Base, empty for none.
	Base, Title, Live string
	// Now is when the page is made, and At when its data was read, zero for never.
	Now, At time.Time
	// Problem is why the last read failed. The data is old then.
	Problem *problem
	Unread  []view.Unread
}

// Known says that data was read.
func (f frame) Known() bool { return !f.At.IsZero() }

// part is a piece of a page that is replaced when it changes.
type part struct {
	ID   string        `json:"id"`
	HTML template.HTML `json:"html"`
}

// partsOf renders the templates with these names, whose elements have the same ids.
func partsOf(data any, names ...string) ([]part, error) {
	all := make([]part, 0, len(names))
	for _, name := range names {
		var out bytes.Buffer
		if err := pages.ExecuteTemplate(&out, name, data); err != nil {
			return nil, fmt.Errorf("render %s: %w", name, err)
		}
		all = append(all, part{name, template.HTML(out.String())}) //nolint:gosec // html/template has escaped it
	}
	return all, nil
}

// layout is a complete page.
type layout struct {
	frame
	// Filter is nil on pages without a filter.
	Filter *filter
	Parts  []part
}

func write(w http.ResponseWriter, code int, l layout) {
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, "layout", l); err != nil {
		http.Error(w, "The page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes()) // the browser has gone
}

// codeOf is the status code of a page.
func codeOf(f frame) int {
	if f.Problem != nil && !f.Known() {
		return http.StatusBadGateway
	}
	return http.StatusOK
}

// welcome opens the first page. It is no redirect: a browser that came from another site would not send the cookie then.
func (s *Server) welcome(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = pages.ExecuteTemplate(w, "welcome", s.guard.base+s.Start) // the browser has gone
}

// nothing answers for all other paths.
func (s *Server) nothing(w http.ResponseWriter, _ *http.Request) {
	f := frame{Base: s.guard.base, Title: "No such page", Now: s.Now(), Problem: &problem{What: "There is no such page.", Next: "Open the list of all clusters."}}
	parts, err := partsOf(f, "notice")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, http.StatusNotFound, layout{frame: f, Parts: parts})
}

// withQuery adds the query of the page to the path of its stream.
func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}
