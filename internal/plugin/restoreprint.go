package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// restoring prints what a restore in place would read and undo.
func (p *page) restoring(r restoring, c v1alpha1.EtcdCluster) {
	p.line(cell{r.Namespace + "/" + r.Cluster, strong}, cell{text: "  Plan of a restore in place. Nothing was changed."})
	p.line()
	p.restoreSource(r)
	undone := cell{"nothing that is known", good}
	switch {
	case r.lineage == "":
		undone = cell{unknown + ": the present lineage of the cluster is not known", middle}
	case string(r.Plan.Full.Lineage) != r.lineage:
		undone = cell{"all that the cluster has now and lineage " + string(r.Plan.Full.Lineage) + " does not have", bad}
	case r.Undone == nil:
		undone = cell{unknown + ": no member reports its revision", middle}
	case *r.Undone > 0:
		undone = cell{"at least " + number(r.Undone) + " revisions: those after " + number(&r.Plan.Reach), bad}
	}
	p.field("Undone", undone)
	p.field("Clients", cell{text: "are cut off during the restore. Then they must list and watch again"})
	for _, note := range r.Plan.Notes {
		p.field("Note", cell{sentence(note), middle})
	}
	for _, blocker := range r.Blockers {
		p.field("Blocked", cell{sentence(blocker), bad})
	}
	p.line()
	p.line(cell{text: "The request, in the EtcdCluster:"})
	p.print(fragment(r.Request))
	p.line()
	p.line(cell{text: "Write it, and see the plan of druid. druid changes nothing before you approve that plan:"})
	p.line(cell{text: "  " + p.invoke(c, "restore") + optionsOf(r.Request) + " --apply"})
	p.line(cell{text: "Leave this cluster as it is, and start another one with that state:"})
	p.line(cell{text: "  " + p.invoke(c, "restore") + optionsOf(r.Request) + " --to-new NAME"})
	p.line(cell{text: inPlacePage})
}

// restoreSource prints from what the data comes.
func (p *page) restoreSource(r restoring) {
	p.field("Target", cell{text: r.Target})
	at := ""
	if r.Plan.Until.IsZero() && r.Plan.Revision == 0 {
		at = ", the newest one"
	}
	p.field("Source", cell{text: fmt.Sprintf("lineage %s, up to revision %s%s", r.Plan.Full.Lineage, number(&r.Plan.Reach), at)})
	p.field("Read", cell{text: reads(r)})
	p.field("", cell{text: r.Plan.Full.Key})
	p.field("Read by", cell{text: "the agent of member " + r.Member})
}

// reads says how much is read from the store.
func reads(r restoring) string {
	return fmt.Sprintf("%s: the full backup of %s, and %s", size(&r.Bytes), stamp(r.Plan.Full.At), counted(len(r.Plan.Deltas), "delta backup"))
}

// optionsOf are the flags that request the same state.
func optionsOf(request v1alpha1.RestoreInPlace) string {
	text := " --latest"
	switch {
	case request.Revision > 0:
		text = fmt.Sprintf(" --revision %d", request.Revision)
	case request.Time != nil:
		text = " --time " + request.Time.UTC().Format(time.RFC3339)
	}
	if request.Lineage != "" {
		text += " --lineage " + request.Lineage
	}
	return text
}

// fragment is the part of the EtcdCluster that requests the restore.
func fragment(request v1alpha1.RestoreInPlace) string {
	raw, err := yaml.Marshal(map[string]any{"spec": map[string]any{"recovery": map[string]any{"restore": request}}})
	if err != nil {
		return err.Error() + "\n"
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n")
	return "  " + strings.Join(lines, "  ") + "\n"
}

// commented are lines of a comment in YAML.
func commented(lines ...string) string {
	var b strings.Builder
	for _, line := range slices.DeleteFunc(lines, func(line string) bool { return line == "" }) {
		b.WriteString("# " + strings.Map(oneLine, line) + "\n")
	}
	return b.String()
}

// oneLine keeps a text of others from ending the comment.
func oneLine(r rune) rune {
	if r == '\n' || r == '\r' {
		return ' '
	}
	return printable(r)
}
