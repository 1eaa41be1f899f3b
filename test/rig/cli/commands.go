package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/test/rig/lab"
)

// ExitError carries the exit code of a program that the rig ran for the user,
// who has seen its own error message already.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func upCommand(name *string) *cobra.Command {
	var o lab.Options
	cmd := &cobra.Command{
		Use: "up", Short: "Bring a rig up", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Name, o.Log = *name, narrate(cmd.ErrOrStderr())
			l, err := lab.Up(cmd.Context(), o)
			if err != nil {
				return err
			}
			o.Log("kubeconfig: %s", l.KubeconfigPath())
			return nil
		},
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	cmd.Flags().BoolVar(&o.IPv6, "ipv6", false, "give nodes, Pods and Services addresses of IPv6 alone")
	cmd.Flags().StringVar(&o.Profile, "profile", "fast", `timings: "fast" or "production"`)
	cmd.Flags().BoolVar(&o.NoDruid, "no-druid", false, "leave druid's image out")
	return cmd
}

func downCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End a rig and remove all that it left", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Attach(*name)
			if err != nil {
				return err
			}
			return l.Down(cmd.Context())
		},
	}
}

func kubeconfigCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "kubeconfig", Short: "Print a kubeconfig for clients on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Attach(*name)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(l.Kubeconfig())
			return err
		},
	}
}

func kubectlCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "kubectl -- ARGS", Short: "Run kubectl against a rig",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(*name)
			if err != nil {
				return err
			}
			return pass(cmd, l.KubectlCmd(cmd.Context(), args...))
		},
	}
}

func execNodeCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "exec-node NODE -- ARGS", Short: "Run a program in a node's namespaces", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(*name)
			if err != nil {
				return err
			}
			c, err := l.ExecNodeCmd(cmd.Context(), args[0], args[1:]...)
			if err != nil {
				return err
			}
			return pass(cmd, c)
		},
	}
}

func imagesCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "images [ARCHIVE…]", Short: "Build druid's image and load it into all nodes, or load archives",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(*name)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				archives, err := absolute(args)
				if err != nil {
					return err
				}
				return l.LoadImages(cmd.Context(), archives...)
			}
			log := narrate(cmd.ErrOrStderr())
			if err := l.LoadDruid(cmd.Context()); err != nil {
				return err
			}
			log("loaded %s", lab.DruidImage)
			return nil
		},
	}
}

// absolute are the paths of files for a program that runs in another directory.
func absolute(paths []string) (all []string, err error) {
	for _, path := range paths {
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		all = append(all, path)
	}
	return all, nil
}

// pass runs a program as if the user had: with the same input, output and
// exit code.
func pass(cmd *cobra.Command, c *exec.Cmd) error {
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return ExitError(exit.ExitCode())
	}
	return err
}
