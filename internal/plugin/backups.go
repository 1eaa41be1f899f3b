package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
)

const commandLinePage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/back-up/command-line.md"

// backups are those of one EtcdCluster, as an agent lists them.
type backups struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Member is the one whose agent read the store.
	Member         string            `json:"member"`
	Store          string            `json:"store"`
	Prefix         string            `json:"prefix"`
	Lineages       []catalog.Summary `json:"lineages"`
	UnknownObjects []string          `json:"unknownObjects,omitempty"`
}

func (o *options) backupsCommand() *cobra.Command {
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "backups CLUSTER",
		Short: "List the backups of an EtcdCluster, and what can be restored",
		Long: "List the backups of an EtcdCluster, and what can be restored. The leader's agent reads the store, or the agent of another member.\n" +
			"So you need no credentials of the store, but create of pods/exec. The exit code is 2 if the store has no backups.",
		Example: "  kubectl druid backups demo\n  kubectl druid backups demo --output wide",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		objects, err := k.objects(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		listed, err := awaited(cmd, agentReads, func() (backups, error) { return k.backups(cmd.Context(), objects, view.Of(objects, o.now())) })
		if err != nil {
			return fmt.Errorf("list the backups of EtcdCluster %s/%s: %w", k.namespace, args[0], err)
		}
		if output == formatJSON || output == formatYAML {
			return printData(cmd.OutOrStdout(), listed, output)
		}
		p := o.page(cmd, k)
		p.timeline(listed, output == formatWide)
		return p.err
	})
	bindOutput(command, &output, formatTable, formatWide, formatJSON, formatYAML)
	return command
}

// backups lists them with the first agent that answers.
func (k *kube) backups(ctx context.Context, o view.Objects, c view.Cluster) (found backups, err error) {
	found.Member, err = k.askAgents(ctx, o, c, []string{"backup", "list", "--agent-config", agentConfig, "--output", formatJSON}, &found)
	found.Namespace, found.Cluster = k.namespace, c.Name
	return found, err
}
