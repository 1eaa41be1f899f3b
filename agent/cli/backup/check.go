package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/verify"
)

// verification is what `check` prints.
type verification struct {
	Objects  int              `json:"objects"`
	Broken   int              `json:"broken"`
	Unknown  int              `json:"unknown"`
	Findings []verify.Finding `json:"findings"`
	Gaps     []gapOf          `json:"gaps,omitempty"`
}

// gapOf is a gap in the restorable revisions of a lineage.
type gapOf struct {
	Lineage catalog.Lineage `json:"lineage"`
	catalog.Gap
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
			c, err := s.readLineage(cmd.Context(), only)
			if err != nil {
				return err
			}
			v := verification{Findings: []verify.Finding{}}
			shown := newReading(cmd.ErrOrStderr(), "Checking", c, 1)
			err = verify.Check(cmd.Context(), shown.of(s.store), c, func(f verify.Finding) (err error) {
				shown.Apart(func() { err = v.add(s, f) })
				return err
			})
			if shown.Apart(nil); err != nil {
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

// add counts a finding and prints it immediately, because reading everything can take hours.
func (v *verification) add(s *session, f verify.Finding) error {
	v.Objects++
	switch f.State {
	case verify.ObjectIntact:
	case verify.ObjectBroken:
		v.Broken++
	case verify.ObjectUnknown:
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
		return fmt.Errorf("%d of %s not read, so their state is unknown: run the check again", v.Unknown, objects(v.Objects))
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

func verifyCommand(s *session) *cobra.Command {
	var flags trialFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Restore into a scratch directory and compare with what etcd reported",
		Long: `Restore the newest state, or the named one, into a directory that is deleted afterwards. Compare it with the newest
checkpoint in its delta backups: the hash (HashKV) that etcd reported at that revision. This finds what no checksum finds: an
intact backup with data that the cluster never had. Keys, leases and users are compared as far as possible, and the output
lists what was not compared. No etcd is started or queried.

The command needs as much disk space as the database, and prints how much first. "unknown" means that the result is not
known, with the cause.`,
		Example: `  agent backup verify --store s3://backups?region=eu-central-1 --prefix default/demo --scratch /var/tmp`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.trial(cmd.Context(), s)
			if err != nil {
				return err
			}
			// Run returns the same error again, with its cause.
			if p, err := c.Catalog.Plan(c.Target); err == nil {
				if need, err := restore.Need(cmd.Context(), s.store, p); err == nil {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "needs at least %s in %s\n", size(need), c.Scratch)
				}
			}
			shown := newProgress(cmd.ErrOrStderr())
			c.Progress = shown.report
			r := verify.Run(cmd.Context(), c)
			shown.end()
			return s.printVerification(r)
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

// trialFlags select what is restored for verification, and where.
type trialFlags struct {
	targetFlags
	scratch string
}

func (t *trialFlags) add(flags *pflag.FlagSet) {
	t.targetFlags.add(flags)
	flags.StringVar(&t.scratch, "scratch", os.TempDir(), "a directory with room for the database")
}

// trial reads the catalog and the flags.
func (t trialFlags) trial(ctx context.Context, s *session) (c verify.Config, err error) {
	c.Store = s.store
	if c.Scratch, err = filepath.Abs(t.scratch); err != nil {
		return c, fmt.Errorf("--scratch: %w", err)
	}
	if c.Catalog, err = s.read(ctx); err != nil {
		return c, err
	}
	c.Target, err = t.target(s, c.Catalog)
	return c, err
}

func (s *session) printVerification(r verify.Result) error {
	if s.json() {
		if err := s.printJSON(r); err != nil {
			return err
		}
	} else if r.Revision > 0 {
		users := "without users"
		if r.AuthEnabled {
			users = fmt.Sprintf("with users as of change %d", r.AuthRevision)
		}
		_, err := fmt.Fprintf(s.out, "%s: restored to revision %d in %s: %s, %d leases, %s\n",
			s.name(r.Full), r.Revision, r.Took.Round(time.Millisecond), size(r.Size), r.Leases, users)
		if err != nil {
			return err
		}
	}
	if err := verdictOf(r); err != nil || s.json() {
		return err
	}
	_, err := fmt.Fprintf(s.out, "verified: at revision %d it has %d keys with HashKV %d, like member %x; compared: %s\n",
		r.Checkpoint.Revision, r.Keys, r.HashKV, r.Checkpoint.MemberID, strings.Join(r.Compared, ", "))
	for _, not := range r.NotCompared {
		if err == nil {
			_, err = fmt.Fprintf(s.out, "not compared: %s\n", not)
		}
	}
	return err
}

// verdictOf returns nil for a verified backup.
func verdictOf(r verify.Result) error {
	switch r.Verdict {
	case verify.Broken:
		return no(fmt.Errorf("broken: %s; take a new full backup, and keep the older ones until it is verified", r.Reason))
	case verify.Unknown:
		return errors.New("unknown: " + r.Reason)
	case verify.Verified:
	}
	return nil
}
