package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/internal/view"
)

func (o *options) statusCommand() *cobra.Command {
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "status CLUSTER",
		Short: "Show the state of an EtcdCluster, and what to do now",
		Long: "Show the state of an EtcdCluster on one page: members, backups, certificates, problems, and what to do now.\n" +
			"The exit code is 0 if the cluster is well, and 2 if it is not well. It is 1 if its state is unknown, or after an error.",
		Example: "  kubectl druid status demo\n  kubectl druid status demo --output yaml",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		c, err := o.view(cmd, k, args[0])
		if err != nil {
			return err
		}
		if output == formatTable {
			p := o.page(cmd, k)
			p.status(c)
			err = p.err
		} else {
			err = printData(cmd.OutOrStdout(), c, output)
		}
		if err != nil {
			return err
		}
		return exitOf(c)
	})
	bindOutput(command, &output, dataFormats...)
	return command
}

// view reads and describes one cluster.
func (o *options) view(cmd *cobra.Command, k *kube, name string) (view.Cluster, error) {
	objects, err := k.objects(cmd.Context(), name)
	if err != nil {
		return view.Cluster{}, err
	}
	return k.describe(objects, o.now()), nil
}

// completeClusters completes the name of an EtcdCluster.
func (o *options) completeClusters(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	k, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	all, err := k.clusters(cmd.Context(), k.namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// status prints one page.
func (p *page) status(c view.Cluster) {
	p.headline(c)
	p.facts(c)
	p.members(c)
	p.conditions(c)
	if p.unread(c.Unread); len(c.Unread) > 0 {
		p.line()
	}
	p.next(c)
}

func (p *page) headline(c view.Cluster) {
	p.line(cell{c.Namespace + "/" + c.Name, strong}, cell{text: "  "}, said(c.StateWord(p.now)),
		cell{text: fmt.Sprintf("  %s members ready  etcd %s  age %s", c.ReadyWord(), or(c.Version), p.age(c.Created))})
	p.line(cell{text: p.shown.Once(c.Explanation())})
	if c.Deleted != nil {
		p.line(cell{"Its deletion was requested " + p.ago(c.Deleted) + ".", middle})
	}
	p.line()
}

func (p *page) facts(c view.Cluster) {
	p.field("Leader", cell{text: c.LeaderWord()})
	p.field("Clients", cell{text: or(strings.Join(c.Endpoints, ", "))})
	p.field("Spec", said(c.SpecWord()))
	title := "Backups"
	for _, line := range p.shown.BackupLines(c.Backup, p.now) {
		p.field(title, said(line))
		title = ""
	}
	for _, certificate := range c.Certificates {
		p.field("Certificates", said(certificate.Word(p.now)))
		if certificate.Message != "" {
			p.field("", cell{text: sentence(certificate.Message)})
		}
	}
	p.line()
}

func (p *page) members(c view.Cluster) {
	if len(c.Members) == 0 {
		return
	}
	rows := make([][]cell, 0, len(c.Members))
	for _, m := range c.Members {
		rows = append(rows, []cell{
			{text: m.Name}, {text: m.RoleWord()}, said(m.StateWord()), said(m.RenewedWord(p.now)), {text: number(m.RaftLag)}, {text: number(m.Revision)},
			{text: size(m.DBSize) + " / " + size(&c.Quota)}, {text: size(m.VolumeFree)}, said(m.DiskWord()), said(m.NodeWord()), {text: or(m.Zone)},
			{text: or(m.Version)}, {text: or(m.Agent)},
		})
	}
	p.table([]string{"MEMBER", "ROLE", "STATE", "RENEWED", "RAFT LAG", "REVISION", "DB / QUOTA", "FREE", "DISK", "NODE", "ZONE", "ETCD", "AGENT"}, rows)
	for i, notes := range p.shown.Notes(c.Members) {
		for _, note := range notes {
			p.line(cell{c.Members[i].Name + ": " + note, middle})
		}
	}
	p.line()
}

// conditions prints those that are not as they should be.
func (p *page) conditions(c view.Cluster) {
	var rows [][]cell
	for _, condition := range c.Conditions {
		if !condition.Wished {
			rows = append(rows, []cell{{condition.Type, middle}, {text: condition.Status}, {text: condition.Reason}, {text: p.age(condition.Since)},
				{text: p.shown.Once(sentence(condition.Message))}})
		}
	}
	if len(rows) == 0 {
		return
	}
	p.table([]string{"CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"}, rows)
	p.line()
}

func (p *page) next(c view.Cluster) {
	if len(c.Next) == 0 {
		p.line(said(c.NextWord()))
		return
	}
	p.line(cell{"What now", strong})
	for i, step := range c.Next {
		p.line(cell{text: fmt.Sprintf("  %d. %s", i+1, sentence(step.Do))})
		if step.Command != "" {
			p.line(cell{text: "     " + step.Command})
		}
		if step.Docs != "" {
			p.line(cell{text: "     " + step.Docs})
		}
	}
}
