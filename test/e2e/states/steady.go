package states

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Names are words of one run, such as the names of its members, and the words that replace them.
type Names map[string]string

// replace replaces the names, the longest first: one name can be the begin of another.
func (n Names) replace(text string) string {
	words := make([]string, 0, len(n))
	for word := range n {
		words = append(words, word)
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(words))
	for _, word := range words {
		pairs = append(pairs, word, n[word])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// racy is what differs with the order of two events, and what replaces it. When a quorum is lost, the agent of the leader reports the end of
// its watch, or it is no longer the leader before. The member that was kept in a pause resumed, and the others joined.
// A look at an EtcdSnapshot can miss a phase.
var racy = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?m)^(unknown|Pending|Running)(: .*)?\n`), ""},
	{regexp.MustCompile(`(?m)^(Backups +)✖ failing: watch etcd\b.*\n +`), "$1"},
	{regexp.MustCompile(`are not saved(: watch etcd\b|: see above|\. No agent reported an error).*?\. Until`), "are not saved: <reason>. Until"},
	{regexp.MustCompile(`the rule (?:(?:finish-)?join|resume[a-z-]*)(: \S+#start-)[a-z-]+`), "the rule <join or resume>$1<join or resume>"},
}

// volatile is what differs from run to run, and what replaces it, in this order.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\b\d{8}T\d{6}(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d UTC`), "<time>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), "<date>"},
	{regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`), "<address>"},
	// Which members an agent asked, and how each of them failed.
	{regexp.MustCompile(`((?i:no) quorum responds, and this member has no data that it can resume): ([^;]|; (dial|member list of) )*`), "$1: <errors>"},
	// The EtcdSnapshot before a change of version: its name has the version and the generation.
	{regexp.MustCompile(`-before(-\d+)+\b`), "-before-<version>"},
	// Followers change their version in the order of their generated names.
	{regexp.MustCompile(`replaces the Pod of <\w+>`), "replaces the Pod of <member>"},
	// The generated name of an EtcdSnapshot.
	{regexp.MustCompile(`\b(EtcdSnapshot \S+/|etcdsnapshot )[a-z0-9-]+-[a-z0-9]{5}\b`), "$1<snapshot>"},
	// The order of members is that of their generated names.
	{regexp.MustCompile(`(Its members are) [^.]*`), "$1 <members>"},
	// etcdctl measures.
	{regexp.MustCompile(`\btook = \S+`), "took = <age>"},
	// A request to a store.
	{regexp.MustCompile(`\brequest [0-9A-Z]{8,}\b`), "request <id>"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "<id>"},
	{regexp.MustCompile(`\b\d{8}-[0-9a-f]{8,16}\b`), "<lineage>"},
	// An ID of etcd, the hash of a plan, or a digest.
	{regexp.MustCompile(`\b[0-9a-f]{12,64}\b`), "<id>"},
	{regexp.MustCompile(`\bv?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]*[0-9A-Za-z])?`), "<version>"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ([KMGT]i)?B\b`), "<size>"},
	{regexp.MustCompile(`\bjust now\b`), "<age> ago"},
	{regexp.MustCompile(`\b(\d+[ydhms])+\b`), "<age>"},
	{regexp.MustCompile(`\b(revision|generation) \d+(,\d{3})*`), "$1 <n>"},
	{regexp.MustCompile(`\brevisions \d+ (to|and) \d+`), "revisions <n> $1 <n>"},
	{regexp.MustCompile(`\b\d[\d,]* (revisions|seconds)\b`), "<n> $1"},
	{regexp.MustCompile(`\bthose after \d[\d,]*`), "those after <n>"},
	{regexp.MustCompile(`\b\d+ (full backup|delta backup|file)s?\b`), "<n> ${1}s"},
	// Which agent reads the store depends on who is ready.
	{regexp.MustCompile(`^(Read by +the agent of member) .*`), "$1 <member>"},
}

