package reference

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/golden"
)

// elsewhere are functions whose texts are in no message, and why.
var elsewhere = map[string]string{
	"NewCommand":      "the example of a command, on the page about commands",
	"budget":          "an annotation, on the page about labels and annotations",
	"reportedNothing": "the key of a fact",
	"observeRecovery": "the key of a fact",
	"recoveryStatus":  "status.recovery, on the page about a lost quorum",
	"describe":        "status.recovery, on the page about a lost quorum",
	"unacknowledged":  "status.recovery, on the page about a lost quorum",
	"approval":        "status.recovery, on the page about a lost quorum",
	"describeOrder":   inPlace,
	"refusal":         inPlace,
	"failedSave":      inPlace,
	"interruption":    inPlace,
	"observeMembers":  inPlace,
	"changing":        inPlace,
	"restored":        inPlace,
	"promise":         inPlace,
	"observeRestore":  inPlace,
}

const inPlace = "status.recovery, on the page about a restore in place"

// unread are packages of the agent whose texts are not in the status of an object.
var unread = map[string]string{
	"agent/cli":              "the page of the commands",
	"agent/cli/backup":       "the page of the commands",
	"agent/launch":           "the log of the etcd container",
	"agent/launch/supervise": "the log of the etcd container",
}

const messagesPreface = `# Messages

<!-- Written by go test ./test/reference -update: do not edit. -->

The messages of conditions, members and EtcdSnapshots, and the parts that they are made of. A name in angle brackets stands for a value or
for another part. A message begins with a capital letter and ends with a full stop.

## Messages of an EtcdCluster

Each title names the reasons whose conditions show the messages. A name of a condition stands for all its reasons. A message that several
reasons show is in the section of all of them.
`

const snapshotPreface = `
## Messages of an EtcdSnapshot

`

const agentPreface = `
## Messages of the agents

An agent writes what it waits for to the member Lease, with the rule that decided. druid shows it as the message of the member, and
with the reason ` + "`MemberCannotStart`" + ` if it lasts. Errors of backups are the message of ` + "`BackupReady`, `BackupVerified`" + ` or the
EtcdSnapshot. All others are in the log of the agent.
`

const versionsPreface = `
## Releases of etcd

druid shows what it knows about releases with the reasons ` + "`UpgradeBlocked` and `Reconciled`" + `.
`

// TestMessages writes the page of the messages. Every text in the code of druid must reach a message.
func TestMessages(t *testing.T) {
	values := map[string]string{}
	for _, c := range slices.Concat(constants(t, "Reason"), constants(t, "Condition")) {
		values[c.name] = c.value
	}
	f := newFlow(sources(t, "druid"), values)
	f.roots()
	clusters, snapshots := map[string][]string{}, [][]string{}
	for e, found := range f.texts {
		reasons := f.reasonsOf(e)
		switch {
		case slices.Contains(reasons, ofSnapshots):
			snapshots = append(snapshots, []string{messageCell(found.words)})
		case len(reasons) > 0:
			clusters[messageCell(found.words)] = append(clusters[messageCell(found.words)], reasons...)
		case found.isError || found.in == "" || elsewhere[found.in] != "":
		default:
			t.Errorf("%s: %q reaches no message: if it is shown, teach flow_test.go how; if not, add %s to elsewhere", found.at, found.words, found.in)
		}
	}
	if len(clusters) == 0 || len(snapshots) == 0 {
		t.Fatalf("found %d messages of EtcdClusters and %d of EtcdSnapshots", len(clusters), len(snapshots))
	}
	var page strings.Builder
	page.WriteString(messagesPreface)
	byReasons(&page, clusters)
	page.WriteString(snapshotPreface + golden.Table([]string{"Message"}, ordered(snapshots)))
	page.WriteString(agentPreface)
	byPackage(t, &page, values, "agent", "membership")
	page.WriteString(versionsPreface)
	byPackage(t, &page, values, "internal/versions")
	golden.File(t, pages+"messages.md", page.String())
}

// maxWords is the length of the longest sentence of a page, as in docs/.vale/styles/Druid/SentenceLength.yml.
const maxWords = 25

// sentenceEnd matches where a sentence of a cell ends.
var sentenceEnd = regexp.MustCompile(`[.!?:;] | \| `)

// TestMessagesAreShort reads the cells of the page, which vale does not count.
func TestMessagesAreShort(t *testing.T) {
	cells := 0
	for line := range strings.Lines(read(t, pages+"messages.md")) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, sentence := range sentenceEnd.Split(line, -1) {
			cells++
			if words := len(strings.Fields(strings.ReplaceAll(sentence, "|", ""))); words > maxWords {
				t.Errorf("%d words, more than %d: write one idea per sentence: %s", words, maxWords, sentence)
			}
		}
	}
	if cells == 0 {
		t.Error("the page has no cell")
	}
}

// byReasons renders a section for each set of reasons that have messages in common. Reasons of each message can stand twice.
func byReasons(page *strings.Builder, reasonsOf map[string][]string) {
	sections := map[string][][]string{}
	for words, reasons := range reasonsOf {
		slices.Sort(reasons)
		of := strings.Join(slices.Compact(reasons), " ")
		sections[of] = append(sections[of], []string{words})
	}
	for _, of := range slices.Sorted(maps.Keys(sections)) {
		reasons := strings.Fields(of)
		if len(reasons) <= titleReasons {
			fmt.Fprintf(page, "\n### `%s`\n\n", strings.Join(reasons, "`, `"))
		} else {
			fmt.Fprintf(page, "\n### `%s` and %d more\n\nThe reasons are `%s`.\n\n", reasons[0], len(reasons)-1, strings.Join(reasons, "`, `"))
		}
		page.WriteString(golden.Table([]string{"Message"}, ordered(sections[of])))
	}
}

// titleReasons is the number of reasons that a title names.
const titleReasons = 3

// byPackage renders the texts of each package: the reasons of its rules, and details and errors.
func byPackage(t *testing.T, page *strings.Builder, values map[string]string, dirs ...string) {
	t.Helper()
	for _, s := range sources(t, dirs...) {
		if unread[s.dir] != "" {
			continue
		}
		var rules, details [][]string
		for _, file := range s.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.CompositeLit); ok {
					fields := s.fields(literal)
					if name := cmp.Or(fields["name"], fields["rule"]); name != nil && fields["why"] != nil && isText(fields["why"]) {
						rules = append(rules, []string{code(ruleName(s, name)), messageCell(message(fields["why"]))})
					}
				}
				return true
			})
		}
		for _, found := range newFlow([]*source{s}, values).texts {
			details = append(details, []string{messageCell(found.words)})
		}
		if len(rules)+len(details) > 0 {
			fmt.Fprintf(page, "\n### Package `%s`\n", s.dir)
		}
		if len(rules) > 0 {
			page.WriteString("\n" + golden.Table([]string{"Rule", "Message"}, ordered(rules)))
		}
		if len(details) > 0 {
			page.WriteString("\n" + golden.Table([]string{"Detail or error"}, ordered(details)))
		}
	}
}

// ruleName is the name of a row of a table: a literal, or a constant.
func ruleName(s *source, e ast.Expr) string {
	if value := s.info.Types[e].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value)
	}
	return unquote(e)
}

// ordered sorts rows, and drops those that occur again.
func ordered(rows [][]string) [][]string {
	slices.SortFunc(rows, slices.Compare)
	return slices.CompactFunc(rows, slices.Equal)
}
