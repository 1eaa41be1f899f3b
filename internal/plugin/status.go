package plugin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// nearExpiry is how long before its end a certificate is shown as a problem. druid renews its own long before.
const nearExpiry = 14 * 24 * time.Hour

func (o *options) statusCommand() *cobra.Command {
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "status CLUSTER",
		Short: "Show the state of an EtcdCluster, and what to do now",
		Long: "Show the state of an EtcdCluster on one page: members, backups, certificates, problems, and what to do now.\n" +
			"The exit code is 0 if the cluster is well, 2 if it is not well, and 1 if its state is unknown, or after an error.",
		Example: "  kubectl druid status demo\n  kubectl druid status demo --output yaml",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if err := checkFormat(output, formatTable, formatJSON, formatYAML); err != nil {
			return err
		}
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
	bindOutput(command, &output, formatTable, formatJSON, formatYAML)
	return command
}

// view reads and describes one cluster.
func (o *options) view(cmd *cobra.Command, k *kube, name string) (view.Cluster, error) {
	objects, err := k.objects(cmd.Context(), name)
	if err != nil {
		return view.Cluster{}, err
	}
	return view.Of(objects, o.now()), nil
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
	text := fmt.Sprintf("%s %s", mark(c.Health), c.State)
	if c.Since != nil {
		text += " for " + p.age(*c.Since)
	}
	p.line(cell{c.Namespace + "/" + c.Name, strong}, cell{text: "  "}, cell{text, toneOf(c.Health)},
		cell{text: fmt.Sprintf("  %s members ready  etcd %s  age %s", readyOf(c), or(c.Version), p.age(c.Created))})
	p.line(cell{text: sentence(cmp.Or(c.Message, c.Why))})
	if c.Deleted != nil {
		p.line(cell{"Its deletion was requested " + p.ago(c.Deleted) + ".", middle})
	}
	p.line()
}

// sentence begins with a capital letter, and ends with a period.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	if first, rest, _ := strings.Cut(text, " "); strings.ToLower(first) == first && !strings.ContainsAny(first, "-.:/0123456789") && first != "etcd" && first != "druid" {
		text = strings.TrimSpace(strings.ToUpper(first[:1]) + first[1:] + " " + rest)
	}
	if strings.HasSuffix(text, "?") {
		return text
	}
	return strings.TrimSuffix(text, ".") + "."
}

func (p *page) facts(c view.Cluster) {
	p.field("Leader", cell{text: leader(c)})
	p.field("Clients", cell{text: or(strings.Join(c.Endpoints, ", "))})
	p.field("Spec", p.spec(c))
	p.backups(c.Backup)
	for _, certificate := range c.Certificates {
		p.certificate(certificate)
	}
	p.line()
}

func (p *page) spec(c view.Cluster) cell {
	if c.Accepted == c.Generation {
		return cell{text: fmt.Sprintf("generation %d, accepted", c.Generation)}
	}
	return cell{fmt.Sprintf("generation %d waits, druid accepted generation %d", c.Generation, c.Accepted), middle}
}

func (p *page) backups(b *view.Backup) {
	if b == nil {
		p.field("Backups", cell{"none: spec.backup is not set", middle})
		return
	}
	title := "Backups"
	if b.Error != "" {
		p.field(title, cell{"✖ failing: " + b.Error, bad})
		title = ""
	}
	if b.Saved == nil {
		p.field(title, cell{text: unknown + ": no Lease reports a backup"})
		return
	}
	p.field(title, cell{text: "saved up to revision " + number(b.Saved) + ", " + p.ago(b.SavedAt) + p.unsaved(b)})
	p.field("", cell{text: "last full backup " + p.ago(b.FullAt) + ", revision " + number(b.FullRevision) + ", " + size(b.FullSize)})
	switch b.Verdict {
	case string(leases.VerdictVerified):
		p.field("", cell{text: "verified " + p.ago(b.VerifiedAt) + " up to revision " + number(b.VerifiedRevision)})
	case string(leases.VerdictBroken):
		p.field("", cell{"✖ broken, found " + p.ago(b.VerifiedAt) + ": " + b.Trouble, bad})
	case view.NeverVerified:
		p.field("", cell{text: "never verified"})
	default:
		p.field("", cell{text: "verification " + unknown})
	}
}

func (p *page) unsaved(b *view.Backup) string {
	if b.Unsaved == 0 {
		return ""
	}
	return fmt.Sprintf("; the oldest write that is not saved was %s old then", duration.HumanDuration(time.Duration(b.Unsaved*float64(time.Second))))
}

