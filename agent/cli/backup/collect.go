package backup

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/verify"
)

// retentionResult is what happens to an object.
type retentionResult struct {
	catalog.Verdict
	Result string `json:"result"`
}

// The results of retention for an object.
const (
	resultKept        = "kept"
	resultWouldDelete = "would-delete"
	resultDeleted     = "deleted"
	resultLocked      = "locked"
)

func gcCommand(s *session) *cobra.Command {
	var policy catalog.Policy
	var verified, broken []string
	var lineage string
	var really bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Print what retention would delete, or delete it with --delete",
		Long: `Print what retention would keep and delete, and why. An object that any rule keeps is kept. Some objects are always kept:
the newest full backup of each lineage, the two newest that are not broken, and the newest verified one. Final backups and
what leads to the newest state are always kept too. The rules count separately for each cluster and the lineages that it was restored from.

With --delete the command lists the store again and deletes the oldest objects first. Locked objects are reported and stay. In
a bucket with versioning, deleted content stays as an older version.`,
		Example: `  agent backup gc --store s3://backups?region=eu-central-1 --prefix default/demo --keep-all 72h --daily 14
  agent backup gc --store s3://backups?region=eu-central-1 --prefix default/demo --keep-all 72h --daily 14 --delete`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := policy.Validate(); err != nil {
				return err
			}
			if policy == (catalog.Policy{}) {
				return errors.New("no rule is set, and everything would be kept: set --keep-all, --hourly, --daily, --weekly, --monthly or --count")
			}
			c, err := s.read(cmd.Context())
			if err != nil {
				return err
			}
			l := catalog.Lineage(lineage)
			if _, found := c.History(l); l != "" && !found {
				return no(fmt.Errorf("--lineage: there is no lineage %q; `backup list` prints all lineages", l))
			}
			evidence, err := s.evidence(c, verified, broken)
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
	flags.DurationVar(&policy.KeepAll, "keep-all", 0, "time for which each revision stays restorable, like 72h")
	flags.IntVar(&policy.Hourly, "hourly", 0, "number of hours of which the last full backup is kept")
	flags.IntVar(&policy.Daily, "daily", 0, "number of days of which the last full backup is kept")
	flags.IntVar(&policy.Weekly, "weekly", 0, "number of weeks of which the last full backup is kept")
	flags.IntVar(&policy.Monthly, "monthly", 0, "number of months of which the last full backup is kept")
	flags.IntVar(&policy.Count, "count", 0, "number of newest full backups to keep, with the delta backups after the oldest of them")
	flags.StringVar(&lineage, "lineage", "", "apply retention to this lineage and its ancestors only")
	flags.StringArrayVar(&verified, "verified", nil, "name of a verified full backup; repeatable")
	flags.StringArrayVar(&broken, "broken", nil, "name of a broken object; repeatable")
	flags.BoolVar(&really, "delete", false, "delete the objects")
	return cmd
}

func (s *session) evidence(c catalog.Catalog, verified, broken []string) (catalog.Evidence, error) {
	set := func(flag string, names []string) (map[string]bool, error) {
		keys, err := s.keys(c, flag, names)
		found := map[string]bool{}
		for _, key := range keys {
			found[key] = true
		}
		return found, err
	}
	p, err := set("verified", verified)
	if err != nil {
		return catalog.Evidence{}, err
	}
	b, err := set("broken", broken)
	return catalog.Evidence{Verified: p, Broken: b}, err
}