// measured are the columns of a table with what differs from run to run, and is not recognized by itself.
var measured = map[string]struct {
	pattern *regexp.Regexp
	instead string
}{
	// An agent can end before it reports its last role.
	"ROLE":      {regexp.MustCompile(`^was (Leader|Member)$`), "was <role>"},
	"RAFT LAG":  {digits, "<n>"},
	"REVISION":  {digits, "<n>"},
	"REVISIONS": {digits, "<n>"},
	"FORK AT":   {digits, "<n>"},
	"FULLS":     {digits, "<n>"},
	"DELTAS":    {digits, "<n>"},
	// How fast the disk is, is known after some minutes with enough writes.
	"DISK": {regexp.MustCompile(`^((OK|Slow|VerySlow)( \(.*\))?|unknown)$`), "<disk>"},
	"NODE": {regexp.MustCompile(`^n\d+\b`), "<node>"},
	"ZONE": {regexp.MustCompile(`^z\d+$`), "<zone>"},
}

var (
	digits = regexp.MustCompile(`\d[\d,]*`)
	// gap is what separates two columns of a table at least.
	gap = regexp.MustCompile(` {3,}`)
	// title is the title of a column.
	title = regexp.MustCompile(`^[A-Z][A-Z /]*$`)
	// event is a line of an Event. Which Events are among the last ones depends on the duration of each step.
	event = regexp.MustCompile(`^(<age> ago|unknown) +(Normal|Warning) +\w+: `)
)

// events replaces all lines of Events.
const events = "<Events>"

// membersTitle begins the table of members, whose order depends on their generated names.
const membersTitle = "MEMBER"

// Steady returns what kubectl druid printed without what differs from run to run: names, times, ages, IDs, addresses, versions, sizes and
// counts are replaced by fixed words. Tables are aligned again, members are sorted by what they show, and Events are one line.
func Steady(text string, names Names) string {
	text = names.replace(text)
	for _, r := range racy {
		text = r.pattern.ReplaceAllString(text, r.instead)
	}
	lines := strings.Split(text, "\n")
	var out []string
	for len(lines) > 0 {
		if header := gap.Split(lines[0], -1); isHeader(header) {
			rows := rowsOf(lines[1:])
			out = append(out, table(header, rows)...)
			lines = lines[1+len(rows):]
			continue
		}
		line := strings.TrimRight(replaced(lines[0]), " ")
		lines = lines[1:]
		if event.MatchString(line) {
			line = events
		}
		if line != events || len(out) == 0 || out[len(out)-1] != events {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func replaced(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	return text
}

// isHeader reports whether columns are the titles of a table.
func isHeader(columns []string) bool {
	return len(columns) > 1 && !slices.ContainsFunc(columns, func(c string) bool { return !title.MatchString(c) })
}

// rowsOf returns the rows of a table: the lines up to the first one that has no columns.
func rowsOf(lines []string) (rows [][]string) {
	for _, line := range lines {
		row := gap.Split(line, -1)
		if len(row) < 2 {
			return rows
		}
		rows = append(rows, row)
	}
	return rows
}

// table returns the lines of a table without what differs from run to run.
func table(header []string, rows [][]string) []string {
	for _, row := range rows {
		for i, text := range row {
			if i < len(header) {
				if m, ok := measured[header[i]]; ok {
					text = m.pattern.ReplaceAllString(text, m.instead)
				}
			}
			row[i] = replaced(text)
		}
	}
	if header[0] == membersTitle {
		slices.SortFunc(rows, slices.Compare)
	}
	all := append([][]string{header}, rows...)
	widths := map[int]int{}
	for _, row := range all {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	lines := make([]string, 0, len(all))
	for _, row := range all {
		var line strings.Builder
		for i, text := range row {
			line.WriteString(text)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+3))
			}
		}
		lines = append(lines, line.String())
	}
	return lines
}

// logLine is a line of kubectl druid logs: the time or as many spaces, the Pod and the container.
var logLine = regexp.MustCompile(`(?m)^(?:[\d:]{8}\.\d{3}| {12}) (\S+ \S+)`)

// LogSources returns the Pods and containers of which kubectl druid logs shows lines, one in a line and each once.
func LogSources(text string, names Names) string {
	var sources []string
	for _, match := range logLine.FindAllStringSubmatch(names.replace(text), -1) {
		sources = append(sources, match[1]+"\n")
	}
	slices.Sort(sources)
	return strings.Join(slices.Compact(sources), "")
}
