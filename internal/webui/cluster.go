package webui

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/view"
)

// clusterPage is one cluster. It shows a long text once.
type clusterPage struct {
	frame
	view.Cluster
	// Unread shadows that of both.
	Unread []view.Unread
	// Notes are what members report that has no column, and BackupLines what is known of the backups.
	Notes       []string
	BackupLines []view.Word
	// Decisions are the rules that hold now.
	Decisions []decision
}

// decision is a rule that holds.
type decision struct {
	// About says what was decided. Why is the reason, empty if it is not known or in a note. Docs is the row of the rule.
	About, Rule, Why, Docs string
}

// decisions are the rules that hold now. A member that waits has its reason in a note.
func decisions(c view.Cluster) []decision {
	all := []decision{{"The state of the cluster", c.Rule, view.Sentence(c.Why), view.RuleDocs(c.Rule)}}
	for _, m := range c.Members {
		if m.Rule == "" {
			continue
		}
		d := decision{About: "The start of etcd in " + m.Name, Rule: m.Rule, Docs: view.RuleDocs(m.Rule)}
		if m.Waits == "" {
			d.Why = view.Sentence(m.RuleWhy())
		}
		all = append(all, d)
	}
	return all
}

// compose sets the texts of the page from top to bottom, so that none repeats what is further up. The feed shares the cluster with other
// pages, so that its slices stay as they are.
func (p *clusterPage) compose(c view.Cluster) {
	var shown view.Shown
	shown.Once(c.Explanation())
	for i, notes := range shown.Notes(c.Members) {
		for _, note := range notes {
			p.Notes = append(p.Notes, c.Members[i].Name+": "+note)
		}
	}
	p.BackupLines = shown.BackupLines(c.Backup, p.Now)
	c.Certificates, c.Conditions, c.Events = slices.Clone(c.Certificates), slices.Clone(c.Conditions), slices.Clone(c.Events)
	for i := range c.Certificates {
		c.Certificates[i].Message = shown.Once(view.Sentence(c.Certificates[i].Message))
	}
	for i := range c.Conditions {
		c.Conditions[i].Message = shown.Once(view.Sentence(c.Conditions[i].Message))
	}
	p.Decisions = decisions(c)
	for i := range c.Events {
		c.Events[i].Message = shown.Once(c.Events[i].Message)
	}
	p.Cluster = c
}

// lookAtCluster is the page of the cluster that the path names.
func (s *Server) lookAtCluster(ctx context.Context, r *http.Request) (layout, time.Duration, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	found, pause := s.clusterFeed(namespace, name).get(ctx)
	p := clusterPage{Unread: found.data.Unread, frame: frame{
		Base: s.guard.base, Title: namespace + "/" + name, Live: "/live" + ClusterPath(namespace, name), Now: s.Now(), At: found.at, Problem: problemOf(found.err),
	}}
	p.compose(found.data)
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
