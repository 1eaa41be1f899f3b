package plugin

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

func TestStatusOfEachSituation(t *testing.T) {
	for _, s := range situations.All() {
		t.Run(s.Name, func(t *testing.T) {
			var out bytes.Buffer
			p := newPage(&out, situations.Now)
			p.status(view.Of(s.Objects, situations.Now))
			if p.err != nil {
				t.Fatal(p.err)
			}
			golden.File(t, "testdata/status/"+s.Name+".txt", out.String())
		})
	}
}

// fleet is every situation in a namespace of its own.
func fleet() (all []view.Cluster) {
	for _, s := range situations.All() {
		s.Objects.Cluster.Namespace = s.Name
		all = append(all, view.Of(s.Objects, situations.Now))
	}
	view.Sort(all)
	return all
}

func TestTheFleetIsPrintedWorstFirst(t *testing.T) {
	for _, format := range []string{formatTable, formatWide} {
		var out bytes.Buffer
		p := newPage(&out, situations.Now)
		p.fleet(fleet(), fleetFormat{output: format, all: true})
		golden.File(t, "testdata/fleet-"+format+".txt", out.String())
	}
}

func TestColorsDoNotMoveColumns(t *testing.T) {
	var colored, plainText bytes.Buffer
	p := newPage(&colored, situations.Now)
	p.color = true
	p.fleet(fleet(), fleetFormat{output: formatWide, all: true})
	newPage(&plainText, situations.Now).fleet(fleet(), fleetFormat{output: formatWide, all: true})
	text := colored.String()
	if !strings.Contains(text, string(bad)) {
		t.Error("a cluster that is not well has no color")
	}
	for _, sequence := range []string{string(good), string(bad), string(middle), string(strong), reset} {
		text = strings.ReplaceAll(text, sequence, "")
	}
	if text != plainText.String() {
		t.Errorf("without its colors the table is\n%s\nwant\n%s", text, plainText.String())
	}
}

func TestTextsOfOthersDoNotControlTheTerminal(t *testing.T) {
	var out bytes.Buffer
	newPage(&out, situations.Now).log(parseLine(`2026-11-24T02:59:01Z {"level":"info","msg":"\u001b[2Jgone","key":"\u009b\u0007"}`,
		logSource{"demo-bqdq7", "etcd"}))
	if got := out.String(); strings.ContainsAny(got, "\x1b\a\u009b") || !strings.Contains(got, "[2Jgone") {
		t.Errorf("it prints %q", got)
	}
}

// shown has the page below docs that shows what a command prints, by the name of the golden file.
var shown = map[string]string{
	"check":                           "how-to/install/check.md",
	"fleet-table":                     "how-to/run/inspect-with-plugin.md",
	"status/serving":                  "how-to/run/inspect-with-plugin.md",
	"status/quorum-lost-with-a-plan":  "how-to/run/inspect-with-plugin.md",
	"why/member-down":                 "how-to/run/inspect-with-plugin.md",
	"logs":                            "how-to/run/inspect-with-plugin.md",
	"recover/quorum-lost-with-a-plan": "how-to/run/inspect-with-plugin.md",
	"upgrade/serving":                 "how-to/run/upgrade-etcd.md",
	"replace":                         "how-to/run/replace-member.md",
	"move-leader/moved":               "how-to/run/move-leader.md",
	"hands-off":                       "how-to/run/hands-off.md",
	"backups":                         "how-to/back-up/find-a-state.md",
	"restore/serving":                 "how-to/back-up/find-a-state.md",
	"connect/tls":                     "how-to/secure/connect-clients.md",
	"connect/forward":                 "how-to/secure/connect-clients.md",
}

func TestThePageShowsWhatIsPrinted(t *testing.T) {
	for name, page := range shown {
		printed, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(textOf(t, page), "\n"+string(printed)+"```\n") {
			t.Errorf("%s does not show %s as it is:\n%s", page, name, printed)
		}
	}
	states := textOf(t, "reference/plugin-states.md")
	for _, state := range view.States {
		if !strings.Contains(states, "`"+string(state)+"`") {
			t.Errorf("the page of the states does not explain %s", state)
		}
	}
}

// textOf is the text of a page below docs.
func textOf(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A table with an empty cell does not say whether a fact is missing or is nothing.
func TestNoCellOfAMemberIsEmpty(t *testing.T) {
	o := situation(t, "slow-disk")
	for i := range o.Leases {
		o.Leases[i].Annotations = nil
	}
	o.Pods, o.Nodes, o.Cluster.Status.Members = nil, nil, nil
	var out strings.Builder
	newPage(&out, situations.Now).members(view.Of(o, situations.Now))
	lines := strings.Split(out.String(), "\n")
	for _, line := range lines[1:4] {
		cells := cellsOf(line)
		if len(cells) != len(cellsOf(lines[0])) {
			t.Errorf("%d cells below %d titles: %q", len(cells), len(cellsOf(lines[0])), line)
		}
		for _, title := range []string{"RAFT LAG", "REVISION", "FREE", "DISK", "NODE", "ZONE", "ETCD", "AGENT"} {
			if i := slices.Index(cellsOf(lines[0]), title); i < 0 || i < len(cells) && cells[i] != unknown {
				t.Errorf("%s is not unknown in %q", title, line)
			}
		}
	}
}

// cellsOf are the cells of a line of a table: three spaces or more separate them.
func cellsOf(line string) (cells []string) {
	for cell := range strings.SplitSeq(line, "   ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			cells = append(cells, cell)
		}
	}
	return cells
}
