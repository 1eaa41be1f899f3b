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
		Short: "Copy the backups of a cluster to another store and read them back",
		Long: `Copy all lineages, full backups and delta backups to another store or prefix, oldest first. Each object is read back and
compared. Nothing is replaced. To continue an interrupted copy, run the command again: existing objects are compared and kept.

Encrypted backups are decrypted and then encrypted with the current key of --to-encryption-keys. For a plain-text copy, set
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
	cmd.Flags().StringVar(&to.store, "to", "", "store to copy to, like --store")
	cmd.Flags().StringVar(&to.prefix, "to-prefix", "", "prefix in that store (default: --prefix)")
	cmd.Flags().StringVar(&to.credentials, "to-credentials", "", "file or directory with the credentials of the store to copy to")
	cmd.Flags().StringVar(&to.keys, "to-encryption-keys", "", "directory with the keys to encrypt the copy with, or none for a plain-text copy")
	_ = cmd.MarkFlagRequired("to") // it fails only for a flag that does not exist
	return cmd
}

// keepsSecrets refuses to put in plain what was encrypted, unless that is asked for.
func (s *session) keepsSecrets(to location) error {
	source, err := s.config("store")
	if err != nil {
		return err
	}
	target, err := to.config("to")
	if err != nil {
		return err
	}
	if source.Sealing != nil && target.Sealing == nil && to.keys == "" {
		return fmt.Errorf("--to: the backups might be encrypted, and the copy would not be: set --to-encryption-keys to a directory with keys, or use --to-encryption-keys %s", noKeys)
	}
	return nil
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
