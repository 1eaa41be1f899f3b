package webui

import (
	"context"
	"net/http"
	"time"

	"github.com/etcd-druid/druid/internal/view"
)

// clusterPage is one cluster.
type clusterPage struct {
	frame
	view.Cluster
	// Unread shadows that of both.
	Unread []view.Unread
}

// decision is a rule that holds.
type decision struct {
	// About says what was decided, Why the reason, empty if it is not known, and Docs the row of the rule.
	About, Rule, Why, Docs string
}

// Decisions are the rules that hold now.
func (p clusterPage) Decisions() []decision {
	all := []decision{{"The state of the cluster", p.Rule, view.Sentence(p.Why), view.RuleDocs(p.Rule)}}
	for _, m := range p.Members {
		if m.Rule != "" {
			all = append(all, decision{"The start of etcd in " + m.Name, m.Rule, view.Sentence(m.RuleWhy()), view.RuleDocs(m.Rule)})
		}
	}
	return all
}

// Notes are what members report that has no column.
func (p clusterPage) Notes() (all []string) {
	for _, m := range p.Members {
		for _, note := range m.Notes() {
			all = append(all, m.Name+": "+note)
		}
	}
	return all
}

// lookAtCluster is the page of the cluster that the path names.
func (s *Server) lookAtCluster(ctx context.Context, r *http.Request) (layout, time.Duration, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	found, pause := s.clusterFeed(namespace, name).get(ctx)
	p := clusterPage{Cluster: found.data, Unread: found.data.Unread, frame: frame{
		Base: s.guard.base, Title: namespace + "/" + name, Live: "/live" + ClusterPath(namespace, name), Now: s.Now(), At: found.at, Problem: problemOf(found.err),
	}}
	switch {
	case p.Known() && p.Problem != nil:
		p.Title = "? old " + p.Title
	case p.Known():
		p.Title = p.Health.Mark() + " " + string(p.State) + " " + p.Title
	}
	parts, err := p.parts()
	return layout{frame: p.frame, Parts: parts}, pause, err
}

func (p clusterPage) parts() ([]part, error) {
	if !p.Known() {
		return partsOf(p, "notice", "read")
	}
	return partsOf(p, "notice", "head", "next", "members", "backups", "certificates", "conditions", "decisions", "events", "read")
}
