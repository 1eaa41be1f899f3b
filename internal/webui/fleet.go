package webui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/etcd-druid/druid/internal/view"
)

// filter says which clusters the list shows.
type filter struct {
	// Text is in the namespace, the name, the state or the message.
	Text string
	// Problems leaves out the clusters that are well.
	Problems bool
}

func filterOf(query url.Values) filter {
	return filter{Text: query.Get("q"), Problems: query.Get("problems") != ""}
}

func (f filter) query() url.Values {
	values := url.Values{}
	if f.Text != "" {
		values.Set("q", f.Text)
	}
	if f.Problems {
		values.Set("problems", "1")
	}
	return values
}

func (f filter) shows(c view.Cluster) bool {
	if f.Problems && c.Health == view.Well {
		return false
	}
	text := strings.ToLower(strings.Join([]string{c.Namespace + "/" + c.Name, string(c.State), c.Explanation(), c.Version}, "\n"))
	return strings.Contains(text, strings.ToLower(f.Text))
}

// fleetPage is the list of clusters.
type fleetPage struct {
	frame
	Scope string
	// Shown are the clusters that pass the filter, the worst first.
	Shown []view.Cluster
	// All, NotWell and Unclear count the clusters without a filter.
	All, NotWell, Unclear int
}

// Well counts the clusters that are well.
func (p fleetPage) Well() int { return p.All - p.NotWell - p.Unclear }

// lookAtFleet is the list that the filter of the query shows.
func (s *Server) lookAtFleet(ctx context.Context, r *http.Request) (layout, time.Duration, error) {
	shown := filterOf(r.URL.Query())
	found, pause := s.fleet.get(ctx)
	p := fleetPage{Scope: s.Scope, frame: frame{
		Base: s.guard.base, Title: "EtcdClusters", Live: withQuery("/live/fleet", shown.query()), Now: s.Now(), At: found.at,
		Problem: problemOf(found.err), Unread: found.data.Unread,
	}}
	for _, c := range found.data.Clusters {
		p.All++
		switch c.Health {
		case view.NotWell:
			p.NotWell++
		case view.Unclear:
			p.Unclear++
		default:
		}
		if shown.shows(c) {
			p.Shown = append(p.Shown, c)
		}
	}
	parts, err := p.parts()
	return layout{frame: p.frame, Filter: &shown, Parts: parts}, pause, err
}

func (p fleetPage) parts() ([]part, error) {
	if !p.Known() {
		return partsOf(p, "notice", "read")
	}
	return partsOf(p, "notice", "summary", "fleet", "read")
}