func (s *session) dryRun(c catalog.Catalog, l catalog.Lineage, p catalog.Policy, e catalog.Evidence) error {
	var results []retentionResult
	var gone, bytes int64
	for _, v := range c.Retain(l, p, e, time.Now()) {
		f := retentionResult{v, resultKept}
		if !v.Keep {
			f.Result, gone, bytes = resultWouldDelete, gone+1, bytes+v.Size
		}
		results = append(results, f)
	}
	if s.json() {
		return s.printJSON(results)
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "RESULT\tAT\tSIZE\tNAME\tREASON") // Flush reports the error
	for _, f := range results {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", f.Result, timestamp(f.At), size(f.Size), s.name(f.Key), f.Reason.Words())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "%d of %s would be deleted, %s. Nothing was deleted: add --delete.\n", gone, objects(len(results)), size(bytes))
	return err
}

func (s *session) collect(ctx context.Context, l catalog.Lineage, p catalog.Policy, e catalog.Evidence) error {
	results := []retentionResult{}
	var locked int
	err := verify.Collect(ctx, s.store, s.prefix, l, p, e, time.Now(), func(c verify.Collected) error {
		f := retentionResult{c.Verdict, resultDeleted}
		if c.Locked {
			f.Result, locked = resultLocked, locked+1
		}
		results = append(results, f)
		if s.json() {
			return nil
		}
		_, err := fmt.Fprintf(s.out, "%-8s %10s  %s: %s\n", f.Result, size(f.Size), s.name(f.Key), f.Reason.Words())
		return err
	})
	if s.json() {
		return errors.Join(err, s.printJSON(results))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%s deleted, %d locked until their lock ends.\n", objects(len(results)-locked), locked)
	return err
}

func copyCommand(s *session) *cobra.Command {
	var to location
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Copy the backups of a cluster to another store and read them back",
		Long: `Copy all lineages, full backups and delta backups to another store or prefix, oldest first. Each object is read back and
compared. Nothing is replaced. To continue an interrupted copy, run the command again: existing objects are compared and kept.

Encrypted backups are decrypted and then encrypted with the current identity of --to-encryption-keys. For a plain-text copy, set
--to-encryption-keys none.`,
		Example: `  agent backup copy --store s3://backups?region=eu-central-1 --prefix default/demo --to s3://other?region=eu-west-1`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("to-prefix") {
				to.prefix = s.prefix
			}
			if err := s.keepsSecrets(to); err != nil {
				return err
			}
			target, err := to.open(cmd.Context(), "to")
			if err != nil {
				return err
			}
			c, err := s.read(cmd.Context())
			if err != nil {
				return err
			}
			all := []verify.Copied{}
			shown := newReading(cmd.ErrOrStderr(), "Copying", c, 2) // each object is read back
			from, into := verify.Place{Store: shown.of(s.store), Prefix: s.prefix}, verify.Place{Store: shown.of(target), Prefix: to.prefix}
			err = verify.Copy(cmd.Context(), from, into, c, func(done verify.Copied) (err error) {
				all = append(all, done)
				shown.Apart(func() { err = s.printCopied(done) })
				return err
			})
			shown.Apart(nil)
			if s.json() {
				err = errors.Join(err, s.printJSON(all))
			} else if err == nil {
				_, err = fmt.Fprintf(s.out, "%s in %v\n", objects(len(all)), target)
			}
			if errors.Is(err, verify.ErrDiffers) || errors.Is(err, store.ErrDamaged) {
				return no(err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&to.store, "to", "", "store to copy to, like --store")
	cmd.Flags().StringVar(&to.prefix, "to-prefix", "", "prefix in that store (default: --prefix)")
	cmd.Flags().StringVar(&to.credentials, "to-credentials", "", "file or directory with the credentials of the store to copy to")
	cmd.Flags().StringVar(&to.keys, "to-encryption-keys", "", "directory with the keys to encrypt the copy with, or none for a plain-text copy")
	_ = cmd.MarkFlagRequired("to") // it fails only for a flag that does not exist
	return cmd
}

// keepsSecrets refuses to copy encrypted backups unencrypted, unless the user requests that.
func (s *session) keepsSecrets(to location) error {
	source, err := s.config("store")
	if err != nil {
		return err
	}
	target, err := to.config("to")
	if err != nil {
		return err
	}
	if source.ClientEncryption != nil && target.ClientEncryption == nil && to.keys == "" {
		return fmt.Errorf("--to: the backups might be encrypted, and the copy would not be: set --to-encryption-keys to a directory with keys, or "+
			"use --to-encryption-keys %s", noKeys)
	}
	return nil
}

func (s *session) printCopied(c verify.Copied) error {
	if s.json() {
		return nil
	}
	what := "copied"
	if c.Present {
		what = "present"
	}
	_, err := fmt.Fprintf(s.out, "%-8s %10s  %s\n", what, size(c.Size), c.Key)
	return err
}
