package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/etcd-druid/druid/internal/cli"
)

// installPage explains the installation.
const installPage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/install/install.md"

// The results of a check.
const (
	checkOK   = "OK"
	checkWarn = "WARN" // it can matter, or it could not be read
	checkFail = "FAIL" // druid or the EtcdCluster does not work with it
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Reason string `json:"reason"`
	// Next says what to do, unless the result is OK.
	Next string `json:"next,omitempty"`
}

func fine(reason string, values ...any) finding {
	return finding{Result: checkOK, Reason: fmt.Sprintf(reason, values...)}
}

func warn(next, reason string, values ...any) finding {
	return finding{Result: checkWarn, Reason: fmt.Sprintf(reason, values...), Next: next}
}

func fail(next, reason string, values ...any) finding {
	return finding{Result: checkFail, Reason: fmt.Sprintf(reason, values...), Next: next}
}

// unread is the result of a check that could not be done.
func unread(what string, err error) finding {
	if apierrors.IsForbidden(err) {
		return warn("Ask an administrator to run this command.", "you may not read %s", what)
	}
	return warn("Run the command again. If the error stays, ask an administrator.", "%s could not be read: %v", what, err)
}

// check is one question, and the function that answers it.
type check struct {
	name string
	run  func(context.Context) finding
}

func (o *options) checkCommand() *cobra.Command {
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "check [CLUSTER]",
		Short: "Check that Kubernetes is ready for druid, or that druid is well installed",
		Long: "Without druid's CustomResourceDefinitions, check that Kubernetes is ready for druid, and that you may install it.\n" +
			"With them, check that druid is well installed, and what you may do in the namespace. With a name, check that EtcdCluster too.\n" +
			"The command changes nothing. The exit code is 1 if a check fails. A warning does not change it.",
		Example: "  kubectl druid check\n  kubectl druid check demo",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("got %d arguments, want the name of one EtcdCluster, or none", len(args))
			}
			return nil
		},
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		ctx := cmd.Context()
		checks, err := o.checks(ctx, k, args)
		if err != nil {
			return err
		}
		found := make([]finding, 0, len(checks))
		for _, c := range checks {
			one := c.run(ctx)
			one.Check = c.name
			found = append(found, one)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return o.printFindings(cmd, found, output)
	})
	bindOutput(command, &output, dataFormats...)
	return command
}

// checks are those that apply: before an installation, or of an installation.
func (o *options) checks(ctx context.Context, k *kube, args []string) ([]check, error) {
	all := []check{
		{"Kubernetes version", k.checkVersion}, {"Kubernetes APIs", k.checkAPIs}, {"StorageClass", k.checkStorage}, {"Other operators", k.checkOthers},
	}
	_, err := k.served()
	_, others := errors.AsType[otherVersionsError](err)
	switch {
	case errors.Is(err, errNotInstalled) && len(args) > 0:
		return nil, err
	case errors.Is(err, errNotInstalled):
		return append(all, check{"Permission to install", k.checkInstaller}), nil
	case err != nil && !others: // a check says more about other versions
		return nil, err
	}
	i := &installation{kube: k, now: o.now()}
	i.read(ctx)
	all = append(
		all,
		check{"CustomResourceDefinitions", i.checkDefinitions}, check{"Policies", i.checkPolicies}, check{"Webhooks", i.checkWebhooks},
		check{"Deployment of druid", i.checkDeployment}, check{"Namespaces of druid", i.checkWatched}, check{"Leader of druid", i.checkLeader},
		check{"Images of the agents", func(ctx context.Context) finding { return i.checkAgents(ctx, args) }},
		check{"Directories of nodes", i.checkDirectories}, check{"Your permissions", k.checkUser},
	)
	if len(args) > 0 {
		all = append(all, check{"EtcdCluster " + args[0], func(ctx context.Context) finding { return i.checkCluster(ctx, args[0]) }})
	}
	return all, nil
}

func (o *options) printFindings(cmd *cobra.Command, found []finding, output string) error {
	if output == formatTable {
		p := newPage(cmd.OutOrStdout(), o.now())
		p.findings(found)
		if p.err != nil {
			return p.err
		}
	} else if err := printData(cmd.OutOrStdout(), found, output); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f finding) bool { return f.Result == checkFail }) {
		return cli.Exit(codeUnknown)
	}
	return nil
}

// findings prints the table, and then what to do, the failed checks first.
func (p *page) findings(all []finding) {
	colors := map[string]tone{checkOK: good, checkWarn: middle, checkFail: bad}
	rows := make([][]cell, 0, len(all))
	for _, f := range all {
		rows = append(rows, []cell{{text: f.Check}, {f.Result, colors[f.Result]}, {text: sentence(f.Reason)}})
	}
	p.table([]string{"CHECK", "RESULT", "REASON"}, rows)
	p.line()
	steps := 0
	for _, result := range []string{checkFail, checkWarn} {
		for _, f := range all {
			if f.Result != result {
				continue
			}
			if steps++; steps == 1 {
				p.line(cell{"What now", strong})
			}
			p.line(cell{text: fmt.Sprintf("  %d. %s: %s", steps, f.Check, f.Next)})
		}
	}
	if steps == 0 {
		p.line(cell{text: "Nothing to do."})
	}
}
