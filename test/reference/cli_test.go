package reference

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	agentcli "github.com/etcd-druid/druid/agent/cli"
	"github.com/etcd-druid/druid/druid"
	"github.com/etcd-druid/druid/internal/plugin"
	"github.com/etcd-druid/druid/test/golden"
)

// launchMain defines the flags of launch, which links no cobra.
const launchMain = "../../cmd/launch/main.go"

func TestCommands(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp") // a default of the page
	log, level := slog.New(slog.DiscardHandler), new(slog.LevelVar)
	var page strings.Builder
	page.WriteString(`# Commands

<!-- Written by go test ./test/reference -update: do not edit. -->

The image of druid contains the programs ` + "`druid`" + `, ` + "`agent`" + ` and ` + "`launch`" + `. The program ` + "`druid-backup`" +
		` has the commands of ` + "`agent backup`" + `: ` + "`druid-backup list`" + ` is ` + "`agent backup list`" + `.
[Commands of the plugin](kubectl-druid.md) lists those of ` + "`kubectl druid`" + `. Every command also has the flag ` + "`--help`" + `.
`)
	renderCommand(t, &page, druid.NewCommand(log, level))
	renderCommand(t, &page, agentcli.Root(log, level))
	renderLaunch(t, &page)
	golden.File(t, pages+"cli.md", page.String())
}

func TestPlugin(t *testing.T) {
	var page strings.Builder
	page.WriteString(`# Commands of the plugin

<!-- Written by go test ./test/reference -update: do not edit. -->

[The kubectl plugin](../how-to/run/kubectl-plugin.md) is the program ` + "`kubectl-druid`" + `. Every command also has the flag ` + "`--help`" + `.
`)
	renderCommand(t, &page, plugin.NewCommand())
	golden.File(t, pages+"kubectl-druid.md", page.String())
}

func renderCommand(t *testing.T, page *strings.Builder, c *cobra.Command) {
	t.Helper()
	if c.Short == "" || c.Runnable() && c.Args == nil && !c.DisableFlagParsing {
		t.Errorf("%s: want a short description, and what arguments it accepts", c.CommandPath())
	}
	heading := "###"
	if !c.HasParent() {
		heading = "##"
	}
	fmt.Fprintf(page, "\n%s `%s`\n\n%s", heading, c.CommandPath(), paragraphs(sentence(cmp.Or(c.Long, c.Short))))
	if c.Runnable() && !c.HasExample() {
		t.Errorf("%s: want an example", c.CommandPath())
	}
	if c.Runnable() {
		fmt.Fprintf(page, "\n```shell\n%s\n```\n", c.UseLine())
	}
	if c.HasSubCommands() {
		var rows [][]string
		for _, sub := range c.Commands() {
			rows = append(rows, []string{code(sub.CommandPath()), cell(prose(sub.Short))})
		}
		page.WriteString("\n" + golden.Table([]string{"Command", "Description"}, rows))
	}
	if rows := flagRows(t, c); len(rows) > 0 {
		page.WriteString("\n" + golden.Table([]string{"Flag", "Default", "Description"}, rows))
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(page, "\nThe flags of `%s` apply too.\n", c.Parent().CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(page, "\n```shell\n%s\n```\n", unindented(c.Example))
	}
	for _, sub := range c.Commands() {
		renderCommand(t, page, sub)
	}
}

func flagRows(t *testing.T, c *cobra.Command) (rows [][]string) {
	t.Helper()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		kind, usage := pflag.UnquoteUsage(f)
		if usage == "" {
			t.Errorf("%s --%s: no description", c.CommandPath(), f.Name)
		}
		name := strings.TrimSpace("--" + f.Name + " " + kind)
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fallback := f.DefValue
		switch {
		case slices.Contains(f.Annotations[cobra.BashCompOneRequiredFlag], "true"):
			usage += " (required)"
		case fallback == "[]":
			fallback = ""
		}
		rows = append(rows, []string{code(name), code(fallback), cell(prose(usage))})
	})
	return rows
}

// paragraphs renders a long description: lines that are indented are code.
func paragraphs(text string) string {
	var out strings.Builder
	fenced, open := false, false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !fenced:
			out.WriteString("\n```text\n")
		case !indented && fenced:
			out.WriteString("```\n\n")
		}
		fenced = indented
		open = line != ""
		if indented {
			out.WriteString(strings.TrimPrefix(line, "  ") + "\n")
		} else {
			out.WriteString(prose(line) + "\n")
		}
	}
	if fenced && open {
		out.WriteString("```\n")
	}
	return strings.ReplaceAll(out.String(), "\n\n\n", "\n\n")
}

func unindented(text string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		lines = append(lines, strings.TrimPrefix(line, "  "))
	}
	return strings.Join(lines, "\n")
}

// renderLaunch reads the flags of launch from its source: its main package cannot be imported.
func renderLaunch(t *testing.T, page *strings.Builder) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), launchMain, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.HasSuffix(method.Sel.Name, "Var") {
			return true
		}
		var texts []string
		for _, argument := range call.Args[1:] {
			literal, ok := argument.(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s: a flag with an argument that is no literal", launchMain)
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
		kind := strings.ToLower(strings.TrimSuffix(method.Sel.Name, "Var"))
		rows = append(rows, []string{code("-" + texts[0] + " " + kind), code(texts[1]), cell(prose(texts[2]))})
		return true
	})
	if len(rows) == 0 {
		t.Fatalf("%s defines no flags", launchMain)
	}
	page.WriteString("\n## `launch`\n\nSupervise etcd as process 1 of its container. Run it as `agent launch`.\n\n```shell\nlaunch [flags]\n```\n\n")
	page.WriteString(golden.Table([]string{"Flag", "Default", "Description"}, rows))
	const example = "launch -socket /druid/s -volume /var/lib/etcd -probe :2381"
	for word := range strings.FieldsSeq(example) {
		if strings.HasPrefix(word, "-") && !slices.ContainsFunc(rows, func(row []string) bool { return strings.HasPrefix(row[0], "`"+word+" ") }) {
			t.Errorf("launch: the example has the unknown flag %s", word)
		}
	}
	page.WriteString("\n```shell\n" + example + "\n```\n")
}
