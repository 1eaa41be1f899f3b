package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
)

func (o *options) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin, and those of druid's API in Kubernetes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newPage(cmd.OutOrStdout(), o.now())
			p.field("Plugin", cell{text: cli.Version()})
			p.field("Reads", cell{text: v1alpha1.GroupVersion.String()})
			if p.err != nil {
				return p.err
			}
			k, err := o.connect()
			if err != nil {
				return err
			}
			served, err := k.served()
			if err != nil {
				return err
			}
			p.field("Kubernetes", cell{text: "serves " + strings.Join(served, ", ")})
			return p.err
		},
	}
}

// served are the versions of druid's API that Kubernetes serves.
func (k *kube) served() (all []string, err error) {
	groups, err := k.typed.Discovery().ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("list the API groups: %w", err)
	}
	known := false
	for _, group := range groups.Groups {
		if group.Name != v1alpha1.GroupVersion.Group {
			continue
		}
		for _, version := range group.Versions {
			all = append(all, version.GroupVersion)
			known = known || version.GroupVersion == v1alpha1.GroupVersion.String()
		}
	}
	switch {
	case len(all) == 0:
		return nil, errNotInstalled
	case !known:
		return nil, otherVersionsError(all)
	default:
		return all, nil
	}
}

// otherVersionsError are versions of druid's API that this plugin does not read.
type otherVersionsError []string

func (o otherVersionsError) Error() string {
	return fmt.Sprintf("this Kubernetes serves %s, which this plugin does not read. Use the plugin of that version of druid", strings.Join(o, ", "))
}
