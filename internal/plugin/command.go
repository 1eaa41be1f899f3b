package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/etcd-druid/druid/internal/cli"
)

// The exit codes of get and status. Every error has the code 1 too.
const (
	codeUnknown = 1
	codeNotWell = 2
)

// options are what all commands share.
type options struct {
	loading   clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	// now is the clock of this computer.
	now func() time.Time
}

// NewCommand returns kubectl druid.
func NewCommand() *cobra.Command { return newCommand(time.Now) }

// newCommand is NewCommand with a clock.
func newCommand(now func() time.Time) *cobra.Command {
	o := &options{loading: *clientcmd.NewDefaultClientConfigLoadingRules(), now: now}
	root := &cobra.Command{
		Use:         "kubectl-druid",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl druid"},
		Short:       "Inspect and operate the EtcdClusters of druid",
		Long: "Inspect and operate the EtcdClusters of druid. All commands use the Kubernetes API with your permissions. What they show needs no " +
			"druid. What they change takes effect when druid runs.\n" +
			"Colors are used on a terminal only, and not if the environment variable NO_COLOR is set.",
	}
	o.bind(root.PersistentFlags())
	root.SetFlagErrorFunc(inOurWords)
	root.AddCommand(o.getCommand(), o.statusCommand(), o.whyCommand(), o.recoverCommand(), o.pauseCommand(), o.resumeCommand(), o.snapshotCommand(),
		o.replaceCommand(), o.keptVolumesCommand(), o.moveLeaderCommand(), o.leaveFirstCommand(), o.handsOffCommand(), o.backupsCommand(), o.restoreCommand(),
		o.upgradeCommand(), o.etcdctlCommand(), o.connectCommand(), o.logsCommand(), o.reportCommand(), o.checkCommand(), o.uiCommand(), o.versionCommand())
	for _, command := range root.Commands() {
		command.RunE = interrupted(command.RunE)
	}
	return root
}

// forCluster completes a command about one EtcdCluster: it connects, and runs the command for the EtcdCluster that its
// first argument names.
func (o *options) forCluster(command *cobra.Command, run func(cmd *cobra.Command, k *kube, args []string) error) *cobra.Command {
	if command.Args == nil {
		command.Args = oneCluster
	}
	command.ValidArgsFunction = o.completeClusters
	command.RunE = func(cmd *cobra.Command, args []string) error {
		k, err := o.connect()
		if err != nil {
			return err
		}
		return run(cmd, k, args)
	}
	return command
}

// oneCluster wants the name of one EtcdCluster.
func oneCluster(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want the name of one EtcdCluster", len(args))
	}
	return nil
}

// interrupted turns the end by an interrupt into an error. Programs of Kubernetes end with code 0 then, and here 0 means that all is well.
func interrupted(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("interrupted: %v", err) //nolint:errorlint // the cause must not count as a wished end
		}
		return err
	}
}

// bind adds the flags of kubectl that choose a cluster and a user.
func (o *options) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.loading.ExplicitPath, "kubeconfig", "", "path of the kubeconfig file")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	// Kubernetes does not accept passwords any more.
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	clientcmd.BindOverrideFlags(&o.overrides, flags, names)
}

// colored says whether w is a terminal on which the user wants colors.
func colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && cli.IsTerminal(w)
}
