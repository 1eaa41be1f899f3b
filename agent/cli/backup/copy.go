package backup

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/archive"
	"github.com/etcd-druid/druid/backup/store"
)

func copyCommand(s *session) *cobra.Command {
	var to location
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Copy a cluster's backups to another store, and read them back",
		Long: `Copy all lineages, fulls and deltas to another store, or below another prefix, oldest first. Each object is read back and
compared; nothing is replaced. A copy that was interrupted goes on when it is called again: what is there already is
compared and left.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("to-prefix") {
				to.prefix = s.prefix
			}
			target, err := to.open(cmd.Context(), "to")
			if err != nil {
				return err
			}
			c, err := s.read(cmd.Context())
			if err != nil {
				return err
			}
			all := []archive.Copied{}
			err = archive.Copy(cmd.Context(), archive.Place{Store: s.store, Prefix: s.prefix}, archive.Place{Store: target, Prefix: to.prefix}, c,
				func(done archive.Copied) error {
					all = append(all, done)
					return s.printCopied(done)
				})
			if s.json() {
				err = errors.Join(err, s.printJSON(all))
			} else if err == nil {
				_, err = fmt.Fprintf(s.out, "%s in %v\n", objects(len(all)), target)
			}
			if errors.Is(err, archive.ErrDiffers) || errors.Is(err, store.ErrDamaged) {
				return no(err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&to.store, "to", "", "the store to copy to, in the forms of --store")
	cmd.Flags().StringVar(&to.prefix, "to-prefix", "", "the prefix there (default that of --prefix)")
	cmd.Flags().StringVar(&to.credentials, "to-credentials", "", "file or directory with the credentials of the store to copy to")
	_ = cmd.MarkFlagRequired("to") // it fails only for a flag that does not exist
	return cmd
}

func (s *session) printCopied(c archive.Copied) error {
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
