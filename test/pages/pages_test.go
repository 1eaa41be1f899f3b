package pages

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const sample = "# A page\n\n1. Do it:\n\n   ```console\n   $ kubectl get pods\n   NAME   AGE\n   a      7s\n   $ true # nothing\n   ```\n\n" +
	"<!-- not run: it needs a cloud -->\n```shell\ncloud up\n```\n\n```yaml\na:\n  b: 1\n```\n"

func TestBlocksOfAPage(t *testing.T) {
	got, err := Parse(sample)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{Line: 6, Language: Console, Text: "$ kubectl get pods\nNAME   AGE\na      7s\n$ true # nothing", Steps: []Step{
			{Line: 6, Command: "kubectl get pods", Checked: true, Shown: []string{"NAME   AGE", "a      7s"}},
			{Line: 9, Command: "true # nothing", Checked: true},
		}},
		{Line: 14, Language: Shell, NotRun: "it needs a cloud", Text: "cloud up", Steps: []Step{{Line: 14, Command: "cloud up"}}},
		{Line: 18, Language: YAML, Text: "a:\n  b: 1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPagesThatNoTestCouldRun(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a block does not end":           {"```shell\ntrue\n", "2: the block does not end"},
		"a block has no language":        {"\n```\ntrue\n```\n", `3: the block has the language ""`},
		"a reason is far from its block": {"<!-- not run: x -->\n\n```shell\ntrue\n```\n", "1: the next line must begin a block"},
		"output comes first":             {"```console\nOK\n```\n", "2: the block shows output before its first command"},
		"a command has two lines":        {"```shell\nkubectl \\\n  get pods\n```\n", "2: "},
		"a shell block has a prompt":     {"```shell\n$ true\n```\n", "2: a command of a shell block begins with $"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(c.text); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestOutputIsCompared(t *testing.T) {
	const leases = "NAME           HOLDER                    AGE\ndemo-leader    demo-qtd87                7s\ndemo-qtd87     " +
		"8b9934d501f03882:Leader   7s\ndemo-svg4g     9659709b2d8cbabb:Member   7s"
	for name, c := range map[string]struct {
		shown, printed string
		same           bool
	}{
		"the same":                            {"OK", "OK", true},
		"another word":                        {"OK", "KO", false},
		"more is printed":                     {"OK", "OK\nOK", false},
		"less is printed":                     {"OK\nOK", "OK", false},
		"nothing is shown and a line printed": {"", "OK", false},
		"names, IDs, ages, spaces, other order": {leases,
			"NAME HOLDER AGE\ndemo-2zzzz 0000000000000001:Member 3m12s\ndemo-4444b 0000000000000002:Leader 1s\ndemo-leader demo-4444b 1s", true},
		"an ID with fewer digits": {"d5786d3f204ff405", "b571fb983bebaae", true},
		"two leaders": {leases,
			"NAME HOLDER AGE\ndemo-2zzzz 0000000000000001:Leader 3m12s\ndemo-4444b 0000000000000002:Leader 1s\ndemo-leader demo-4444b 1s", false},
		"another column":                      {"NAME   AGE\na   1s", "NAME   STATE   AGE\na   Ok   1s", false},
		"an empty column":                     {"NAME LEADER AGE\ndemo demo-qtd87 7s", "NAME LEADER AGE\ndemo 7s", false},
		"another volume":                      {"VOLUME\npvc-aaaaaaaa-1111-2222-3333-abcdefabcdef", "VOLUME\npvc-0c4a1f6e-8a52-4f3e-9d38-1234567890ab", true},
		"no volume":                           {"VOLUME\npvc-aaaaaaaa-1111-2222-3333-abcdefabcdef", "VOLUME\n-", false},
		"a number is not an age":              {"2", "3", false},
		"a fixed suffix is not generated":     {"demo-client", "demo-leader", false},
		"any lines between two":               {"a\n…\nd", "a\nb\nc\nd", true},
		"some rows of a table":                {"NAME LEADER AGE\n…\nb demo-qtd87 7s", "NAME LEADER AGE\nz demo-4444b 7s\nb demo-4444b 9s", true},
		"any lines are none":                  {"a\n…\nd", "a\nd", true},
		"the line after any lines is missing": {"a\n…\nd", "a\nb\nc", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Compare(lines(c.shown), lines(c.printed)); (err == nil) != c.same {
				t.Errorf("got %v", err)
			}
		})
	}
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestCommandsRunInOneShell(t *testing.T) {
	s, err := NewSession(t.Context(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, c := range []struct {
		command string
		printed []string
		fails   bool
	}{
		{command: "name=$(printf x; echo warning >&2)", printed: []string{"warning"}},
		{command: "echo $name # a comment", printed: []string{"x"}},
		{command: "printf 'no newline'", printed: []string{"no newline"}},
		{command: "cat"},
		{command: "false | cat", fails: true},
		{command: "printf 'a\\n\\n'", printed: []string{"a", ""}},
	} {
		printed, err := s.Run(c.command, time.Minute)
		if (err != nil) != c.fails {
			t.Errorf("%s: got error %v", c.command, err)
		}
		if diff := cmp.Diff(c.printed, append([]string(nil), printed...)); diff != "" {
			t.Errorf("%s: -want +printed:\n%s", c.command, diff)
		}
	}
	if _, err := s.Run("sleep 600", time.Millisecond); err == nil {
		t.Error("a command that took too long did not end in an error")
	}
}

func TestAWatchEndsWhenEnoughIsPrinted(t *testing.T) {
	s, err := NewSession(t.Context(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	two := func(printed []string) error {
		if len(printed) < 2 {
			return errors.New("one line is missing")
		}
		return nil
	}
	if err := s.Watch(t.Context(), "echo 1; echo 2; sleep 600", time.Minute, two); err != nil {
		t.Error(err)
	}
	if err := s.Watch(t.Context(), "echo 1", time.Minute, two); err == nil {
		t.Error("a watch that ended early is no error")
	}
}
