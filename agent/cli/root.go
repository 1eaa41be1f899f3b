package cli

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/cli/backup"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/crash"
)

// GCPercent trades CPU, of which the agent uses next to nothing, for memory: one agent runs next to every etcd.
const GCPercent = 50

// Root is the agent's command. log is what `run` logs to, at the level that the configuration file says.
func Root(log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	root := &cobra.Command{Use: "agent", Short: "Runs next to one etcd member and decides how it starts"}
	root.AddCommand(runCommand(log, level), installCommand(), launchCommand(), statusCommand(), backup.Command(), cli.VersionCommand())
	return root
}

func runCommand(log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	c := config.Default()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent of one member",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(GCPercent)
			if err := crash.Arm(crash.Agent); err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return err
			}
			kubernetes, err := rest.InClusterConfig()
			if err != nil {
				return fmt.Errorf("read the service account's token: %w", err)
			}
			a, err := agent.New(agent.Options{
				Config: c, Kubernetes: kubernetes, Registry: prometheus.NewRegistry(), Log: log, Level: level, Version: cli.Version(),
			})
			if err != nil {
				return err
			}
			return a.Run(cmd.Context())
		},
	}
	c.AddFlags(cmd.Flags())
	return cli.Service(cmd)
}
