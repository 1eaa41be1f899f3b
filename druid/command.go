package druid

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/crash"
)

// NewCommand is druid's command line. level decides what log writes.
func NewCommand(log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	o := DefaultOptions()
	cmd := &cobra.Command{
		Use:   "druid",
		Short: "Run etcd clusters on Kubernetes",
		Long: "druid watches EtcdClusters and creates the Leases, PersistentVolumeClaims and Pods of their members. It speaks\n" +
			"Kubernetes alone: an agent next to each etcd decides how that etcd starts.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := cli.ParseLevel(o.LogLevel)
			if err != nil {
				return fmt.Errorf("--log-level: %w", err)
			}
			level.Set(parsed)
			if err := crash.Arm(crash.Druid); err != nil {
				return err
			}
			restConfig, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("find the Kubernetes API server: %w", err)
			}
			d, err := New(cmd.Context(), restConfig, o, log)
			if err != nil {
				return err
			}
			return d.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.AddCommand(cli.VersionCommand())
	return cmd
}
