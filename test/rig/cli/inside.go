package cli

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/node"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/process"
	"github.com/etcd-druid/druid/test/rig/supervisor"
)

// firstInherited is the first descriptor after the standard three.
const firstInherited = 3

// insideCommands are those that the rig gives itself inside its namespaces.
func insideCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "init INHERITED PROGRAM ARGS", Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				n, err := strconv.Atoi(args[0])
				if err != nil {
					return err
				}
				code, err := process.Init(args[1:], n)
				if err == nil && code != 0 {
					return ExitError(code)
				}
				return err
			},
		},
		superviseCommand(),
		{
			Use: "node PLAN NODE", Hidden: true, Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				p, err := plan.Load(args[0])
				if err != nil {
					return err
				}
				return node.Run(cmd.Context(), p, args[1], inherited(0))
			},
		},
	}
}

func superviseCommand() *cobra.Command {
	var bound bool
	cmd := &cobra.Command{
		Use: "supervise PLAN", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := plan.Load(args[0])
			if err != nil {
				return err
			}
			f := supervisor.Files{Status: inherited(0), API: inherited(1), Lock: inherited(2)}
			if bound {
				f.Lifeline = inherited(3)
			}
			return supervisor.Run(cmd.Context(), p, f)
		},
	}
	cmd.Flags().BoolVar(&bound, "bound", false, "end with the process that started the rig")
	return cmd
}

// inherited is the i-th file that the parent passed on. It goes no further:
// the run's lock must not outlive the supervisor in some child.
func inherited(i int) *os.File {
	unix.CloseOnExec(firstInherited + i)
	return os.NewFile(uintptr(firstInherited+i), fmt.Sprintf("inherited %d", i))
}
