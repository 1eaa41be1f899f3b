package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/cli/backup"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/crash"
)

// GCPercent trades CPU, which the agent hardly uses, for memory, because an agent runs next to every etcd.
const GCPercent = 50

// Root is the agent's command. `run` logs to log, at the level in the configuration file.
func Root(log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	root := &cobra.Command{Use: "agent", Short: "Runs next to one etcd member and decides how it starts"}
	root.AddCommand(runCommand(log, level), installCommand(), launchCommand(), statusCommand(), stepDownCommand(), backup.Command(),
		cli.VersionCommand("  kubectl exec demo-bqdq7 -c agent -- agent version"))
	return root
}

func runCommand(log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	c := config.Default()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent of one member",
		Example: `  agent run --namespace=default --cluster=demo --cluster-uid=11111111-2222-3333-4444-555555555555 --member=demo-bqdq7 \
    --pod-uid=$POD_UID --peer-service=demo-peer --client-service=demo-client --etcd-version=3.6.16`,
		Args: cobra.NoArgs,
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

// launchName is the name of the supervisor's binary, which is in the same directory as the agent's, in the image and
// in the shared directory.
const launchName = "launch"

func installCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:     "install",
		Short:   "Copy the agent and launch to a volume of the etcd container",
		Example: `  agent install --to /druid`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the agent's own binary: %w", err)
			}
			for _, source := range []string{filepath.Join(filepath.Dir(self), launchName), self} {
				if err := install(source, filepath.Join(to, filepath.Base(source))); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "directory to copy to")
	_ = cmd.MarkFlagRequired("to") // it fails only for a flag that does not exist
	return cmd
}

// install copies source to target atomically: a process that runs target meanwhile runs the old or the new file.
func install(source, target string) (err error) {
	from, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	temporary, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+"-")
	if err != nil {
		return fmt.Errorf("install %s: %w", target, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	_, err = io.Copy(temporary, from)
	// Every user may run the file and none may change it, because the containers of the Pod share the directory.
	err = errors.Join(err, temporary.Chmod(0o555), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), target)
	}
	if err != nil {
		return fmt.Errorf("install %s: %w", target, err)
	}
	return nil
}

func launchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "launch",
		Short: "Supervise etcd as process 1 of its container",
		Long: `Supervise etcd as process 1 of its container. The command replaces itself with the binary launch in the directory
of the agent. launch takes a fifth of the memory of the agent, and stays resident next to every etcd. The flags are those of launch.`,
		Example:            "  agent launch -volume /var/lib/etcd -probe :2381",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the agent's own binary: %w", err)
			}
			path := filepath.Join(filepath.Dir(self), launchName)
			return fmt.Errorf("run %s: %w", path, unix.Exec(path, append([]string{launchName}, args...), os.Environ()))
		},
	}
}
