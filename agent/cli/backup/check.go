package backup

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/archive"
	"github.com/etcd-druid/druid/backup/chain"
)

// verification is what `verify` prints.
type verification struct {
	Objects  int               `json:"objects"`
	Broken   int               `json:"broken"`
	Unknown  int               `json:"unknown"`
	Findings []archive.Finding `json:"findings"`
	Gaps     []gapOf           `json:"gaps,omitempty"`
}

// gapOf is a break in what can be restored of a lineage.
type gapOf struct {
	Lineage chain.Lineage `json:"lineage"`
	chain.Gap
}

func checkCommand(s *session) *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read each object and report broken ones",
		Long: `Read each object to its end. Its checksums must match, its content must match its name, and delta backups must be
contiguous. Broken objects are reported and not changed. Missing revisions are reported too and are not damage: they might
never have been saved, and the next full backup starts again. To plan a restore without an object, pass it to
plan --without. To exclude it from retention, pass it to gc --broken.

This command checks what is stored. To compare it with what etcd had, use ` + "`backup verify`" + `.`,
		Example: `  agent backup check --store s3://backups?region=eu-central-1 --prefix default/demo`,
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
				c.Histories = []chain.History{h}
			}
			v := verification{Findings: []archive.Finding{}}
			if err := archive.Verify(cmd.Context(), s.store, c, func(f archive.Finding) error { return v.add(s, f) }); err != nil {
				return err
			}
			for _, h := range c.Histories {
				for _, gap := range h.Gaps() {
					v.Gaps = append(v.Gaps, gapOf{h.Lineage, gap})
				}
			}
			return v.end(s)
		},
	}
	cmd.Flags().StringVar(&only, "lineage", "", "check one lineage")
	return cmd
}

// add counts a finding, and prints it at once: reading all may take hours.
func (v *verification) add(s *session, f archive.Finding) error {
	v.Objects++
	switch f.State {
	case archive.Sound:
	case archive.Broken:
		v.Broken++
	case archive.Unknown:
		v.Unknown++
	}
	if s.json() {
		v.Findings = append(v.Findings, f)
		return nil
	}
	what := f.Reason // which names the object
	if what == "" {
		what = s.name(f.Key)
	}
	_, err := fmt.Fprintf(s.out, "%-8s %10s  %s\n", f.State, size(f.Size), what)
	return err
}

func (v *verification) end(s *session) error {
	if err := v.print(s); err != nil {
		return err
	}
	switch {
	case v.Broken > 0:
		return no(fmt.Errorf("%d of %s broken: take a new full backup, and keep the older ones until it is verified", v.Broken, objects(v.Objects)))
	case v.Unknown > 0:
		return fmt.Errorf("%d of %s not read, so their state is unknown: check again", v.Unknown, objects(v.Objects))
	}
	return nil
}

func (v *verification) print(s *session) error {
	if s.json() {
		return s.printJSON(v)
	}
	for _, gap := range v.Gaps {
		if _, err := fmt.Fprintln(s.out, "note:", noteGap(gap.Lineage, gap.Gap)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(s.out, "%s: %d intact, %d broken, %d not read\n", objects(v.Objects), v.Objects-v.Broken-v.Unknown, v.Broken, v.Unknown)
	return err
}
