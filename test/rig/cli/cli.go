// Package cli is the rig's command line. It says what the library does and
// decides nothing itself.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/test/rig/lab"
)

// New returns the rig's root command.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "rig",
		Short: "A Kubernetes cluster of real nodes on one Linux machine, for tests of druid",
		Long: `rig brings up etcd, a Kubernetes control plane and nodes with containerd and
kubelets, each node in namespaces of its own, all built from pinned Go modules.
It also makes faults: power cuts, partitions, frozen nodes, killed processes.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var name string
	root.PersistentFlags().StringVar(&name, "name", nameFromEnv(), "name of the rig; the default is $RIG_NAME")
	root.AddCommand(buildCommand(), upCommand(&name), downCommand(&name), kubeconfigCommand(&name), kubectlCommand(&name), imagesCommand(&name),
		execNodeCommand(&name))
	for _, v := range faults {
		root.AddCommand(v.command(&name))
	}
	root.AddCommand(insideCommands()...)
	return root
}

func nameFromEnv() string {
	if n := os.Getenv("RIG_NAME"); n != "" {
		return n
	}
	return lab.DefaultName
}

// narrate returns a progress log with the time since its making.
func narrate(w io.Writer) func(format string, args ...any) {
	begun := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(w, "[%6.1fs] %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
}

// fault is a command that gives one order to a running rig.
type fault struct {
	use, short string
	args       int
	do         func(ctx context.Context, l *lab.Lab, args []string) (string, error)
}

// silent adapts an order without an answer.
func silent(do func(ctx context.Context, l *lab.Lab, args []string) error) func(context.Context, *lab.Lab, []string) (string, error) {
	return func(ctx context.Context, l *lab.Lab, args []string) (string, error) {
		return "", do(ctx, l, args)
	}
}

// faults is the table of the simple commands.
var faults = []fault{
	{"status", "Show the nodes and the faults in force", 0, func(ctx context.Context, l *lab.Lab, _ []string) (string, error) {
		return status(ctx, l)
	}},
	{"stop-node NODE", "Power a node off, as pulling its plug would", 1, silent(func(ctx context.Context, l *lab.Lab, a []string) error {
		return l.StopNode(ctx, a[0])
	})},
	{"start-node NODE", "Power a node on again", 1, silent(func(ctx context.Context, l *lab.Lab, a []string) error {
		return l.StartNode(ctx, a[0])
	})},
	{"freeze NODE", "Stop all processes of a node", 1, silent(func(ctx context.Context, l *lab.Lab, a []string) error {
		return l.Freeze(ctx, a[0])
	})},
	{"thaw NODE", "Let a frozen node go on", 1, silent(func(ctx context.Context, l *lab.Lab, a []string) error {
		return l.Thaw(ctx, a[0])
	})},
	{"partition NODE PEER", `Cut a node from another, from "control-plane" or from "all"`, 2, silent(func(ctx context.Context, l *lab.Lab, a []string) error {
		return l.Partition(ctx, a[0], a[1])
	})},
	{"partition-one-way FROM TO", `Lose what one end sends to the other: a node, and a node, "control-plane" or "all"`, 2,
		silent(func(ctx context.Context, l *lab.Lab, a []string) error {
			return l.PartitionOneWay(ctx, a[0], a[1])
		})},
	{"heal", "End all partitions", 0, silent(func(ctx context.Context, l *lab.Lab, _ []string) error {
		return l.Heal(ctx)
	})},
	{"stop-apiserver", "Kill the apiserver and keep it down", 0, silent(func(ctx context.Context, l *lab.Lab, _ []string) error {
		return l.StopAPIServer(ctx)
	})},
	{"start-apiserver", "Start the apiserver again", 0, silent(func(ctx context.Context, l *lab.Lab, _ []string) error {
		return l.StartAPIServer(ctx)
	})},
	{"kill-in-pod NAMESPACE POD CONTAINER PROCESS SIGNAL", "Signal the processes of a name in a container", 5,
		silent(func(ctx context.Context, l *lab.Lab, a []string) error {
			return l.KillInPod(ctx, a[0], a[1], a[2], a[3], a[4])
		})},
	{"volume-path NAMESPACE CLAIM", "Print the directory of a claim's volume", 2, func(ctx context.Context, l *lab.Lab, a []string) (string, error) {
		return l.VolumePath(ctx, a[0], a[1])
	}},
}

func (f fault) command(name *string) *cobra.Command {
	return &cobra.Command{
		Use: f.use, Short: f.short, Args: cobra.ExactArgs(f.args),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(*name)
			if err != nil {
				return err
			}
			out, err := f.do(cmd.Context(), l, args)
			if out != "" {
				fmt.Fprintln(cmd.OutOrStdout(), out)
			}
			return err
		},
	}
}

// status adds the cluster's own view to the rig's.
func status(ctx context.Context, l *lab.Lab) (string, error) {
	rig, err := l.Status(ctx)
	if err != nil {
		return "", err
	}
	head := fmt.Sprintf("rig %q in %s\nkubeconfig: %s\n%s", l.Name(), l.Dir(), l.KubeconfigPath(), rig)
	nodes, err := l.Kubectl(ctx, "--request-timeout=5s", "get", "nodes")
	if err != nil {
		return head, err
	}
	return head + nodes, nil
}
