package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/internal/view"
)

const (
	// upgradePage explains a change of the version, and versionRules has the rules of releases and of steps.
	upgradePage  = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/run/upgrade-etcd.md"
	versionRules = "https://github.com/etcd-druid/druid/blob/main/docs/reference/" +
		"decisions.md#versions-of-etcd-and-steps-between-them-versionsreleaserules-versionssteprules"
)

func (o *options) upgradeCommand() *cobra.Command {
	var apply bool
	w := waiting{timeout: waitTimeout}
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "upgrade CLUSTER VERSION",
		Short: "Show what a change of the etcd version would do, and request it",
		Long: "Show what a change to another version of etcd would do, member by member, and what it waits for. This changes nothing.\n" +
			"The version is major.minor.patch, and can be a later or an earlier one. The exit code is 2 if the step is refused or waits for something.\n" +
			"With --apply, set spec.version. The command then refuses a step that etcd does not support. druid waits for all else.\n" +
			"With --wait too, show the progress, and end when all members run the version. An interrupt ends the command, and not the change.",
		Example: "  kubectl druid upgrade demo 3.7.3\n  kubectl druid upgrade demo 3.7.3 --apply --wait",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("got %d arguments, want the name of one EtcdCluster and a version of etcd", len(args))
			}
			return nil
		},
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if err := w.needs(cmd, "apply"); err != nil {
			return err
		}
		to, ok := versions.Parse(args[1])
		if !ok || to.String() != args[1] {
			return fmt.Errorf("%q is no version of etcd, want major.minor.patch without a leading v, like 3.%d.0", args[1], versions.Newest)
		}
		objects, err := k.objects(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		u := k.upgradingOf(objects, view.Of(objects, o.now()), to)
		if err := k.requestableVersion(objects.Cluster, u); err != nil {
			return fmt.Errorf("upgrade EtcdCluster %s/%s: %w. Nothing was changed", k.namespace, args[0], err)
		}
		p := o.page(cmd, k)
		if apply {
			return k.upgrade(cmd, objects.Cluster, u, p, w)
		}
		if output == formatTable {
			p.upgrading(u, objects.Cluster)
			err = p.err
		} else {
			err = printData(cmd.OutOrStdout(), u, output)
		}
		if err == nil && u.blocked() {
			return cli.Exit(codeNotWell)
		}
		return err
	})
	command.Flags().BoolVar(&apply, "apply", false, "set spec.version")
	w.bind(command, "all members run the version, or the change has failed. It needs --apply")
	bindOutput(command, &output, dataFormats...)
	command.MarkFlagsMutuallyExclusive("apply", "output")
	return command
}

// requestableVersion says why there is nothing to request.
func (s selection) requestableVersion(c v1alpha1.EtcdCluster, u upgrading) error {
	switch {
	case c.DeletionTimestamp != nil:
		return errors.New("the EtcdCluster is being deleted")
	case c.Spec.Version == u.To && !u.reported():
		return fmt.Errorf("spec.version is %s already", u.To)
	case c.Spec.Version == u.To:
		return fmt.Errorf("spec.version is %s already, and members change. See the progress: %s", u.To, s.invoke(c, "status"))
	default:
		return nil
	}
}

// upgrade sets spec.version.
func (k *kube) upgrade(cmd *cobra.Command, c v1alpha1.EtcdCluster, u upgrading, p *page, w waiting) error {
	if len(u.Refused) > 0 {
		return fmt.Errorf("upgrade EtcdCluster %s/%s: %s. Nothing was changed. %s", c.Namespace, c.Name, strings.Join(u.Refused, "; "), upgradePage)
	}
	// The resourceVersion refuses the patch if the EtcdCluster changed after the check.
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": c.ResourceVersion}, "spec": map[string]any{"version": u.To}}
	if err := k.patch(cmd, c, patch); err != nil {
		return err
	}
	p.line(cell{text: fmt.Sprintf("spec.version of EtcdCluster %s/%s was %s and is %s.", c.Namespace, c.Name, or(c.Spec.Version), u.To)})
	for _, wait := range u.Waits {
		p.line(cell{"It waits: " + sentence(wait), middle})
	}
	for _, warning := range u.Warnings {
		p.line(cell{"Note: " + sentence(warning), middle})
	}
	p.line(cell{text: "See the progress: " + k.invoke(c, "status")})
	p.line(cell{text: fmt.Sprintf("Request the version of before: %s %s --apply", k.invoke(c, "upgrade"), or(c.Spec.Version))})
	return w.awaitCluster(cmd, k, p, c, "the change to etcd "+u.To, "status", func(now v1alpha1.EtcdCluster) waitState { return upgradeState(now, u.To) })
}

// upgrading prints what a change of the version would do.
func (p *page) upgrading(u upgrading, c v1alpha1.EtcdCluster) {
	p.line(cell{u.Namespace + "/" + u.Cluster, strong}, cell{text: fmt.Sprintf("  Change of etcd %s to %s. Nothing was changed.", or(u.From), u.To)})
	p.line()
	verdict := cell{"possible: " + u.Why, good}
	switch {
	case u.Verdict == versions.Refused:
		verdict = cell{"✖ refused", bad}
	case len(u.Waits) > 0:
		verdict = cell{"possible, and waits: " + u.Why, middle}
	}
	p.field("Step", verdict)
	for _, list := range []struct {
		title string
		lines []string
		tone  tone
	}{{"Refused", u.Refused, bad}, {"Waits", u.Waits, middle}, {"Note", u.Warnings, middle}} {
		for _, line := range list.lines {
			p.field(list.title, cell{sentence(line), list.tone})
		}
	}
	if len(u.Steps) > 0 {
		p.line()
	}
	for i, step := range u.Steps {
		p.line(cell{text: fmt.Sprintf("  %d. %s", i+1, step)})
	}
	p.line()
	if u.Verdict == versions.Refused {
		p.line(cell{text: "The steps that etcd supports: " + versionRules})
		return
	}
	p.line(cell{text: "Set spec.version:"})
	p.line(cell{text: "  " + p.invoke(c, "upgrade") + " " + u.To + " --apply"})
	p.line(cell{text: upgradePage})
}
