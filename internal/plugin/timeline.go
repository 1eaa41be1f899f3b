package plugin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
)

// restorePage explains how backups are restored.
const restorePage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/back-up/restore.md"

// branch is a lineage, and how many ancestors of it are listed.
type branch struct {
	catalog.Summary
	depth int
}

// branches orders lineages so that each stands below the one from which it forked.
func branches(all []catalog.Summary) (ordered []branch) {
	known := map[catalog.Lineage]bool{}
	for _, l := range all {
		known[l.Lineage] = true
	}
	done := map[catalog.Lineage]bool{}
	var add func(l catalog.Summary, depth int)
	add = func(l catalog.Summary, depth int) {
		if done[l.Lineage] {
			return
		}
		done[l.Lineage] = true
		ordered = append(ordered, branch{l, depth})
		for _, child := range all {
			if child.Parent() == l.Lineage {
				add(child, depth+1)
			}
		}
	}
	for _, l := range all {
		if !known[l.Parent()] {
			add(l, 0)
		}
	}
	for _, l := range all { // a parent that is its own descendant is a damaged record
		add(l, 0)
	}
	return ordered
}

// timeline prints what can be restored.
func (p *page) timeline(b backups, wide bool) {
	p.line(cell{b.Namespace + "/" + b.Cluster, strong}, cell{text: "  " + totals(b.Lineages)})
	p.field("Store", cell{text: b.Store + ", prefix " + b.Prefix})
	p.field("Read by", cell{text: "the agent of member " + b.Member})
	p.newest(b.Lineages)
	p.line()
	header := []string{"LINEAGE", "BEGAN", "FORK AT", "REVISIONS", "FROM", "UNTIL", "FULLS", "DELTAS", "SIZE"}
	if wide {
		header = append(header, "FINALS", "PARENT", "REASON", "ETCD")
	}
	var rows [][]cell
	for _, branch := range branches(b.Lineages) {
		rows = append(rows, branch.rows(wide)...)
	}
	p.table(header, rows)
	if notes := backupNotes(b); len(notes) > 0 {
		p.line()
		for _, note := range notes {
			p.line(cell{note, middle})
		}
	}
	p.line()
	p.line(cell{text: "See what a restore would read and undo. This changes nothing, and --time, --revision and --lineage name another state:"})
	p.line(cell{text: "  " + p.command(fmt.Sprintf("kubectl druid -n %s restore %s --latest", b.Namespace, b.Cluster))})
	p.line(cell{text: "Restore into a new cluster: " + restorePage})
	p.line(cell{text: "Restore in this cluster: " + inPlacePage})
}

func totals(all []catalog.Summary) string {
	fulls, deltas, bytes := 0, 0, int64(0)
	for _, l := range all {
		fulls, deltas, bytes = fulls+l.Fulls, deltas+l.Deltas, bytes+l.Size
	}
	return fmt.Sprintf("%s, %s and %s, %s", counted(len(all), "lineage"), counted(fulls, "full backup"), counted(deltas, "delta backup"), size(&bytes))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// newest prints the newest state that can be restored. The agents sort the lineages by their epochs.
func (p *page) newest(all []catalog.Summary) {
	for _, l := range slices.Backward(all) {
		if n := len(l.Restorable); n > 0 {
			last := l.Restorable[n-1]
			p.field("Newest", cell{text: fmt.Sprintf("revision %s of lineage %s, saved up to %s, %s", number(&last.To), l.Lineage, stamp(last.Until),
				p.ago(&last.Until))})
			return
		}
	}
	p.field("Newest", cell{"nothing can be restored", bad})
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return view.Stamp(t)
}

// rows are those of one lineage: one for each range without a gap.
func (b branch) rows(wide bool) [][]cell {
	name := string(b.Lineage)
	if b.depth > 0 {
		name = strings.Repeat("  ", b.depth-1) + "└ " + name
	}
	began, fork, parent, reason, version := unknown, unknown, unknown, unknown, unknown
	if f := b.Formation; f != nil {
		began, fork, parent, reason, version = stamp(f.Created), "none", "none", or(f.Reason), or(f.EtcdVersion)
		if f.Parent != "" {
			fork, parent = number(&f.Fork), string(f.Parent)
		}
	}
	bytes := b.Size
	first := []cell{{text: name}, {text: began}, {text: fork}, {"nothing", bad}, {}, {}, {text: strconv.Itoa(b.Fulls)},
		{text: strconv.Itoa(b.Deltas)}, {text: size(&bytes)}}
	if wide {
		first = append(first, cell{text: strconv.Itoa(b.Finals)}, cell{text: parent}, cell{text: reason}, cell{text: version})
	}
	rows := [][]cell{first}
	for i, r := range b.Restorable {
		if i > 0 {
			rows = append(rows, make([]cell, len(first)))
		}
		copy(rows[i][3:], []cell{{text: number(&r.From) + " - " + number(&r.To)}, {text: stamp(r.Since)}, {text: stamp(r.Until)}})
	}
	return rows
}

// backupNotes are the exceptions.
func backupNotes(b backups) (notes []string) {
	known := map[catalog.Lineage]bool{}
	for _, l := range b.Lineages {
		known[l.Lineage] = true
	}
	ignored := slices.Clone(b.UnknownObjects)
	for i, l := range b.Lineages {
		ignored = append(ignored, l.UnknownObjects...)
		for _, gap := range l.Gaps {
			notes = append(notes, fmt.Sprintf("Gap in lineage %s: %s.", l.Lineage, gap))
		}
		if l.Formation == nil {
			notes = append(notes, fmt.Sprintf("The parent of lineage %s is unknown: %s.", l.Lineage, or(l.FormationProblem)))
		}
		if parent := l.Parent(); parent != "" && !known[parent] {
			notes = append(notes, fmt.Sprintf("Lineage %s forked from %s, which has no backups any more.", l.Lineage, parent))
		}
		if i > 0 && b.Lineages[i-1].Lineage.Epoch() == l.Lineage.Epoch() {
			notes = append(notes, fmt.Sprintf("Lineages %s and %s have the same epoch. To restore one of them, name one of its full backups.",
				b.Lineages[i-1].Lineage, l.Lineage))
		}
		if l.Finals > 0 {
			notes = append(notes, fmt.Sprintf("Retention never deletes %s of lineage %s.", counted(l.Finals, "full backup"), l.Lineage))
		}
	}
	if n := len(ignored); n > 0 {
		notes = append(notes, fmt.Sprintf("The store has %s here, for example %s.", others(n), ignored[0]))
	}
	return notes
}

func others(n int) string {
	if n == 1 {
		return "1 object that is no backup"
	}
	return strconv.Itoa(n) + " objects that are no backups"
}
