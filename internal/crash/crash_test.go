package crash

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// The test binary acts as a program if the environment variable says so.
const playVariable = "DRUID_CRASH_PLAY"

func TestMain(m *testing.M) {
	if passages, err := strconv.Atoi(os.Getenv(playVariable)); err == nil {
		os.Exit(play(passages))
	}
	os.Exit(m.Run())
}

const armingFailed = 3

func play(passages int) int {
	if Arm(Agent) != nil {
		return armingFailed
	}
	for range passages {
		func() {
			defer Around("add-learner")()
		}()
	}
	return 0
}

func TestAPointEndsTheProcessAtItsPassage(t *testing.T) {
	for name, test := range map[string]struct {
		at       string
		passages int
		want     int
	}{
		"nothing is armed":                      {"", 2, 0},
		"before":                                {"before-add-learner", 1, ExitCode},
		"after":                                 {"after-add-learner", 1, ExitCode},
		"a point that is not passed":            {"before-promote", 2, 0},
		"a passage that does not come":          {"after-add-learner:3", 2, 0},
		"the third passage":                     {"after-add-learner:3", 3, ExitCode},
		"a point that does not exist":           {"before-lunch", 1, armingFailed},
		"a call without a side":                 {"add-learner", 1, armingFailed},
		"a point of another program":            {"before-create-pod", 1, armingFailed},
		"a passage that is no number":           {"before-add-learner:x", 1, armingFailed},
		"a passage that cannot come":            {"before-add-learner:0", 1, armingFailed},
		"a passage of which there is no number": {"before-add-learner:", 1, armingFailed},
	} {
		t.Run(name, func(t *testing.T) {
			executable, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), executable)
			cmd.Env = append(os.Environ(), playVariable+"="+strconv.Itoa(test.passages), Variable+"="+test.at)
			code := 0
			if err := cmd.Run(); err != nil {
				exit, ok := errors.AsType[*exec.ExitError](err)
				if !ok {
					t.Fatal(err)
				}
				code = exit.ExitCode()
			}
			if code != test.want {
				t.Errorf("the process ended with %d, want %d", code, test.want)
			}
		})
	}
}

func TestAPointIsOneProgramsAndHasOneName(t *testing.T) {
	seen := map[string]Program{}
	for _, program := range []Program{Agent, Druid} {
		for _, call := range Calls(program) {
			if former, twice := seen[call]; twice {
				t.Errorf("%s is a call of %s and of %s", call, former, program)
			}
			if seen[call] = program; strings.ContainsAny(call, ":= ") {
				t.Errorf("%q cannot be named in %s", call, Variable)
			}
		}
	}
}