func (p *page) certificate(c view.Certificate) {
	of := plain
	for _, at := range []*time.Time{c.NotAfter, c.AuthorityNotAfter} {
		if at != nil && at.Sub(p.now) < nearExpiry {
			of = bad
		}
	}
	text := fmt.Sprintf("%s: TLS %s, certificates until %s", c.Plane, or(c.Stage), p.until(c.NotAfter))
	if c.AuthorityNotAfter != nil {
		text += ", authority until " + p.until(c.AuthorityNotAfter)
	}
	p.field("Certificates", cell{text, of})
	if c.Message != "" {
		p.field("", cell{text: sentence(c.Message)})
	}
}

// leader is the member that leads, as its own agent reports.
func leader(c view.Cluster) string {
	switch {
	case c.Leader != "":
		return c.Leader
	case c.State == view.StateQuorumLost, c.State == view.StatePaused, c.State == view.StateForming:
		return "none"
	default:
		return unknown
	}
}

// role is what the agent last reported.
func role(m view.Member) string {
	switch {
	case m.Role == "":
		return unknown
	case m.Renewed != nil && !*m.Renewed:
		return "was " + m.Role
	default:
		return m.Role
	}
}

// renewed says when the agent last renewed the Lease.
func (p *page) renewed(m view.Member) cell {
	switch {
	case m.Renewed == nil:
		return cell{text: unknown}
	case m.RenewTime == nil:
		return cell{"never", bad}
	case !*m.Renewed:
		return cell{p.ago(m.RenewTime), bad}
	default:
		return cell{text: p.ago(m.RenewTime)}
	}
}

func (p *page) members(c view.Cluster) {
	if len(c.Members) == 0 {
		return
	}
	rows := make([][]cell, 0, len(c.Members))
	for _, m := range c.Members {
		rows = append(rows, []cell{
			{text: m.Name}, {text: role(m)}, stateOf(m), p.renewed(m), {text: number(m.RaftLag)}, {text: number(m.Revision)},
			{text: size(m.DBSize) + " / " + size(&c.Quota)}, {text: size(m.VolumeFree)}, nodeOf(m), {text: or(m.Zone)}, {text: or(m.Version)}, {text: or(m.Agent)},
		})
	}
	p.table([]string{"MEMBER", "ROLE", "STATE", "RENEWED", "RAFT LAG", "REVISION", "DB / QUOTA", "FREE", "NODE", "ZONE", "ETCD", "AGENT"}, rows)
	for _, m := range c.Members {
		for _, note := range notes(m) {
			p.line(cell{m.Name + ": " + note, middle})
		}
	}
	p.line()
}

// stateOf is the state that druid wrote, with its reason if the member is not ready.
func stateOf(m view.Member) cell {
	text, of := or(m.State), middle
	switch m.State {
	case "Ready":
		of = plain
	case "NotReady":
		of = bad
	default: // unknown or paused
	}
	if m.Reason != "" && m.State != "Ready" && m.Reason != m.State {
		text += " (" + m.Reason + ")"
	}
	return cell{text, of}
}

func nodeOf(m view.Member) cell {
	if m.NodeReady != "" && m.NodeReady != string(metav1.ConditionTrue) {
		return cell{m.Node + " (not ready)", bad}
	}
	return cell{text: or(m.Node)}
}

// notes are what a member reports that has no column.
func notes(m view.Member) (all []string) {
	for _, note := range []struct{ title, text string }{
		{"", m.Message}, {"etcd does not start: ", m.Waits}, {"alarm: ", m.Alarm}, {"etcd refuses its agent: ", m.Refused}, {"it leaves: ", m.Leaving},
	} {
		if note.text != "" && !(note.title != "" && note.text == m.Message) {
			all = append(all, note.title+note.text)
		}
	}
	return all
}

// conditions prints those that are not as they should be.
func (p *page) conditions(c view.Cluster) {
	var rows [][]cell
	for _, condition := range c.Conditions {
		if !condition.Wished {
			rows = append(rows, []cell{{condition.Type, middle}, {text: condition.Status}, {text: condition.Reason}, {text: p.age(condition.Since)}, {text: sentence(condition.Message)}})
		}
	}
	if len(rows) == 0 {
		return
	}
	p.table([]string{"CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"}, rows)
	p.line()
}

func (p *page) next(c view.Cluster) {
	switch {
	case len(c.Next) == 0 && c.Health == view.Well:
		p.line(cell{"Nothing to do.", good})
		return
	case len(c.Next) == 0:
		p.line(cell{"Wait: " + c.Why + ".", middle})
		return
	}
	p.line(cell{"What now", strong})
	for i, step := range c.Next {
		p.line(cell{text: fmt.Sprintf("  %d. %s", i+1, sentence(step.Do))})
		if step.Command != "" {
			p.line(cell{text: "     " + p.command(step.Command)})
		}
		if step.Docs != "" {
			p.line(cell{text: "     " + step.Docs})
		}
	}
}
