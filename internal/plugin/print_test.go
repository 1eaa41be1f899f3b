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

func TestTheFleetIsPrintedWorstFirst(t *testing.T) {
	for _, format := range []string{formatTable, formatWide} {
		var out bytes.Buffer
		p := newPage(&out, situations.Now)
		p.fleet(situations.Views(), fleetFormat{output: format, all: true})
		golden.File(t, "testdata/fleet-"+format+".txt", out.String())
	}
}

func TestColorsDoNotMoveColumns(t *testing.T) {
	var colored, plainText bytes.Buffer
	p := newPage(&colored, situations.Now)
	p.color = true
	p.fleet(situations.Views(), fleetFormat{output: formatWide, all: true})
	newPage(&plainText, situations.Now).fleet(situations.Views(), fleetFormat{output: formatWide, all: true})
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

// The error of a store, or of a member, is in several conditions, and in what the member reports.
func TestStatusShowsALongTextOnce(t *testing.T) {
	const failure = "save revisions 7 to 9: put a/delta/… in bucket b: the store responded 403 AccessDenied (Access Denied)"
	const reason = "volume /var/lib/etcd: access /var/lib/etcd: permission denied (it is not writable by UID 65532)"
	unready := view.Member{Name: "demo-a", State: "NotReady", Message: reason}
	condition := func(kind, message string) view.Condition {
		return view.Condition{Type: kind, Status: "False", Reason: "R", Message: message}
	}
	for name, c := range map[string]struct {
		cluster view.Cluster
		says    []string
	}{
		"the headline has the error of the store": {view.Cluster{
			Message: "Changes are not saved: " + failure + ". Wait.", Backup: &view.Backup{Error: failure},
			Conditions: []view.Condition{condition("BackupReady", "Changes are not saved: "+failure+". Wait.")},
		}, []string{"✖ failing: see above\n", "   See above.\n"}},
		"another headline": {view.Cluster{
			Message: "No quorum serves.", Backup: &view.Backup{Error: failure},
			Conditions: []view.Condition{condition("BackupReady", "Changes are not saved: "+failure+". Wait.")},
		}, []string{"✖ failing: save", "Changes are not saved: see above. Wait."}},
		"the headline has the reason of a member": {view.Cluster{
			Message: "Member demo-a: " + reason + ".", Members: []view.Member{unready},
			Conditions: []view.Condition{condition("AllMembersReady", "2 of 3 members ready. Member demo-a: "+reason+"."),
				condition("Degraded", "Member demo-a: "+reason+"; member demo-b: its node is lost.")},
		}, []string{"demo-a: See above.\n", "2 of 3 members ready. See above.\n", "See above; member demo-b: its node is lost."}},
	} {
		var out strings.Builder
		newPage(&out, situations.Now).status(c.cluster)
		text := out.String()
		if n := strings.Count(strings.ToLower(text), failure) + strings.Count(strings.ToLower(text), strings.ToLower(reason)); n > 1 {
			t.Errorf("%s: it is there %d times:\n%s", name, n, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing:\n%s", name, want, text)
			}
		}
	}
}

// why has them in conditions, in members and in Events. Its data is complete.
func TestWhyShowsALongTextOnce(t *testing.T) {
	const reason = "volume /var/lib/etcd: access /var/lib/etcd: permission denied (it is not writable by UID 65532)"
	c := view.Cluster{
		Members: []view.Member{{Name: "demo-a", State: "NotReady", Message: reason}, {Name: "demo-b", State: "Ready", Leaving: "It leaves " + reason}},
		Conditions: []view.Condition{{Type: "AllMembersReady", Message: "2 of 3 members ready. Member demo-a: " + reason + "."},
			{Type: "Degraded", Message: "Member demo-a: " + reason + "."}},
		Events: []view.Event{{Reason: "MemberCannotStart", Message: "Member demo-a: " + reason + "."}},
	}
	var out strings.Builder
	newPage(&out, situations.Now).why(c)
	for text, times := range map[string]int{reason: 1, "\n  See above.\n": 2, "MemberCannotStart: See above.\n": 1} {
		if n := strings.Count(out.String(), text); n != times {
			t.Errorf("%q is there %d times, want %d:\n%s", text, n, times, &out)
		}
	}
	out.Reset()
	if err := printData(&out, explanationOf(c), formatYAML); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "UID 65532"); n != 4 {
		t.Errorf("the data has it %d times, want 4:\n%s", n, &out)
	}
}

// Two members with the same reason have a line each, and a short text is no burden.
func TestStatusRepeatsWhatIsShort(t *testing.T) {
	reason := "no quorum responds, and this member has no data that it can resume: timeout"
	var out strings.Builder
	newPage(&out, situations.Now).status(view.Cluster{
		Message: "Member demo-c: it is down.", Members: []view.Member{{Name: "demo-a", Message: reason}, {Name: "demo-b", Message: reason}},
		Conditions: []view.Condition{{Type: "Degraded", Message: "Member demo-c: it is down."}, {Type: "AllMembersReady", Message: "Member demo-b: " + reason + "."}},
	})
	for text, times := range map[string]int{reason: 2, "Member demo-c: it is down.": 2, "Member demo-b: see above.": 1} {
		if n := strings.Count(out.String(), text); n != times {
			t.Errorf("%q is there %d times, want %d:\n%s", text, n, times, &out)
		}
	}
}
