package backup

import (
	"cmp"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/chain"
)

func showCommand(s *session) *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print the objects of all lineages or of one",
		Example: `  agent backup show --store dir:///mnt/backups --prefix default/demo`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.read(cmd.Context())
			if err != nil {
				return err
			}
			if only != "" {
				h, found := c.History(chain.Lineage(only))
				if !found {
					return no(fmt.Errorf("--lineage: there is no lineage %q; `backup list` prints all lineages", only))
				}
				c.Histories, c.UnknownObjects = []chain.History{h}, nil
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
	lineage  chain.Lineage
	kind     string
	from, to int64
	at, key  string
	size     int64
}

func fullRow(f chain.Full) row {
	kind := "full"
	if f.Final {
		kind = "final"
	}
	return row{f.Lineage, kind, f.Revision, f.Revision, stamp(f.At), f.Key, f.Size}
}

func deltaRow(d chain.Delta) row {
	return row{d.Lineage, "delta", d.From, d.To, stamp(d.At), d.Key, d.Size}
}

func rowsOf(c chain.Catalog) []row {
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
