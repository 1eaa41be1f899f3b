package backup

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/archive"
	"github.com/etcd-druid/druid/backup/chain"
)

// fate is what becomes of an object.
type fate struct {
	chain.Verdict
	Fate string `json:"fate"`
}

// The fates.
const (
	fateKept    = "kept"
	fateGoes    = "would-go"
	fateDeleted = "deleted"
	fateLocked  = "locked"
)

func gcCommand(s *session) *cobra.Command {
	var policy chain.Policy
	var proven, broken []string
	var lineage string
	var really bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Print what retention would delete; with --delete, delete it",
		Long: `Print what retention would keep and delete, and why. The rules add up: what one of them keeps is kept. Whatever they say,
the newest full of each lineage, the two newest that are not broken, the newest proven one, and what leads from them to the
latest state are kept, and each final full. What the rules count they count in each line of descent by itself: in the lineages of one cluster, and
those that it was restored from.

With --delete the store is listed again, and what may go is deleted, oldest first. Objects that are locked are told, and
stay. In a bucket with versioning the deleted content stays as an older version.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := policy.Validate(); err != nil {
				return err
			}
			if policy == (chain.Policy{}) {
				return errors.New("no rule is given, and without one everything is kept: pass --keep-all, --hourly, --daily, --weekly, --monthly or --count")
			}
			c, err := s.read(cmd.Context())
			if err != nil {
				return err
			}
			l := chain.Lineage(lineage)
			if _, found := c.History(l); l != "" && !found {
				return no(fmt.Errorf("--lineage: there is no lineage %q; `backup list` prints those that there are", l))
			}
			evidence, err := s.evidence(c, proven, broken)
			if err != nil {
				return err
			}
			if really {
				return s.collect(cmd.Context(), l, policy, evidence)
			}
			return s.dryRun(c, l, policy, evidence)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&policy.KeepAll, "keep-all", 0, "for how long each revision stays restorable, like 72h")
	flags.IntVar(&policy.Hourly, "hourly", 0, "how many hours keep their last full")
	flags.IntVar(&policy.Daily, "daily", 0, "how many days keep their last full")
	flags.IntVar(&policy.Weekly, "weekly", 0, "how many weeks keep their last full")
	flags.IntVar(&policy.Monthly, "monthly", 0, "how many months keep their last full")
	flags.IntVar(&policy.Count, "count", 0, "how many of the newest fulls are kept, with the deltas after the oldest of them")
	flags.StringVar(&lineage, "lineage", "", "retain the line of one lineage, and keep all others; without it each line by itself")
	flags.StringArrayVar(&proven, "proven", nil, "name of a full that was restored and found equal; may be given again")
	flags.StringArrayVar(&broken, "broken", nil, "name of an object that is broken; may be given again")
	flags.BoolVar(&really, "delete", false, "delete it")
	return cmd
}

func (s *session) evidence(c chain.Catalog, proven, broken []string) (chain.Evidence, error) {
	set := func(flag string, names []string) (map[string]bool, error) {
		keys, err := s.keys(c, flag, names)
		found := map[string]bool{}
		for _, key := range keys {
			found[key] = true
		}
		return found, err
	}
	p, err := set("proven", proven)
	if err != nil {
		return chain.Evidence{}, err
	}
	b, err := set("broken", broken)
	return chain.Evidence{Proven: p, Broken: b}, err
}

func (s *session) dryRun(c chain.Catalog, l chain.Lineage, p chain.Policy, e chain.Evidence) error {
	var fates []fate
	var gone, bytes int64
	for _, v := range c.Retain(l, p, e, time.Now()) {
		f := fate{v, fateKept}
		if !v.Keep {
			f.Fate, gone, bytes = fateGoes, gone+1, bytes+v.Size
		}
		fates = append(fates, f)
	}
	if s.json() {
		return s.printJSON(fates)
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "FATE\tAT\tSIZE\tNAME\tWHY") // Flush reports the error
	for _, f := range fates {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", f.Fate, stamp(f.At), size(f.Size), s.name(f.Key), f.Reason.Words())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "%d of %s would go, %s. Nothing was deleted: --delete does it.\n", gone, objects(len(fates)), size(bytes))
	return err
}

func (s *session) collect(ctx context.Context, l chain.Lineage, p chain.Policy, e chain.Evidence) error {
	fates := []fate{}
	var locked int
	err := archive.Collect(ctx, s.store, s.prefix, l, p, e, time.Now(), func(c archive.Collected) error {
		f := fate{c.Verdict, fateDeleted}
		if c.Locked {
			f.Fate, locked = fateLocked, locked+1
		}
		fates = append(fates, f)
		if s.json() {
			return nil
		}
		_, err := fmt.Fprintf(s.out, "%-8s %10s  %s: %s\n", f.Fate, size(f.Size), s.name(f.Key), f.Reason.Words())
		return err
	})
	if s.json() {
		return errors.Join(err, s.printJSON(fates))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%s deleted, %d locked until their lock ends.\n", objects(len(fates)-locked), locked)
	return err
}
