package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/states"
	"github.com/etcd-druid/druid/test/golden"
)

// goldenOf is the golden file of a verb in the present state.
func (s *shownStates) goldenOf(verb string) string {
	return filepath.Join(storyOfStates, s.state, verb+".txt")
}

// changes runs a verb that changes something. druid writes the status meanwhile, so that a request can be refused at first. The name of the
// golden file has the flags.
func (s *shownStates) changes(t *testing.T, code int, verb string, args ...string) {
	t.Helper()
	command, shown, name := append([]string{verb, s.p.Name}, args...), asPrinted, verb
	for _, arg := range args {
		if flag, ok := strings.CutPrefix(arg, "--"); ok {
			name += "-" + flag
		}
	}
	if slices.Contains(args, "--wait") && verb != "snapshot" {
		shown = lastLine // what a look at the progress shows differs from run to run
	}
	var printed string
	harness.Eventually(t, healWithin, strings.Join(command, " "), func(context.Context) error {
		if printed = s.run(t, command, shown); !strings.HasSuffix(printed, fmt.Sprintf("[exit code %d]\n", code)) {
			return fmt.Errorf("want the exit code %d:\n%s", code, printed)
		}
		return nil
	})
	golden.File(t, s.goldenOf(name), printed)
}

// verbs are those that read, by the name of their golden file.
func (s *shownStates) verbs() map[string][]string {
	name := s.p.Name
	return map[string][]string{
		"get": {"get"}, "get-wide": {"get", "--output", "wide"}, "status": {"status", name}, "why": {"why", name}, "backups": {"backups", name},
		"recover": {"recover", name}, "check": {"check", name}, "connect": {"connect", name}, "logs": {"logs", name, "--tail", "20"},
		"kept-volumes": {"kept-volumes", name}, "etcdctl": {"etcdctl", name, "--", "endpoint", "health"},
		"version": {"version"}, "upgrade": {"upgrade", name, s.upgrade}, "restore": {"restore", name, "--latest"},
	}
}

// atRest returns what the verbs print in a state, without what differs from run to run, once it stays the same.
func (s *shownStates) atRest(t *testing.T, word string) (got map[string]string) {
	t.Helper()
	since := time.Now()
	harness.Eventually(t, healWithin, "the output at rest", func(context.Context) error {
		now := s.round(t)
		if !maps.Equal(got, now) {
			diff := cmp.Diff(got, now)
			got, since = now, time.Now()
			return fmt.Errorf("it changed:\n%s", diff)
		}
		if !strings.Contains(got["status"], word) {
			return fmt.Errorf("status does not have %q:\n%s", word, got["status"])
		}
		if time.Since(since) < s.restFor {
			return errors.New("it did not change")
		}
		return nil
	})
	return got
}

// round runs each verb once.
func (s *shownStates) round(t *testing.T) map[string]string {
	t.Helper()
	printed := map[string]string{
		"report": s.report(t), "get-json": s.data(t, "get"), "status-json": s.data(t, "status", s.p.Name), "refused": s.refusals(t),
	}
	for verb, args := range s.verbs() {
		shown := asPrinted
		if verb == "logs" {
			shown = func(stdout string) string { return states.LogSources(stdout, s.replaced()) }
		}
		printed[verb] = s.run(t, args, shown)
	}
	return printed
}

func asPrinted(stdout string) string { return stdout }

func lastLine(stdout string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(stdout, "\n"), "\n")
	return lines[len(lines)-1] + "\n"
}

// run returns a command and what it prints, as in a terminal.
func (s *shownStates) run(t *testing.T, args []string, shown func(stdout string) string) string {
	t.Helper()
	within := verbWithin
	if slices.Contains(args, "--wait") {
		within = healWithin
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	stdout, stderr, code := s.p.run(ctx, "", slices.Clone(args)...)
	return s.steady(fmt.Sprintf("$ kubectl druid %s\n%s%s[exit code %d]\n", strings.Join(args, " "), shown(stdout), stderr, code))
}

// refusals runs commands that are refused. They change nothing, so that they can run again and again.
func (s *shownStates) refusals(t *testing.T) string {
	t.Helper()
	var printed strings.Builder
	for _, command := range append([]string{
		"replace demo no-such-member", "leave-first demo no-such-member", "hands-off demo --end", "recover demo --approve no-such-plan",
		"kept-volumes demo --discard no-such-member",
	}, s.refused...) {
		printed.WriteString(s.run(t, strings.Fields(command), asPrinted))
	}
	return printed.String()
}

// data returns what a verb prints as JSON or YAML. Both must be the same data.
func (s *shownStates) data(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), verbWithin)
	defer cancel()
	read := map[string]string{}
	var end string
	for _, format := range []string{"json", "yaml"} {
		stdout, stderr, code := s.p.run(ctx, "", append(slices.Clone(args), "--output", format)...)
		raw, err := yaml.YAMLToJSON([]byte(stdout))
		if err == nil {
			read[format], err = states.Data(string(raw), s.replaced())
		}
		if err != nil {
			return fmt.Sprintf("%v\n%s%s", err, stdout, stderr)
		}
		end = fmt.Sprintf("%s[exit code %d]\n", stderr, code)
	}
	return fmt.Sprintf("$ kubectl druid %s --output json\n%s%s%s", strings.Join(args, " "), read["json"], cmp.Diff(read["json"], read["yaml"]), end)
}

// report writes a report, and returns what the verb prints and which files about the cluster are in the report.
func (s *shownStates) report(t *testing.T) string {
	t.Helper()
	printed := s.run(t, []string{"report", s.p.Name, "--output", s.file}, asPrinted)
	found, err := unpacked(s.file)
	if err := errors.Join(err, os.Remove(s.file)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range found {
		// How often a container was restarted differs, and druid is not of this story alone.
		if strings.HasPrefix(name, s.p.Namespace+"/") && !strings.Contains(name, ".previous.") {
			names = append(names, s.steady(name))
		}
	}
	slices.Sort(names)
	return printed + strings.Join(slices.Compact(names), "\n") + "\n"
}
