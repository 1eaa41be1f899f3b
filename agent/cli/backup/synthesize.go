package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/proof"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/synthesis"
)

// synthesized is what was made, or would be.
type synthesized struct {
	Plan chain.Plan `json:"plan"`
	// Key of the new full; empty before it is known up to which revision a moment leads.
	Key      string `json:"key,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// Scratch is how many bytes are needed at the least, Size how many the object has.
	Scratch int64  `json:"scratch,omitempty"`
	Size    int64  `json:"size,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	// Present: it had been there. Written: it was put now.
	Present bool `json:"present"`
	Written bool `json:"written"`
}

func synthesizeCommand(s *session) *cobra.Command {
	var flags trialFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "synthesize",
		Short: "Make a full out of a full and the deltas after it, so that a restore has less to apply",
		Long: `Restore the latest state, or the one that is named, into a directory that is gone afterwards, prove it as ` + "`prove`" + ` does, and
put it into the store as a full. No etcd is started, and none is asked. Nothing is replaced or deleted: a restore begins with
the new full, and retention keeps what it would keep without. Users, roles, alarms and compactions are as of the full that
etcd sent, which is why it counts for no schedule.

With --dry-run it prints what would be read and written.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.trial(cmd.Context(), s)
			if err != nil {
				return err
			}
			planned, err := s.planSynthesis(cmd.Context(), c.Catalog, c.Target)
			if err != nil {
				return err
			}
			if dryRun || planned.Present {
				return s.printSynthesized(planned)
			}
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "at least %s are needed in %s\n", size(planned.Scratch), c.Scratch)
			shown := newProgress(cmd.ErrOrStderr())
			c.Progress = shown.report
			made, err := s.synthesize(cmd.Context(), c)
			shown.end()
			if err != nil {
				return err
			}
			return s.printSynthesized(made)
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be read and written, and do neither")
	return cmd
}

// planSynthesis says what would be read and written.
func (s *session) planSynthesis(ctx context.Context, c chain.Catalog, target chain.Target) (synthesized, error) {
	p, err := c.Plan(target)
	if err != nil {
		return synthesized{}, answered(err)
	}
	if len(p.Deltas) == 0 {
		return synthesized{}, no(fmt.Errorf("%w: no delta follows %s", synthesis.ErrNothing, s.name(p.Full.Key)))
	}
	planned := synthesized{Plan: p}
	if p.Until.IsZero() {
		planned.Key, planned.Revision = synthesis.Key(s.prefix, p, p.Reach), p.Reach
	}
	h, _ := c.History(p.Full.Lineage)
	planned.Present = slices.ContainsFunc(h.Synthesized, func(f chain.Full) bool { return f.Key == planned.Key })
	if planned.Scratch, err = restore.Need(ctx, s.store, p); err != nil {
		return planned, refused(err)
	}
	return planned, nil
}

func (s *session) synthesize(ctx context.Context, c proof.Config) (made synthesized, err error) {
	c.Then = func(ctx context.Context, d proof.Database) {
		var full snapshot.Result
		full, err = synthesis.Put(ctx, synthesis.Source{Prefix: s.prefix, Store: d.Store, Plan: d.Plan, Path: d.Path, Revision: d.Revision})
		made = synthesized{Plan: d.Plan, Key: full.Key, Revision: d.Revision, Size: full.ObjectSize, SHA256: full.SHA256, Written: err == nil}
		if errors.Is(err, store.ErrExists) {
			made.Key, made.Present, err = synthesis.Key(s.prefix, d.Plan, d.Revision), true, nil
		}
	}
	if unproven := verdictOf(proof.Run(ctx, c)); unproven != nil {
		return made, unproven
	}
	if errors.Is(err, synthesis.ErrNothing) {
		err = no(err)
	}
	return made, err
}

func (s *session) printSynthesized(m synthesized) error {
	if s.json() {
		return s.printJSON(m)
	}
	revisions, bytes := m.Plan.Tail()
	switch {
	case m.Present:
		_, err := fmt.Fprintf(s.out, "%s is there already: it was made out of the same\n", s.name(m.Key))
		return err
	case m.Written:
		_, err := fmt.Fprintf(s.out, "%s: %s, made out of %s and %s with %d revisions\n", s.name(m.Key), size(m.Size), s.name(m.Plan.Full.Key),
			objects(len(m.Plan.Deltas)), revisions)
		return err
	}
	if err := s.printPlan(m.Plan); err != nil {
		return err
	}
	name := "a full that ends with that moment"
	if m.Key != "" {
		name = s.name(m.Key)
	}
	_, err := fmt.Fprintf(s.out, "would be read, of it %s with %d revisions applied, and %s written; at least %s are needed to do it. Nothing was done.\n",
		size(bytes), revisions, name, size(m.Scratch))
	return err
}
