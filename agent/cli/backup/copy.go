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
compared and left.

Encrypted backups are decrypted on the way, and encrypted with the current key of --to-encryption-keys. Where they are to
stand in plain, that must be said: --to-encryption-keys none.`,
		Args: cobra.NoArgs,
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
	cmd.Flags().StringVar(&to.store, "to", "", "the store to copy to, in the forms of --store")
	cmd.Flags().StringVar(&to.prefix, "to-prefix", "", "the prefix there (default that of --prefix)")
	cmd.Flags().StringVar(&to.credentials, "to-credentials", "", "file or directory with the credentials of the store to copy to")
	cmd.Flags().StringVar(&to.keys, "to-encryption-keys", "", "directory with the keys to encrypt the copy with, or none for a copy in plain")
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
		return fmt.Errorf("--to: the backups may be encrypted, and the copy would not be: name the keys for it with --to-encryption-keys, or say --to-encryption-keys %s", noKeys)
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
