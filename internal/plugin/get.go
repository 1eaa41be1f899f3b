package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// The formats of output.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

func (o *options) getCommand() *cobra.Command {
	var all bool
	output := formatTable
	command := &cobra.Command{
		Use:   "get",
		Short: "List EtcdClusters, the worst first",
		Long: "List the EtcdClusters of a namespace or of all, the worst first.\n" +
			"The exit code is 0 if all are well, and 2 if one is not well. It is 1 if the state of one is unknown, or after an error.",
		Example: "  kubectl druid get --all-namespaces\n  kubectl druid get --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := o.connect()
			if err != nil {
				return err
			}
			if all {
				k.namespace = ""
			}
			now := o.now()
			clusters, missing, err := k.fleet(cmd.Context(), now)
			if err != nil {
				return err
			}
			if err := printFleet(cmd, clusters, missing, fleetFormat{output, all, k.namespace}, now); err != nil {
				return err
			}
			return exitOf(clusters...)
		},
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the EtcdClusters of all namespaces")
	bindOutput(command, &output, formatTable, formatWide, formatJSON, formatYAML)
	return command
}

func bindOutput(command *cobra.Command, output *string, formats ...string) {
	command.Flags().VarP(outputValue{output, formats}, "output", "o", "`format`: "+strings.Join(formats, ", "))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// outputValue is the value of --output: one of the formats.
type outputValue struct {
	value   *string
	formats []string
}

func (v outputValue) String() string { return *v.value }

// Type is what the usage and the page of the commands show.
func (outputValue) Type() string { return "string" }

func (v outputValue) Set(text string) error {
	if !slices.Contains(v.formats, text) {
		return formatError{text, v.formats}
	}
	*v.value = text
	return nil
}

// formatError is the error of --output with another format.
type formatError struct {
	text    string
	formats []string
}

func (w formatError) Error() string {
	return fmt.Sprintf("--output is %q, want one of %s", w.text, strings.Join(w.formats, ", "))
}

// inOurWords returns the error of a flag without the frame of pflag, if the error is a sentence of its own.
func inOurWords(_ *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[formatError](err); ok {
		return wrong
	}
	return err
}

// fleet reads all EtcdClusters of the namespace, the worst first.
func (k *kube) fleet(ctx context.Context, now time.Time) ([]view.Cluster, []view.Unread, error) {
	list, err := k.clusters(ctx, k.namespace)
	if err != nil {
		return nil, nil, err
	}
	var missing optional
	byCluster := map[string][]coordinationv1.Lease{}
	found, err := k.leasesOf(ctx, k.namespace, "", &missing)
	if err != nil {
		return nil, nil, err
	}
	for _, lease := range found {
		key := lease.Namespace + "/" + lease.Labels[leases.LabelCluster]
		byCluster[key] = append(byCluster[key], lease)
	}
	all := make([]view.Cluster, 0, len(list))
	for _, c := range list {
		all = append(all, k.describe(view.Objects{Cluster: c, Leases: byCluster[c.Namespace+"/"+c.Name], Unread: missing.unread}, now))
	}
	view.Sort(all)
	return all, missing.unread, nil
}

// exitOf is the exit code of a command that printed these clusters.
func exitOf(clusters ...view.Cluster) error {
	has := func(h view.Health) bool {
		return slices.ContainsFunc(clusters, func(c view.Cluster) bool { return c.Health == h })
	}
	switch {
	case has(view.NotWell):
		return cli.Exit(codeNotWell)
	case has(view.Unclear):
		return cli.Exit(codeUnknown)
	default:
		return nil
	}
}

// fleetFormat says how a list is printed.
type fleetFormat struct {
	output string
	// all adds the column of the namespace.
	all       bool
	namespace string
}

func printFleet(cmd *cobra.Command, clusters []view.Cluster, missing []view.Unread, f fleetFormat, now time.Time) error {
	out := cmd.OutOrStdout()
	if f.output == formatJSON || f.output == formatYAML {
		return printData(out, clusters, f.output)
	}
	if len(clusters) == 0 {
		where := "in any namespace"
		if !f.all {
			where = "in namespace " + f.namespace
		}
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No EtcdClusters found %s.\n", where)
		return err
	}
	p := newPage(out, now)
	p.fleet(clusters, f)
	if p.err != nil {
		return p.err
	}
	warnings := newPage(cmd.ErrOrStderr(), now)
	warnings.unread(missing)
	return warnings.err
}

// printData prints the view itself.
func printData(w io.Writer, data any, format string) error {
	raw, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return fmt.Errorf("print %s: %w", format, err)
	}
	raw = append(raw, '\n')
	if format == formatYAML {
		if raw, err = yaml.JSONToYAML(raw); err != nil {
			return fmt.Errorf("print %s: %w", format, err)
		}
	}
	_, err = w.Write(raw)
	return err
}

// fleet prints one line for each cluster.
func (p *page) fleet(clusters []view.Cluster, f fleetFormat) {
	header := []string{"NAME", "STATE", "READY", "VERSION", "LEADER", "SAVED", "AGE"}
	if f.all {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if f.output == formatWide {
		header = append(header, "DB / QUOTA", "RESTORABLE", "VERIFIED", "SPEC", "MESSAGE")
	}
	rows := make([][]cell, 0, len(clusters))
	for _, c := range clusters {
		row := []cell{{text: c.Name}, {c.Health.Mark() + " " + string(c.State), tones[c.Health.Tone()]}, {text: c.ReadyWord()}, {text: or(c.Version)},
			{text: c.LeaderWord()}, said(c.Backup.SavedWord(p.now)), {text: p.age(c.Created)}}
		if f.all {
			row = append([]cell{{text: c.Namespace}}, row...)
		}
		if f.output == formatWide {
			row = append(row, cell{text: c.DatabaseWord()}, said(c.Backup.WindowWord(p.now)), said(c.Backup.VerifiedWord(p.now)),
				cell{text: spec(c)}, cell{text: cmp.Or(c.Message, c.Why)})
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
}

func spec(c view.Cluster) string {
	if c.Accepted != c.Generation {
		return fmt.Sprintf("generation %d waits", c.Generation)
	}
	return "accepted"
}

// unread says what could not be read.
func (p *page) unread(all []view.Unread) {
	for _, u := range all {
		p.line(cell{u.Sentence(), middle})
	}
}
