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

	"github.com/etcd-druid/druid/backup/proof"
	"github.com/etcd-druid/druid/backup/restore"
)

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
			// What it says no to, Run says as well, and what is wrong with it.
			if p, err := c.Catalog.Plan(c.Target); err == nil {
				if need, err := restore.Need(cmd.Context(), s.store, p); err == nil {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "needs at least %s in %s\n", size(need), c.Scratch)
				}
			}
			shown := newProgress(cmd.ErrOrStderr())
			c.Progress = shown.report
			r := proof.Run(cmd.Context(), c)
			shown.end()
			return s.printProof(r)
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

// trialFlags say what is restored to be looked at, and where.
type trialFlags struct {
	targetFlags
	scratch string
}

func (t *trialFlags) add(flags *pflag.FlagSet) {
	t.targetFlags.add(flags)
	flags.StringVar(&t.scratch, "scratch", os.TempDir(), "a directory with room for the database")
}

// trial reads the catalog and the flags.
func (t trialFlags) trial(ctx context.Context, s *session) (c proof.Config, err error) {
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

func (s *session) printProof(r proof.Result) error {
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
	_, err := fmt.Fprintf(s.out, "verified: at revision %d it holds %d keys with HashKV %d, like member %x; compared: %s\n",
		r.Checkpoint.Revision, r.Keys, r.HashKV, r.Checkpoint.MemberID, strings.Join(r.Compared, ", "))
	for _, not := range r.NotCompared {
		if err == nil {
			_, err = fmt.Fprintf(s.out, "not compared: %s\n", not)
		}
	}
	return err
}

// verdictOf is nil for what is proven.
func verdictOf(r proof.Result) error {
	switch r.Verdict {
	case proof.Broken:
		return no(fmt.Errorf("broken: %s; take a new full backup, and keep the older ones until it is verified", r.Reason))
	case proof.Unknown:
		return errors.New("unknown: " + r.Reason)
	case proof.Proven:
	}
	return nil
}
