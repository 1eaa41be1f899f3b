package cli

import (
	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// buildCommand lets the long first build be a step of its own, before tests whose time is limited.
func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use: "build [PROGRAM...]", Short: "Build the programs of a rig, or others that tests run, into the cache, without bringing a rig up",
		RunE: func(cmd *cobra.Command, names []string) error {
			repo, err := binaries.RepoDir()
			if err != nil {
				return err
			}
			cache, err := binaries.CacheDir()
			if err != nil {
				return err
			}
			log := narrate(cmd.ErrOrStderr())
			if _, err := (binaries.Builder{Repo: repo, Cache: cache, Progress: log}).Build(cmd.Context(), names...); err != nil {
				return err
			}
			log("all programs are in %s", cache)
			return nil
		},
	}
}
