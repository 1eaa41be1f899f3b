package plugin

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/internal/view"
)

func (o *options) whyCommand() *cobra.Command {
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "why CLUSTER",
		Short: "Explain the state of an EtcdCluster",
		Long: "Explain the state of an EtcdCluster by the rule that decides it, and by each condition that is not as it should be.\n" +
			"Then show the members that are not ready, the last decision of their agents, and the last Events.",
		Example: "  kubectl druid why demo\n  kubectl druid why demo --output json",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		c, err := o.view(cmd, k, args[0])
		if err != nil {
			return err
		}
		return o.printAs(cmd, k, output, explanationOf(c), func(p *page) { p.why(c) })
	})
	bindOutput(command, &output, dataFormats...)
	return command
}

// why prints what is behind the state.
func (p *page) why(c view.Cluster) {
	p.line(cell{c.Namespace + "/" + c.Name, strong}, cell{text: "  "}, cell{c.Health.Mark() + " " + string(c.State), tones[c.Health.Tone()]})
	p.line(cell{text: "Rule " + c.Rule + ": " + c.Why})
	p.line(cell{text: view.RuleDocs(c.Rule)})
	p.line()
	p.abnormal(c)
	unwell := slices.DeleteFunc(slices.Clone(c.Members), view.Member.Fine)
	for i, notes := range p.shown.Notes(unwell) {
		p.memberWhy(unwell[i], notes)
	}
	for _, e := range c.Events {
		p.line(cell{text: fmt.Sprintf("%-10s%-9s%s: %s", p.ago(&e.At), e.Type, e.Reason, p.shown.Once(e.Message))})
	}
	p.unread(c.Unread)
}

// abnormal prints the conditions that are not as they should be.
func (p *page) abnormal(c view.Cluster) {
	found := false
	for _, condition := range c.Conditions {
		if condition.Wished {
			continue
		}
		found = true
		p.line(cell{condition.Type, strong}, cell{text: " is "}, cell{condition.Status, middle},
			cell{text: fmt.Sprintf(" because of %s, for %s", condition.Reason, p.age(condition.Since))})
		p.line(cell{text: "  " + p.shown.Once(sentence(condition.Message))})
		p.line(cell{text: "  " + condition.Docs})
		p.line()
	}
	switch {
	case len(c.Conditions) == 0:
		p.line(cell{text: "The status has no condition yet."})
		p.line()
	case !found:
		p.line(cell{text: "All conditions are as they should be."})
		p.line()
	default: // they are printed
	}
}

// memberWhy prints a member that is not ready, with its notes.
func (p *page) memberWhy(m view.Member, notes []string) {
	p.line(cell{"Member " + m.Name, strong}, cell{text: " is "}, said(m.StateWord()))
	for _, note := range notes {
		p.line(cell{text: "  " + sentence(note)})
	}
	if disk := m.DiskWord(); disk.Tone != view.Plain {
		p.line(cell{text: "  Its disk is "}, said(disk))
	}
	if m.Rule != "" {
		p.line(cell{text: fmt.Sprintf("  The last decision of its agent about the start of etcd is the rule %s: %s", m.Rule, view.RuleDocs(m.Rule))})
	}
	p.line()
}
