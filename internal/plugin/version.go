package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
)

func (o *options) versionCommand() *cobra.Command {
	output := formatTable
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of the plugin, and those of druid's API in Kubernetes",
		Example: "  kubectl druid version\n  kubectl druid version --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionData{Plugin: cli.Version(), Reads: v1alpha1.GroupVersion.String()}
			k, err := o.connect()
			if err == nil {
				v.Serves, err = k.served()
			}
			// The version of the plugin is printed without Kubernetes too.
			return errors.Join(o.printAs(cmd, k, output, v, func(p *page) { p.version(v) }), err)
		},
	}
	bindOutput(command, &output, dataFormats...)
	return command
}

// version prints the versions that are known.
func (p *page) version(v versionData) {
	p.field("Plugin", cell{text: v.Plugin})
	p.field("Reads", cell{text: v.Reads})
	if len(v.Serves) > 0 {
		p.field("Kubernetes", cell{text: "serves " + strings.Join(v.Serves, ", ")})
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
