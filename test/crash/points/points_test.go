package points

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/test/golden"
)

// code is where the calls of a program are. The programs' own wiring (cmd) only starts what is here.
var code = map[crash.Program][]string{
	crash.Agent: {"./agent/...", "./leases"},
	crash.Druid: {"./druid/..."},
}

// outside are the packages of these that have no points, and why.
var outside = map[string]string{
	"agent/launch/supervise": "launch ends with its Pod and takes etcd along: test/e2e does that",
	"agent/datadir/volume":   "each of its writes is complete or absent, and its callers have the points",
	"agent/survivor":         "nothing uses the new data directory before its caller renames it, and an incomplete one is made again",
	"agent/cli/backup":       "an operator runs it, and again",
	"agent/cli":              "install runs before there is an agent, and is repeated completely; status only asks",
}

func scanned(t *testing.T, program crash.Program) *found {
	t.Helper()
	f := &found{program: program, sites: map[string][]site{}, carried: map[string]bool{}}
	for _, p := range load(t, code[program]...) {
		if outside[strings.TrimPrefix(p.path, module)] == "" {
			f.scan(p)
		}
	}
	return f
}

func TestEveryChangeStandsBetweenTwoPoints(t *testing.T) {
	let := map[string]bool{}
	var doc strings.Builder
	doc.WriteString(preface)
	for _, program := range []crash.Program{crash.Agent, crash.Druid} {
		f := scanned(t, program)
		for _, wrong := range f.wrong {
			t.Error(wrong)
		}
		maps.Copy(let, f.carried)
		for name, sites := range f.sites {
			if len(sites) > 1 {
				t.Errorf("%s is the name of %d calls: %v", name, len(sites), sites)
			}
		}
		inCode, listed := slices.Sorted(maps.Keys(f.sites)), slices.Sorted(slices.Values(crash.Calls(program)))
		if !slices.Equal(inCode, listed) {
			t.Errorf("the %s's points in the code are not those of internal/crash/crash.go:\n%v\n%v", program, inCode, listed)
		}
		fmt.Fprintf(&doc, "\n## %s\n\n%s", program, f.render())
	}
	for function := range carried {
		if !let[function] {
			t.Errorf("%s changes nothing and is let off: take it out of carried", function)
		}
	}
	doc.WriteString("\n## Changes without points\n\n" + golden.Table([]string{"in", "why"}, append(rowsOf(outside), rowsOf(carried)...)))
	golden.File(t, "../../../docs/reference/crash-points.md", doc.String())
}

func TestEveryPointEndsAScenario(t *testing.T) {
	for _, program := range []crash.Program{crash.Agent, crash.Druid} {
		passed := map[string]bool{}
		for scenario, points := range Scenarios(program) {
			for _, point := range points {
				passed[callOf(point)] = true
				if !slices.Contains(crash.Points(program), callOf(point)) {
					t.Errorf("scenario %s waits for %s, which %s does not have", scenario, point, program)
				}
			}
		}
		for _, point := range crash.Points(program) {
			if !passed[point] {
				t.Errorf("%s of %s ends no scenario", point, program)
			}
		}
	}
}

const preface = `# Crash points

Written by ` + "`go test ./test/crash/points -update`" + ` from the code: do not edit.

With ` + "`DRUID_CRASH_AT=before-add-learner`" + ` in its environment (or ` + "`after-create-pod:3`" + `, for the third passage) a process ends at that
point with code 86. Every call that changes something outside of the process is between two
points, one before and one after. A test finds the calls by their types.

Each point ends a real program in each of its scenarios, next to a real etcd and a real kube-apiserver. The test then
starts the program again without the variable. Afterwards the cluster must have one raft group, exactly the desired
members, no occupied slot, no superfluous object, and no lost write.
`

func (f *found) render() string {
	var rows [][]string
	for _, call := range crash.Calls(f.program) {
		var in []string
		for _, name := range slices.Sorted(maps.Keys(scenarios[f.program])) {
			if interrupts(scenarios[f.program][name], call) {
				in = append(in, name)
			}
		}
		for _, s := range f.sites[call] {
			rows = append(rows, []string{call, "`" + s.callee + "`", "`" + s.function + "`", strings.Join(in, ", ")})
		}
	}
	return golden.Table([]string{"call", "what is called", "in", "scenarios"}, rows)
}

func rowsOf(reasons map[string]string) (rows [][]string) {
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		rows = append(rows, []string{"`" + name + "`", reasons[name]})
	}
	return rows
}
