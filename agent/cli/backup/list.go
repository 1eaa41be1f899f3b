package backup

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/catalog"
)

// timeline is what `list` prints.
type timeline struct {
	Store          string            `json:"store"`
	Prefix         string            `json:"prefix"`
	Lineages       []catalog.Summary `json:"lineages"`
	UnknownObjects []string          `json:"unknownObjects,omitempty"`
}

func listCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Print each lineage and what you can restore",
		Example: `  agent backup list --store s3://backups?region=eu-central-1 --prefix default/demo
  agent backup list --agent-config /etc/druid/config.yaml --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.read(cmd.Context())
			if err != nil {
				return err
			}
			t := timelineOf(c)
			t.Store = fmt.Sprint(s.store)
			if s.json() {
				return s.printJSON(t)
			}
			return t.print(s.out)
		},
	}
}

func timelineOf(c catalog.Catalog) timeline {
	t := timeline{Prefix: c.Prefix, UnknownObjects: c.UnknownObjects}
	for _, h := range c.Histories {
		t.Lineages = append(t.Lineages, h.Summary())
	}
	return t
}

func (t timeline) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				_, _ = fmt.Fprint(table, "\t") // Flush reports the error
			}
			_, _ = fmt.Fprint(table, c)
		}
		_, _ = fmt.Fprintln(table)
	}
	row("LINEAGE", "CREATED", "PARENT", "FORK", "FULLS", "DELTAS", "SIZE", "REVISIONS", "FROM", "UNTIL")
	for _, l := range t.Lineages {
		formed, parent, fork := "?", "?", "?"
		if l.Formation != nil {
			formed, parent, fork = timestamp(l.Formation.Created), "-", "-"
			if l.Formation.Parent != "" {
				parent, fork = string(l.Formation.Parent), strconv.FormatInt(l.Formation.Fork, 10)
			}
		}
		if len(l.Restorable) == 0 {
			row(l.Lineage, formed, parent, fork, l.Fulls, l.Deltas, size(l.Size), "none", "-", "-")
		}
		for i, r := range l.Restorable {
			revisions := fmt.Sprintf("%d-%d", r.From, r.To)
			if i > 0 {
				row("", "", "", "", "", "", "", revisions, timestamp(r.Since), timestamp(r.Until))
				continue
			}
			row(l.Lineage, formed, parent, fork, l.Fulls, l.Deltas, size(l.Size), revisions, timestamp(r.Since), timestamp(r.Until))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return t.printNotes(w)
}

func noteGap(l catalog.Lineage, gap catalog.Gap) string { return fmt.Sprintf("lineage %s: %s", l, gap) }

// printNotes prints the exceptions.
func (t timeline) printNotes(w io.Writer) error {
	var notes []string
	unknownObjects := t.UnknownObjects
	for i, l := range t.Lineages {
		unknownObjects = append(unknownObjects, l.UnknownObjects...)
		if i > 0 && t.Lineages[i-1].Lineage.Epoch() == l.Lineage.Epoch() {
			notes = append(notes, fmt.Sprintf("lineages %s and %s have the same epoch; pass the one to restore as --lineage", t.Lineages[i-1].Lineage, l.Lineage))
		}
		if l.Finals > 0 {
			notes = append(notes, fmt.Sprintf("lineage %s: final full backups that retention never deletes: %s (see `backup show`)", l.Lineage, objects(l.Finals)))
		}
		if l.Formation == nil {
			notes = append(notes, fmt.Sprintf("lineage %s: its parent is unknown: %s", l.Lineage, l.FormationProblem))
		}
		for _, gap := range l.Gaps {
			notes = append(notes, noteGap(l.Lineage, gap))
		}
	}
	if n := len(unknownObjects); n > 0 {
		notes = append(notes, fmt.Sprintf("%d objects are not backups and are ignored, for example %s", n, unknownObjects[0]))
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(w, "note:", note); err != nil {
			return err
		}
	}
	return nil
}

func showCommand(s *session) *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print the objects of all lineages or of one",
		Example: `  agent backup show --store dir:///mnt/backups --prefix default/demo`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.readLineage(cmd.Context(), only)
			if err != nil {
				return err
			}
			if s.json() {
				return s.printJSON(c)
			}
			return s.printObjects(rowsOf(c), false)
		},
	}
	cmd.Flags().StringVar(&only, "lineage", "", "print one lineage")
	return cmd
}

// row is an object in a table.
type row struct {
	lineage  catalog.Lineage
	kind     string
	from, to int64
	at, key  string
	size     int64
}

func fullRow(f catalog.Full) row {
	kind := "full"
	if f.Final {
		kind = "final"
	}
	return row{f.Lineage, kind, f.Revision, f.Revision, timestamp(f.At), f.Key, f.Size}
}

func deltaRow(d catalog.Delta) row {
	return row{d.Lineage, "delta", d.From, d.To, timestamp(d.At), d.Key, d.Size}
}

func rowsOf(c catalog.Catalog) []row {
	var all []row
	for _, h := range c.Histories {
		var rows []row
		for _, f := range h.Fulls {
			rows = append(rows, fullRow(f))
		}
		for _, d := range h.Deltas {
			rows = append(rows, deltaRow(d))
		}
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		all = append(all, rows...)
		for _, key := range h.UnknownObjects {
			all = append(all, row{lineage: h.Lineage, kind: "unknown", at: "-", key: key})
		}
	}
	for _, key := range c.UnknownObjects {
		all = append(all, row{lineage: "-", kind: "unknown", at: "-", key: key})
	}
	return all
}

func (s *session) printObjects(rows []row, oneLineage bool) error {
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	line := func(lineage, rest string) {
		if !oneLineage {
			rest = lineage + "\t" + rest
		}
		_, _ = fmt.Fprintln(table, rest) // Flush reports the error
	}
	line("LINEAGE", "KIND\tFROM\tTO\tAT\tSIZE\tNAME")
	for _, r := range rows {
		line(string(r.lineage), fmt.Sprintf("%s\t%d\t%d\t%s\t%s\t%s", r.kind, r.from, r.to, r.at, size(r.size), s.name(r.key)))
	}
	return table.Flush()
}
